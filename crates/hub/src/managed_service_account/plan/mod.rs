//! Pure: what accounts, their add-on and the agents' rights shall be.

pub mod accounts;
pub mod addon;
pub mod addon_work;
pub mod bound_clusters;
pub mod children;
pub mod credential_request;
pub mod older_group;
pub mod policy;
pub mod rights;
