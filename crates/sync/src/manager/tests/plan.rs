#![expect(
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::large_stack_arrays,
    reason = "tables of cases read best as they are"
)]

use std::collections::BTreeSet;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_api::configsync::{RepoSync, RoleRefKind, RoleRefState, RootSync};
use writ_controller::tolerant::Tolerant;

use crate::{
    DefaultRole,
    manager::plan::{Plan, World, plan},
    model::{Sync, SyncId, SyncKind},
    names,
};

/// Namespaces and roles that exist, and the owner of every account; a role is `namespace/name`.
pub struct Cluster(BTreeSet<&'static str>, BTreeSet<&'static str>, Option<SyncId>);

impl World for Cluster {
    fn has_namespace(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn has_role(&self, kind: RoleRefKind, namespace: Option<&str>, name: &str) -> bool {
        let namespace = match kind {
            RoleRefKind::ClusterRole => "",
            RoleRefKind::Role => namespace.unwrap_or_default(),
        };
        self.1.contains(format!("{namespace}/{name}").as_str())
    }

    fn owner(&self, account: &str) -> Option<SyncId> {
        self.2.clone().filter(|owner| names::reconciler(owner) == account)
    }
}

/// A sync as a cache shows it.
pub fn sync(kind: SyncKind, namespace: &str, name: &str, spec: Value) -> Sync {
    let object = json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": kind.as_str(),
        "metadata": { "name": name, "namespace": namespace, "generation": 1 },
        "spec": spec,
    });
    let (sync, problem) = match kind {
        SyncKind::Root => read::<RootSync>(object),
        SyncKind::Repo => read::<RepoSync>(object),
    };
    match problem {
        Some(problem) => sync.with_problem(&problem),
        None => sync,
    }
}

fn read<K>(object: Value) -> (Sync, Option<String>)
where
    K: Resource + DeserializeOwned + Default + Into<Sync>,
{
    let tolerant: Tolerant<K> = serde_json::from_value(object).unwrap();
    let (object, problem) = tolerant.into_parts();
    (object.into(), problem)
}

pub fn root(overrides: Value) -> Sync {
    let mut spec = json!({ "git": { "repo": "/r", "auth": "none" } });
    for (key, value) in overrides.as_object().unwrap() {
        spec[key] = value.clone();
    }
    sync(SyncKind::Root, "config-management-system", "a", spec)
}

pub fn planned(sync: &Sync, default: DefaultRole) -> Plan {
    let world = Cluster(
        ["there"].into(),
        ["/view", "/cluster-admin", "there/mine"].into(),
        None,
    );
    plan(sync, default, &world)
}

fn refs(plan: &Plan) -> Vec<(String, RoleRefState)> {
    plan.roles
        .iter()
        .map(|role| {
            let namespace = role.role.namespace.clone().unwrap_or_default();
            (format!("{namespace}/{}", role.role.name), role.state)
        })
        .collect()
}

#[test]
fn roles_in_force_are_those_named_or_the_default() {
    use RoleRefState::{Bound, Invalid, RoleMissing, WaitingForNamespace};
    let view = json!({ "kind": "ClusterRole", "name": "view" });
    let view_there = json!({ "kind": "ClusterRole", "name": "view", "namespace": "there" });
    let cases: Vec<(&str, Value, Vec<(&str, RoleRefState)>)> = vec![
        ("nothing set", json!({}), vec![("/cluster-admin", Bound)]),
        (
            "an empty list",
            json!({ "override": { "roleRefs": [] }}),
            vec![("/cluster-admin", Bound)],
        ),
        (
            "an empty list, spelt otherwise",
            json!({ "overrides": { "roleRefs": [] }}),
            vec![("/cluster-admin", Bound)],
        ),
        (
            "another field only",
            json!({ "override": { "statusMode": "disabled" }}),
            vec![("/cluster-admin", Bound)],
        ),
        (
            "one",
            json!({ "override": { "roleRefs": [view] }}),
            vec![("/view", Bound)],
        ),
        (
            "the other spelling",
            json!({ "overrides": { "roleRefs": [view] }}),
            vec![("/view", Bound)],
        ),
        (
            "both, the same",
            json!({ "override": { "roleRefs": [view] }, "overrides": { "roleRefs": [view] }}),
            vec![("/view", Bound)],
        ),
        (
            "duplicates",
            json!({ "override": { "roleRefs": [view, view_there, view] }}),
            vec![("/view", Bound), ("there/view", Bound)],
        ),
        (
            "an empty namespace is none",
            json!({ "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "view", "namespace": "" }, view] }}),
            vec![("/view", Bound)],
        ),
        (
            "missing things",
            json!({ "override": { "roleRefs": [
                { "kind": "ClusterRole", "name": "gone" },
                { "kind": "ClusterRole", "name": "view", "namespace": "away" },
                { "kind": "Role", "name": "mine" },
                { "kind": "Role", "name": "mine", "namespace": "there" },
                { "kind": "Role", "name": "other", "namespace": "there" },
            ]}}),
            vec![
                ("/gone", RoleMissing),
                ("away/view", WaitingForNamespace),
                ("/mine", Invalid),
                ("there/mine", Bound),
                ("there/other", RoleMissing),
            ],
        ),
        // A contradiction grants no more than either spelling, and never the default.
        (
            "both, different",
            json!({ "override": { "roleRefs": [view] }, "overrides": { "roleRefs": [view_there] }}),
            vec![],
        ),
        (
            "both, one empty",
            json!({ "override": { "roleRefs": [] }, "overrides": { "roleRefs": [view] }}),
            vec![],
        ),
    ];
    for (case, overrides, expected) in cases {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(name, state)| (name.to_owned(), state))
            .collect();
        assert_eq!(
            refs(&planned(&root(overrides), DefaultRole::ClusterAdmin)),
            expected,
            "{case}"
        );
    }
    assert!(planned(&root(json!({})), DefaultRole::None).roles.is_empty());
    let both = json!({ "override": { "roleRefs": [view] }, "overrides": { "roleRefs": [view_there] }});
    let problem = planned(&root(both), DefaultRole::ClusterAdmin).problem.unwrap();
    assert!(problem.contains("differ"), "{problem}");
}

#[test]
fn spec_that_does_not_parse_has_no_roles() {
    let sync = sync(
        SyncKind::Root,
        "config-management-system",
        "a",
        json!({ "git": 3 }),
    );
    let plan = planned(&sync, DefaultRole::ClusterAdmin);
    assert!(plan.roles.is_empty());
    assert!(plan.problem.is_some());
}

#[test]
fn repo_sync_has_the_base_role_only() {
    let spec = json!({ "git": { "repo": "/r", "auth": "token", "secretRef": { "name": "s" }, "caCertSecretRef": { "name": "c" }}});
    let sync = sync(SyncKind::Repo, "team", "repo-sync", spec);
    let plan = planned(&sync, DefaultRole::ClusterAdmin);
    assert!(plan.roles.is_empty() && plan.problem.is_none());
    assert_eq!(plan.base_role.metadata.namespace.as_deref(), Some("team"));
    assert_eq!(
        plan.account.metadata.namespace.as_deref(),
        Some("config-management-system")
    );
    let rules = plan.base_role.rules.unwrap();
    assert!(rules.iter().all(|rule| rule.resource_names.is_some()));
    let secrets = rules.last().unwrap();
    assert_eq!(
        secrets.resource_names.as_deref(),
        Some(&["c".to_owned(), "s".to_owned()][..])
    );
    assert_eq!(secrets.verbs, ["get"]);
}

#[test]
fn base_rights_never_include_writing_a_sync() {
    for rule in planned(&root(json!({})), DefaultRole::ClusterAdmin)
        .base_role
        .rules
        .unwrap()
    {
        let resources = rule.resources.unwrap();
        if resources.iter().any(|resource| resource == "rootsyncs") {
            assert_eq!(rule.verbs, ["get", "list", "watch"]);
        }
        assert_eq!(rule.resource_names.unwrap(), ["a"]);
    }
}

#[test]
fn problem_names_the_field() {
    let git = |git: Value| root(json!({ "git": git }));
    let cases = [
        (
            sync(SyncKind::Root, "elsewhere", "a", json!({})),
            "config-management-system",
        ),
        (
            sync(SyncKind::Repo, "config-management-system", "a", json!({})),
            "must not be",
        ),
        (
            sync(
                SyncKind::Root,
                "config-management-system",
                &"a".repeat(39),
                json!({}),
            ),
            "38",
        ),
        (
            sync(SyncKind::Root, "config-management-system", "a", json!({})),
            "spec.git is missing",
        ),
        (root(json!({ "sourceFormat": "tree" })), "spec.sourceFormat"),
        (git(json!({ "repo": " ", "auth": "none" })), "spec.git.repo"),
        (git(json!({ "repo": "/r", "auth": "token" })), "secretRef"),
        (
            git(json!({ "repo": "/r", "auth": "none", "secretRef": { "name": "s" }})),
            "takes no",
        ),
    ];
    for (sync, expected) in cases {
        let problem = planned(&sync, DefaultRole::ClusterAdmin).problem.unwrap();
        assert!(
            problem.starts_with("KNV1061") && problem.contains(expected),
            "{problem}"
        );
    }
}

#[test]
fn binding_of_a_role_always_has_the_same_name() {
    let plan = planned(&root(json!({})), DefaultRole::ClusterAdmin);
    assert_eq!(
        plan.roles[0].binding,
        planned(&root(json!({})), DefaultRole::ClusterAdmin).roles[0].binding
    );
    assert!(plan.roles[0].binding.starts_with("root-reconciler-a:"));
    assert_eq!(
        names::id_of(plan.base_binding.metadata.labels.as_ref().unwrap()),
        Some(root(json!({})).id)
    );
}

#[test]
fn sync_whose_account_belongs_to_another_is_refused() {
    let git = json!({ "git": { "repo": "https://example.com/x", "auth": "none" }});
    let first = sync(SyncKind::Repo, "a", "b", git.clone());
    let second = sync(SyncKind::Repo, "a-b-1", "repo-sync", git.clone());
    assert_eq!(names::reconciler(&first.id), names::reconciler(&second.id));
    let world = Cluster(BTreeSet::new(), BTreeSet::new(), Some(first.id.clone()));
    assert!(!plan(&first, DefaultRole::None, &world).refused);
    let refused = plan(&second, DefaultRole::None, &world);
    let problem = refused.problem.unwrap();
    assert!(refused.refused && problem.starts_with("KNV1061"), "{problem}");
    assert!(problem.contains("RepoSync/a/b"), "{problem}");
    // A sync of another name is not refused.
    let third = sync(SyncKind::Repo, "a-b-1", "c", git);
    assert!(!plan(&third, DefaultRole::None, &world).refused);
}

#[test]
fn sync_whose_name_fits_no_label_is_refused() {
    let namespace = "config-management-system";
    let cases = [
        (SyncKind::Root, namespace, 38, false),
        (SyncKind::Root, namespace, 39, true),
        (SyncKind::Repo, "team", 41, false),
        (SyncKind::Repo, "team", 42, true),
    ];
    for (kind, namespace, length, refused) in cases {
        let plan = planned(
            &sync(kind, namespace, &"a".repeat(length), json!({})),
            DefaultRole::ClusterAdmin,
        );
        assert_eq!(plan.refused, refused, "{kind:?} {length}");
        // A label has at most 63 characters.
        let fits = plan
            .inventory
            .metadata
            .labels
            .unwrap()
            .values()
            .all(|value| value.len() <= 63);
        assert!(fits || refused, "{kind:?} {length}");
    }
}
