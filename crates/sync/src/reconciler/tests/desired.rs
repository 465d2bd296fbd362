//! From fetched objects to declared ones.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;
use writ_controller::ObjectId;

use crate::{
    model::{SyncId, SyncKind},
    reconciler::{
        desired::{Desired, KindScope},
        error::Code,
        fetch::{Fetched, SourceSpec},
        object::{Raw, full_name},
        parse::Parsed,
    },
};

pub fn raw(api_version: &str, kind: &str, name: &str, namespace: &str) -> Raw {
    Raw {
        path: format!("{name}.yaml").into(),
        value: json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "name": name, "namespace": namespace },
        }),
    }
}

/// The definition of the kind `Thing`.
pub fn definition(scope: &str) -> Raw {
    let mut raw = raw(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "things.example.com",
        "",
    );
    raw.value["spec"] = json!({ "group": "example.com", "scope": scope, "names": { "kind": "Thing" }});
    raw
}

fn fetched(objects: Vec<Raw>) -> Fetched {
    Fetched {
        commit: "c1".into(),
        parsed: Parsed {
            objects,
            ..Parsed::default()
        },
    }
}

/// A commit with these objects, resolved with the kinds of an API server that serves core kinds and definitions.
pub fn adopted(kind: SyncKind, objects: Vec<Raw>) -> Desired {
    let id = match kind {
        SyncKind::Root => SyncId::new(kind, "config-management-system", "a"),
        SyncKind::Repo => SyncId::new(kind, "team", "repo-sync"),
    };
    let mut desired = Desired::new(id);
    desired.adopt(fetched(objects), SourceSpec::for_tests(true));
    resolve(&mut desired, &[]);
    desired
}

/// Resolves with the kinds of an API server that serves core kinds, definitions, and these.
fn resolve(desired: &mut Desired, more: &[(&str, KindScope)]) {
    let kinds: HashMap<_, _> = desired
        .unresolved_kinds()
        .into_iter()
        .map(|gvk| {
            let scope = match gvk.kind.as_str() {
                "ConfigMap" | "RootSync" | "RepoSync" | "ResourceGroup" => KindScope::Namespaced,
                "Namespace" | "CustomResourceDefinition" => KindScope::Cluster,
                kind => more
                    .iter()
                    .find(|(other, _)| *other == kind)
                    .map_or(KindScope::NotServed, |(_, scope)| scope.clone()),
            };
            (gvk, scope)
        })
        .collect();
    desired.resolve(&kinds);
}

fn declared(desired: &Desired) -> Vec<String> {
    desired.declared.keys().map(full_name).collect()
}

fn codes(desired: &Desired) -> Vec<Code> {
    desired.problems.iter().map(|problem| problem.code).collect()
}

fn map(name: &str, namespace: &str) -> Raw {
    raw("v1", "ConfigMap", name, namespace)
}

#[test]
fn object_of_a_root_sync_is_placed_in_its_namespace_or_in_default() {
    let desired = adopted(
        SyncKind::Root,
        vec![
            map("a", "web"),
            map("b", ""),
            raw("v1", "Namespace", "web", "ignored"),
        ],
    );
    assert_eq!(
        declared(&desired),
        ["ConfigMap default/b", "ConfigMap web/a", "Namespace web"]
    );
    assert!(desired.is_complete());
}

#[test]
fn object_of_a_repo_sync_is_placed_in_the_namespace_of_the_sync_only() {
    let desired = adopted(
        SyncKind::Repo,
        vec![
            map("a", ""),
            map("b", "team"),
            map("c", "other"),
            raw("v1", "Namespace", "team", ""),
        ],
    );
    assert_eq!(declared(&desired), ["ConfigMap team/a", "ConfigMap team/b"]);
    assert_eq!(codes(&desired), [Code::BadScope, Code::BadScope]);
    assert!(!desired.is_complete(), "nothing is pruned");
}

#[test]
fn sync_may_not_declare_itself_or_its_inventory() {
    let system = "config-management-system";
    for (kind, name, is_refused) in [
        ("RootSync", "a", true),
        ("RootSync", "b", false),
        ("RepoSync", "a", false),
        ("ResourceGroup", "a", true),
        ("ResourceGroup", "b", false),
    ] {
        let group = if kind == "ResourceGroup" {
            "kpt.dev/v1alpha1"
        } else {
            "configsync.gke.io/v1beta1"
        };
        let desired = adopted(SyncKind::Root, vec![raw(group, kind, name, system)]);
        let expected: &[Code] = if is_refused { &[Code::SelfReconcile] } else { &[] };
        assert_eq!(codes(&desired), expected, "{kind} {name}");
    }
}

#[test]
fn object_that_is_declared_twice_is_not_declared_at_all() {
    let desired = adopted(
        SyncKind::Root,
        vec![map("a", "web"), map("a", "web"), map("b", "web")],
    );
    assert_eq!(declared(&desired), ["ConfigMap web/b"]);
    assert_eq!(codes(&desired), [Code::NameCollision]);
}

#[test]
fn disabled_object_is_not_declared_but_known() {
    let mut disabled = map("a", "web");
    disabled.value["metadata"]["annotations"] = json!({ "configmanagement.gke.io/managed": "disabled" });
    let desired = adopted(SyncKind::Root, vec![disabled, map("b", "web")]);
    assert_eq!(declared(&desired), ["ConfigMap web/b"]);
    assert_eq!(
        desired.disabled.iter().map(full_name).collect::<Vec<_>>(),
        ["ConfigMap web/a"]
    );
}

#[test]
fn kind_that_is_not_served_is_unresolved_until_it_is() {
    let mut desired = adopted(
        SyncKind::Root,
        vec![raw("example.com/v1", "Thing", "t", "web"), map("a", "web")],
    );
    assert_eq!(declared(&desired), ["ConfigMap web/a"]);
    assert_eq!(desired.unresolved[0].problem().code, Code::UnknownKind);
    resolve(&mut desired, &[("Thing", KindScope::Unknown("away".into()))]);
    assert_eq!(desired.unresolved[0].problem().code, Code::ApiServer);
    resolve(&mut desired, &[("Thing", KindScope::Cluster)]);
    assert_eq!(declared(&desired), ["ConfigMap web/a", "Thing.example.com t"]);
    assert!(desired.is_complete());
}

#[test]
fn kind_that_the_commit_defines_has_the_scope_of_its_definition() {
    let thing = || raw("example.com/v1", "Thing", "t", "web");
    for (scope, expected) in [
        ("Namespaced", "Thing.example.com web/t"),
        ("Cluster", "Thing.example.com t"),
    ] {
        let desired = adopted(SyncKind::Root, vec![definition(scope), thing()]);
        assert!(
            declared(&desired).contains(&expected.to_owned()),
            "{:?}",
            declared(&desired)
        );
    }
    // A RepoSync cannot apply the definition, so its scope says nothing.
    let desired = adopted(SyncKind::Repo, vec![definition("Namespaced"), thing()]);
    assert_eq!(desired.unresolved.len(), 1);
}

#[test]
fn definition_defines_the_declared_kinds_of_its_group_and_name() {
    let desired = adopted(
        SyncKind::Root,
        vec![
            definition("Namespaced"),
            raw("example.com/v1", "Thing", "t", "web"),
            map("a", "web"),
        ],
    );
    let definitions: BTreeSet<ObjectId> = desired
        .declared
        .keys()
        .filter(|id| &*id.kind == "CustomResourceDefinition")
        .cloned()
        .collect();
    let kinds: Vec<String> = desired
        .kinds_defined_by(&definitions)
        .into_iter()
        .map(|gvk| format!("{}/{} {}", gvk.group, gvk.version, gvk.kind))
        .collect();
    assert_eq!(kinds, ["example.com/v1 Thing"]);
    assert!(desired.kinds_defined_by(&BTreeSet::new()).is_empty());
}

#[test]
fn new_commit_replaces_everything_of_the_one_before() {
    let mut desired = adopted(
        SyncKind::Root,
        vec![map("a", "web"), map("a", "web"), map("b", "web")],
    );
    desired.adopt(fetched(vec![map("c", "web")]), SourceSpec::for_tests(true));
    resolve(&mut desired, &[]);
    assert_eq!(declared(&desired), ["ConfigMap web/c"]);
    assert!(desired.is_complete());
}
