//! What everything stands on: the CRDs are served, and the examples of the design documents are accepted.

use futures::FutureExt;

use crate::Scenario;

mod design_documents;
mod election;
mod repair;
mod upstream_objects;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "foundation/examples_of_the_design_documents_are_accepted",
            clusters: 0,
            run: |fleet| design_documents::accepted(fleet).boxed(),
        },
        Scenario {
            name: "foundation/what_upstreams_definitions_accept_is_accepted",
            clusters: 0,
            run: |fleet| upstream_objects::accepted(fleet).boxed(),
        },
        Scenario {
            name: "foundation/the_hub_that_acts_keeps_its_lease",
            clusters: 0,
            run: |fleet| election::keeps_the_lease(fleet).boxed(),
        },
        Scenario {
            name: "foundation/what_the_hub_keeps_is_put_right",
            clusters: 0,
            run: |fleet| repair::everything_of_the_hub(fleet).boxed(),
        },
    ]
}
