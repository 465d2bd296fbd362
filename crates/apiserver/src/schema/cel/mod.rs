//! CEL: validation rules of schemas, and the expressions of admission.

mod convert;
mod expression;
mod fields;
mod rule;

pub use expression::{Activation, Expression};
pub(crate) use rule::Rule;
pub(super) use rule::{has_rules, validate};
