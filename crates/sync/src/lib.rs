//! RootSync: its bindings and its reconciler.
