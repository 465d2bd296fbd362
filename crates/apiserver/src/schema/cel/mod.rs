//! CEL: validation rules of schemas, and the expressions of admission.

mod access;
mod authorizer;
mod bound;
mod check;
mod convert;
mod depth;
mod estimate;
mod expression;
mod macros;
mod meter;
mod operators;
mod prices;
mod rule;
mod signatures;
mod sizes;
mod strings;
mod text;
mod types;

pub use authorizer::Authorize;
pub(crate) use authorizer::{Resource as AskedResource, value as authorizer_value};
pub(crate) use check::Scope;
pub use expression::{Activation, Expression};
pub(crate) use expression::{Budget, Failure};
pub(crate) use meter::{OUT_OF_BUDGET, PER_CONDITIONS, PER_OBJECT};
pub(crate) use rule::Rule;
pub(super) use rule::{has_rules, validate};
pub(crate) use signatures::AUTHORIZER;
pub(crate) use sizes::Size;
pub(crate) use types::Ty;
