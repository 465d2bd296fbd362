//! Tables: what is delivered in which order, and what is recorded.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use writ_api::work::{AppliedResource, ManifestWorkSpec};
use writ_controller::{ServedKind, queue::Next};

use super::{
    delivery::{Delivery, Unfinished},
    manifests, records,
};
use crate::work::model::{ManifestOutcome, ManifestReport, PlannedManifest, Refused, ServedKinds, Verdict};

const KINDS: [(&str, &str, &str); 7] = [
    ("", "ConfigMap", "configmaps"),
    ("", "Namespace", "namespaces"),
    ("rbac.authorization.k8s.io", "Role", "roles"),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
    ("writ.dev", "NamespaceGrant", "namespacegrants"),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
];

fn served() -> ServedKinds {
    let served = KINDS.map(|(group, kind, plural)| {
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        let served = ServedKind {
            resource: ApiResource::from_gvk_with_plural(&gvk, plural),
            namespaced: !matches!(
                kind,
                "Namespace" | "ClusterRole" | "NamespaceGrant" | "CustomResourceDefinition"
            ),
        };
        (gvk, Ok(Some(served.into())))
    });
    served.into()
}

/// Objects by kind and name, written `ConfigMap/a`; all of them in one namespace, if their kind has any.
fn objects(names: &[&str]) -> Vec<PlannedManifest> {
    let object = |name: &&str| -> Value {
        let (kind, name) = name.split_once('/').unwrap();
        let group = KINDS
            .iter()
            .find(|known| known.1 == kind)
            .map_or("unknown.com", |known| known.0);
        let api_version = if group.is_empty() {
            "v1".into()
        } else {
            format!("{group}/v1")
        };
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "n", "name": name}})
    };
    let manifests_ = names.iter().map(object).collect::<Vec<_>>();
    planned(json!({"workload": {"manifests": manifests_}}))
}

fn planned(spec: Value) -> Vec<PlannedManifest> {
    let spec: ManifestWorkSpec = serde_json::from_value(spec).unwrap();
    manifests(&spec, &served())
}

fn records_of(names: &[&str]) -> Vec<AppliedResource> {
    let objects = objects(names);
    objects
        .iter()
        .map(|object| object.target.as_ref().unwrap().to_record("uid"))
        .collect()
}

fn names(records: &[AppliedResource]) -> Vec<String> {
    let kind = |record: &AppliedResource| KINDS.iter().find(|known| known.2 == record.resource).unwrap().1;
    let mut names: Vec<String> = records
        .iter()
        .map(|record| format!("{}/{}", kind(record), record.name))
        .collect();
    names.sort();
    names
}

fn waves(delivery: &Delivery<'_>) -> Vec<Vec<String>> {
    let name = |manifest: &&PlannedManifest| format!("{}/{}", manifest.meta.kind, manifest.meta.name);
    delivery
        .waves
        .iter()
        .map(|wave| wave.iter().map(name).collect())
        .collect()
}

struct Steps {
    what: &'static str,
    before: &'static [&'static str],
    manifests: &'static [&'static str],
    /// Whether the gate allows the revision.
    allowed: bool,
    record_first: &'static [&'static str],
    waves: &'static [&'static [&'static str]],
    prunes: &'static [&'static str],
    revocations: &'static [&'static str],
    grant_revocations: &'static [&'static str],
}

const NOTHING: Steps = Steps {
    what: "an empty work",
    before: &[],
    manifests: &[],
    allowed: true,
    record_first: &[],
    waves: &[],
    prunes: &[],
    revocations: &[],
    grant_revocations: &[],
};

#[test]
fn delivery_grants_first_and_revokes_last() {
    for case in [
        NOTHING,
        Steps {
            what: "a new work: all is recorded first, and written by rank",
            manifests: &[
                "RoleBinding/b",
                "ConfigMap/a",
                "Role/r",
                "Namespace/n",
                "ClusterRole/c",
            ],
            record_first: &[
                "ClusterRole/c",
                "ConfigMap/a",
                "Namespace/n",
                "Role/r",
                "RoleBinding/b",
            ],
            waves: &[
                &["Namespace/n"],
                &["Role/r", "ClusterRole/c"],
                &["RoleBinding/b"],
                &["ConfigMap/a"],
            ],
            ..NOTHING
        },
        Steps {
            what: "an unchanged work",
            before: &["ConfigMap/a", "Role/r"],
            manifests: &["ConfigMap/a", "Role/r"],
            waves: &[&["Role/r"], &["ConfigMap/a"]],
            ..NOTHING
        },
        Steps {
            what: "a binding is replaced by another: the new one is written before the old one goes",
            before: &["RoleBinding/old"],
            manifests: &["RoleBinding/new"],
            record_first: &["RoleBinding/new"],
            waves: &[&["RoleBinding/new"]],
            revocations: &["RoleBinding/old"],
            ..NOTHING
        },
        Steps {
            what: "every kind of object is dropped",
            before: &[
                "ConfigMap/a",
                "Role/r",
                "RoleBinding/b",
                "ClusterRole/c",
                "NamespaceGrant/g",
                "Namespace/n",
            ],
            prunes: &["ConfigMap/a", "Namespace/n"],
            revocations: &["ClusterRole/c", "Role/r", "RoleBinding/b"],
            grant_revocations: &["NamespaceGrant/g"],
            ..NOTHING
        },
        Steps {
            what: "a grant becomes a binding: the grant goes last, when the record says whose the binding is",
            before: &["NamespaceGrant/g", "RoleBinding/other"],
            manifests: &["RoleBinding/g"],
            record_first: &["RoleBinding/g"],
            waves: &[&["RoleBinding/g"]],
            revocations: &["RoleBinding/other"],
            grant_revocations: &["NamespaceGrant/g"],
            ..NOTHING
        },
        Steps {
            what: "a refused revision: nothing of it is recorded, and what it dropped is revoked all the same",
            before: &["RoleBinding/old", "ConfigMap/old", "NamespaceGrant/old"],
            manifests: &["RoleBinding/new"],
            allowed: false,
            waves: &[&["RoleBinding/new"]],
            prunes: &["ConfigMap/old"],
            revocations: &["RoleBinding/old"],
            grant_revocations: &["NamespaceGrant/old"],
            ..NOTHING
        },
        Steps {
            what: "a kind that is not served: no object of its group and name is deleted",
            before: &["RoleBinding/a", "RoleBinding/b"],
            manifests: &["Toy/a"],
            waves: &[&["Toy/a"]],
            revocations: &["RoleBinding/a", "RoleBinding/b"],
            ..NOTHING
        },
    ] {
        let manifests = objects(case.manifests);
        let verdict = if case.allowed {
            Verdict::default()
        } else {
            Verdict::refuse_all(&manifests, "no")
        };
        let delivery = Delivery::plan(&manifests, &verdict, &records_of(case.before), false);
        assert_eq!(names(&delivery.record_first), case.record_first, "{}", case.what);
        assert_eq!(waves(&delivery), case.waves, "{}", case.what);
        assert_eq!(names(&delivery.prunes), case.prunes, "{}", case.what);
        assert_eq!(names(&delivery.revocations), case.revocations, "{}", case.what);
        assert_eq!(
            names(&delivery.grant_revocations),
            case.grant_revocations,
            "{}",
            case.what
        );
    }
}

#[test]
fn unmapped_manifest_keeps_objects_of_its_group_and_name() {
    let mut manifests = objects(&["RoleBinding/a"]);
    manifests[0].target = Err("the server does not answer".into());
    let dropped = records::dropped(
        &records_of(&["RoleBinding/a", "Role/a", "RoleBinding/b"]),
        &manifests,
    );
    assert_eq!(names(&dropped), ["RoleBinding/b"]);
}

/// The ConfigMaps `a`, `b`, `c` and `d`, of which `b` is only read.
fn with_read_only() -> Vec<PlannedManifest> {
    let config_map =
        |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
    planned(json!({
        "workload": {"manifests": [config_map("a"), config_map("b"), config_map("c"), config_map("d")]},
        "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "n", "name": "b"},
            "updateStrategy": {"type": "ReadOnly"}}],
    }))
}

#[test]
fn refused_read_and_known_objects_are_not_recorded_ahead() {
    let manifests = with_read_only();
    let mut verdict = Verdict::default();
    verdict.refused.insert(2, Refused::Denied("no".into()));
    let known = records_of(&["ConfigMap/a"]);
    let ahead = |is_complete| records::new_records(&manifests, &verdict, &known, is_complete);
    assert_eq!(names(&ahead(false)), ["ConfigMap/d"]);
    assert_eq!(ahead(true), []);
}

#[test]
fn record_holds_what_was_or_may_have_been_written() {
    let record = |name: &str, uid: &str| AppliedResource {
        uid: uid.into(),
        ..records_of(&[name]).remove(0)
    };
    let manifests = with_read_only();
    let outcome = |ordinal: usize, uid: Option<&str>, is_absent: bool| ManifestOutcome {
        ordinal,
        report: ManifestReport {
            meta: manifests[ordinal].meta.clone(),
            applied: None,
            available: None,
            content: None,
        },
        recorded: uid.map(|uid| manifests[ordinal].target.as_ref().unwrap().to_record(uid)),
        is_absent,
        failed: uid.is_none(),
        waits_for: None,
    };
    // Written; only read; certainly not written; not known.
    let outcomes = [
        outcome(0, Some("1"), false),
        outcome(1, Some("2"), false),
        outcome(2, None, true),
        outcome(3, None, false),
    ];
    let before = ["a", "c", "d", "gone"].map(|name| record(&format!("ConfigMap/{name}"), ""));
    let still_present = [record("ConfigMap/going", "9")];
    let records = records::records_after(&before, &outcomes, &manifests, &still_present).applied_resources;
    let mut wanted = [
        record("ConfigMap/a", "1"),
        record("ConfigMap/d", ""),
        record("ConfigMap/going", "9"),
    ];
    wanted.sort();
    assert_eq!(records, wanted);
}

#[test]
fn next_attempt_comes_when_it_can_help() {
    let pause = std::time::Duration::from_millis(50);
    let done = Unfinished::default();
    for (unfinished, next) in [
        (done, Next::Wait),
        (Unfinished { failed: true, ..done }, Next::Retry),
        (
            Unfinished {
                unsettled: true,
                ..done
            },
            Next::Retry,
        ),
        (
            Unfinished {
                recheck_after: Some(pause),
                unsettled: true,
                ..done
            },
            Next::After(pause),
        ),
        (
            Unfinished {
                recheck_after: Some(pause),
                still_present: true,
                ..done
            },
            Next::Retry,
        ),
    ] {
        assert_eq!(unfinished.next(), next, "{unfinished:?}");
    }
}

#[test]
fn kind_defined_by_the_same_work_is_to_come() {
    let definition = |kind: &str, plural: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true}]}})
    };
    let toy =
        json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "a", "namespace": "n"}});
    for (what, definition, wanted) in [
        ("defined", definition("Toy", "toys"), Some("toys")),
        ("another kind", definition("Other", "toys"), None),
        (
            "a plural that would change the path",
            definition("Toy", "toys/x"),
            None,
        ),
    ] {
        let manifests = planned(json!({"workload": {"manifests": [definition, toy]}}));
        let target = manifests[1].target.as_ref().ok();
        let plural = target.map(|target| target.kind.resource.plural.as_str());
        assert_eq!(plural, wanted, "{what}");
        if let Some(target) = target {
            assert!(target.kind_to_come && target.namespace.is_empty());
        }
    }
}
