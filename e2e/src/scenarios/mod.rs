//! The scenarios, a folder per feature.

mod foundation;
mod work;

use crate::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [foundation::all(), work::all()].into_iter().flatten().collect()
}
