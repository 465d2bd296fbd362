//! Controllers and admission that run on the hub.
