//! Every custom resource that writ speaks: one file per kind, plain data, no I/O.
