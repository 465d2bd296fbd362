//! Who are you, and may you.

mod authenticate;
mod authorizer;
mod impersonate;
mod issuer;
mod kept;
mod protocol;
mod recorder;
mod user;

pub(crate) use authenticate::{Peer, Shown, StaticTokens, authenticate, ignored_token, review_authorization};
pub(crate) use authorizer::{Authorizer, apply};
pub(crate) use impersonate::{Ways, impersonate};
pub(crate) use issuer::{Bound, INVALID, ISSUER, Issuer, TokenWish};
pub use recorder::Recorder;
pub use user::User;
pub(crate) use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
