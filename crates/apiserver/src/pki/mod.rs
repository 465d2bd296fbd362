//! What certificates and requests for them say, read as the real server reads them.

mod der;
mod name;
mod pem;
mod request;

pub(crate) use der::{content, element, elements};
pub(crate) use name::{common_name, organizations};
pub(crate) use pem::{blocks, written};
pub(crate) use request::SigningRequest;
