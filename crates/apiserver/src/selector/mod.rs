//! Label and field selectors, as the query parameters of a list or watch spell them.

mod field;
mod label;
#[cfg(test)]
mod tests;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelRequirement, LabelSelector, Operator};
