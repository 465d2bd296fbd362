use serde_json::json;

use super::support::declared_with;
use crate::reconciler::{object::Declared, plan::order::waves};

fn declared(text: &str, depends_on: &str) -> Declared {
    declared_with(text, &json!({ "config.kubernetes.io/depends-on": depends_on }))
}

#[test]
fn dependencies_come_first_and_cycles_are_found() {
    let all = [
        declared("Pod ns/late", "/namespaces/ns/Pod/middle"),
        declared("Pod ns/middle", "/namespaces/ns/ConfigMap/early"),
        declared("ConfigMap ns/early", ""),
        declared("Namespace first", ""),
        declared("Pod ns/one", "/namespaces/ns/Pod/two"),
        declared("Pod ns/two", "/namespaces/ns/Pod/one"),
    ];
    let objects: Vec<&Declared> = all.iter().collect();
    let (groups, cyclic) = waves(&objects);
    let at = |name: &str| {
        groups
            .iter()
            .position(|group| group.iter().any(|index| &*objects[*index].id.name.name == name))
    };
    assert!(at("first") < at("early") && at("early") < at("middle") && at("middle") < at("late"));
    let mut names: Vec<_> = cyclic
        .iter()
        .map(|index| &*objects[*index].id.name.name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
}

/// A tenant can declare tens of thousands of objects that wait for each other; sorting them must not delay the other syncs.
#[test]
fn long_chains_and_large_cycles_are_sorted_in_linear_time() {
    let many = 30_000;
    let link = |from: usize, to: usize| {
        declared(
            &format!("ConfigMap ns/c{from}"),
            &format!("/namespaces/ns/ConfigMap/c{to}"),
        )
    };
    let chain: Vec<Declared> = (0..many).map(|n| link(n, n + 1)).collect();
    let objects: Vec<&Declared> = chain.iter().collect();
    let (groups, cyclic) = waves(&objects);
    assert_eq!((groups.len(), cyclic.len()), (many, 0));
    assert_eq!(groups[0], [many - 1]);
    let last = link(many, 0);
    let closed: Vec<&Declared> = chain.iter().chain([&last]).collect();
    let (groups, cyclic) = waves(&closed);
    assert_eq!((groups.len(), cyclic.len()), (0, many + 1));
}
