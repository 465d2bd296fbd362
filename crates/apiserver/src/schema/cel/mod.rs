//! CEL: validation rules of schemas, and the expressions of admission.

mod authorizer;
mod bound;
mod check;
mod convert;
mod depth;
mod expression;
mod functions;
mod macros;
mod meter;
mod rule;
mod signatures;
mod types;

pub use authorizer::Authorize;
pub(crate) use authorizer::{Resource as AskedResource, value as authorizer_value};
pub(crate) use check::Scope;
pub use expression::{Activation, Expression};
pub(crate) use expression::{Budget, Failure};
pub(crate) use meter::{OUT_OF_BUDGET, PER_CONDITIONS, PER_OBJECT};
pub(crate) use rule::Rule;
pub(super) use rule::{has_rules, validate};
pub(crate) use types::Ty;
