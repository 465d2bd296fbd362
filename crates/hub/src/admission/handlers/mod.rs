//! One module per kind: its row in the table of webhooks, and its decisions.

pub mod account_binding;
pub mod cluster_permission;
pub mod executor;
pub mod managed_cluster;
pub mod managed_cluster_set;
pub mod managed_cluster_set_binding;
pub mod manifest_work;
pub mod manifest_work_spec;
pub mod replica_set;
