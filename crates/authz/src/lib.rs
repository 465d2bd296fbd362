//! Kubernetes RBAC as a pure function: may S do V on R, who may, why, does A cover B.
