//! The scenarios, a folder per feature.

mod accounts;
mod clusters;
mod foundation;
mod permission;
#[expect(
    clippy::indexing_slicing,
    reason = "a status that lacks a field answers null there"
)]
mod sync;
pub mod work;

use crate::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        accounts::all(),
        clusters::all(),
        foundation::all(),
        permission::all(),
        sync::all(),
        work::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
