//! What runs in a managed cluster.
