//! Who are you, and may you.

mod authenticate;
mod authorizer;
mod bound;
mod impersonate;
mod issuer;
mod kept;
mod protocol;
mod recorder;
mod user;

pub(crate) use authenticate::{Peer, Shown, StaticTokens, authenticate, review_authorization};
pub(crate) use authorizer::{Authorizer, apply};
pub(crate) use bound::{Bound, TokenWish};
pub(crate) use impersonate::{Ways, impersonate};
pub(crate) use issuer::{INVALID, ISSUER, Issuer};
pub(crate) use kept::{LAST_USED, today};
pub use recorder::Recorder;
pub use user::User;
pub(crate) use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
