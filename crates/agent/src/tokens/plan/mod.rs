//! Pure: what an account asks for, what its Secret and ServiceAccount need, and what its status says.

pub mod previous;
pub mod role;
pub mod secret;
pub mod service_account;
pub mod status;
pub mod token;
