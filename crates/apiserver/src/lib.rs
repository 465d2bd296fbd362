//! A small Kubernetes API server in memory: a fleet in one process.
