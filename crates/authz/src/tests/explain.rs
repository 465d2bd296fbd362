//! What an explanation tells of a deny, and in which order.

use super::*;
use crate::{Key, Kind, Missing};

#[test]
fn a_denied_path_is_explained() {
    let mut index = Index::default();
    index
        .apply(&cluster_role("r", &[urls("get /metrics"), rule("post - pods")]))
        .unwrap();
    index
        .apply(&cluster_binding("b", "ClusterRole:r", &["user:alice"]))
        .unwrap();
    let near = |text: &str| index.explain("alice", &[] as &[&str], &ask(text)).nearest;
    assert_eq!(
        near("get /healthz")[0].missing,
        [Missing::NonResourceUrl("/healthz".to_owned())]
    );
    assert_eq!(
        near("post /metrics")[0].missing,
        [Missing::Verb("post".to_owned())]
    );
    assert!(near("post /healthz").is_empty());
}

/// The nearest rule comes first, whatever its binding is called, and too far does not come at all.
#[test]
fn near_misses_come_by_distance() {
    let cases: &[(&[&str], &[&str])] = &[
        (
            &[
                "shop get apps jobs",
                "shop get batch deployments",
                "shop get apps deployments db",
            ],
            &["2", "1", "0"],
        ),
        (&["shop get apps jobs", "shop list apps deployments"], &["1", "0"]),
        (
            &["other get apps deployments", "shop get apps deployments db"],
            &["1", "0"],
        ),
        (
            &["shop get apps jobs db", "other get apps deployments"],
            &["1", "0"],
        ),
        (
            &["shop list apps jobs", "other get apps jobs", "shop get apps jobs"],
            &["2"],
        ),
    ];
    for (bound, told) in cases {
        let mut index = Index::default();
        for (number, text) in bound.iter().enumerate() {
            let (namespace, text) = text.split_once(' ').unwrap();
            let name = number.to_string();
            index.apply(&role(namespace, &name, &[rule(text)])).unwrap();
            let to = format!("Role:{name}");
            index
                .apply(&binding(namespace, &name, &to, &["user:alice"]))
                .unwrap();
        }
        let asked = ask("get apps deployments shop web");
        let why = index.explain("alice", &[] as &[&str], &asked);
        let nearest: Vec<_> = why
            .nearest
            .iter()
            .map(|near| near.chain.binding.name.as_str())
            .collect();
        assert_eq!(nearest, *told, "{bound:?}");
    }
}

/// A lost binding is told with the role to create. For a reference that can never resolve there is none.
#[test]
fn only_what_can_be_created_is_lost() {
    for (lost, told) in [
        ("ClusterRole:gone", vec!["ClusterRole gone"]),
        ("Role:gone", vec![]),
        ("Widget:gone", vec![]),
    ] {
        let mut index = Index::default();
        index.apply(&cluster_role("r", &[rule("get - pods")])).unwrap();
        index.apply(&cluster_binding("b", lost, &["user:alice"])).unwrap();
        let why = index.explain("alice", &[] as &[&str], &ask("get - pods"));
        let dangling: Vec<_> = why.dangling.iter().map(|lost| lost.role.to_string()).collect();
        assert_eq!(dangling, told, "{lost}");
    }
}

#[test]
fn an_explanation_stays_short() {
    let mut index = Index::default();
    for number in 0..20 {
        let name = format!("r{number:02}");
        index.apply(&cluster_role(&name, &[rule("get - pods")])).unwrap();
        index
            .apply(&cluster_binding(
                &name,
                &format!("ClusterRole:{name}"),
                &["user:alice"],
            ))
            .unwrap();
    }
    let why = index.explain("alice", &[] as &[&str], &ask("list - pods"));
    let bindings: Vec<_> = why
        .nearest
        .iter()
        .map(|near| near.chain.binding.name.as_str())
        .collect();
    assert_eq!(bindings, ["r00", "r01", "r02", "r03", "r04"]);
    let why = index.explain("bob", &[] as &[&str], &ask("get - pods"));
    let roles: Vec<_> = why.roles.iter().map(|role| role.name.as_str()).collect();
    assert_eq!(roles, ["r00", "r01", "r02", "r03", "r04"]);
    // Bindings that have lost their role are few, so they all come, in order.
    for number in 0..20 {
        index.remove(Key::new(Kind::ClusterRole, "", &format!("r{number:02}")));
    }
    let why = index.explain("alice", &[] as &[&str], &ask("get - pods"));
    let lost: Vec<_> = why
        .dangling
        .iter()
        .map(|lost| lost.binding.name.as_str())
        .collect();
    assert_eq!(lost.len(), 20);
    assert!(lost.is_sorted(), "{lost:?}");
}
