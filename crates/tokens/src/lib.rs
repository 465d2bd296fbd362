//! Discover and follow ManagedServiceAccount tokens from Rust.
