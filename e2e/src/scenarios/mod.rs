//! The scenarios, a folder per feature.

mod foundation;

use crate::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [foundation::all()].into_iter().flatten().collect()
}
