//! Works are delivered, kept true, reported and removed.

use futures::FutureExt;

use crate::Scenario;

mod delivery;
mod support;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "work/objects_are_delivered_pruned_and_removed",
            clusters: 1,
            run: |fleet| delivery::life(fleet).boxed(),
        },
        Scenario {
            name: "work/drift_is_repaired_within_a_second",
            clusters: 1,
            run: |fleet| delivery::drift(fleet).boxed(),
        },
        Scenario {
            name: "work/what_was_missing_is_delivered_when_it_appears",
            clusters: 1,
            run: |fleet| delivery::appears(fleet).boxed(),
        },
    ]
}
