//! The scenarios, a folder per feature.

mod foundation;
mod permission;
mod work;

use crate::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [foundation::all(), permission::all(), work::all()]
        .into_iter()
        .flatten()
        .collect()
}
