//! From a spec to the objects that it wants. Each entry is built on its own: a bad one is a problem, the rest goes on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::RoleRef,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::{ResourceExt as _, core::SelectorExt as _};
use serde_json::Value;
use writ_api::{
    rbac::{ClusterPermission, cluster_permission::RBAC_GROUP},
    work::ManifestConfig,
    writ::{
        ADOPT_ANNOTATION, BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE,
    },
};

pub use super::id::Id;
use super::{
    grant_names::GrantNames,
    manifest::{self, Asked, Content},
    named::{hub_role_id, is_built_in},
    own::{self, Lost},
    plan::Observation,
    validate::{self, Problem, filled},
};

/// Why an object is in the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The permission wants it.
    Deliver,
    /// A namespace grant, which the agent expands.
    Grant,
    /// Only its existence is looked at (`validate: true`).
    Check,
}

/// One object that the work carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Which object.
    pub id: Id,
    /// The entry that wants it.
    pub field: String,
    /// Why.
    pub purpose: Purpose,
    /// The object.
    pub manifest: Value,
    /// How the agent treats it, if not by default.
    pub config: Option<ManifestConfig>,
}

/// What a spec comes to.
#[derive(Debug, Default)]
pub struct Built {
    /// The objects, in the order in which upstream writes them.
    pub items: Vec<Item>,
    /// The entries that could not be built.
    pub problems: Vec<Problem>,
    /// The subjects that are not there, in words.
    pub missing: Vec<String>,
    /// Entries with a selector that the hub evaluated, and how many namespaces it selected.
    pub selected_by_hub: Vec<(String, usize)>,
    /// What the hub could not read, so that what depends on it stays as it was.
    pub unread: BTreeSet<&'static str>,
    /// The kinds of roles that are to be looked at and cannot be yet (`validate: true`).
    pub unchecked: BTreeSet<&'static str>,
    /// The kinds of roles that nobody can look for by their names, and why (`validate: true`).
    pub unsearchable: BTreeSet<(&'static str, String)>,
    /// Subjects, as a person names them, in the order of the spec.
    pub subjects: Vec<String>,
}

/// Builds everything that the spec wants.
pub fn build(seen: &Observation<'_>) -> Built {
    let mut builder = Builder {
        seen,
        name: seen.permission.name_any(),
        adopt: seen
            .permission
            .annotations()
            .get(ADOPT_ANNOTATION)
            .is_some_and(|v| v == "true"),
        grants: GrantNames::assign(seen.permission, seen.works),
        out: Built::default(),
        taken: BTreeMap::new(),
        lost: Vec::new(),
    };
    builder.cluster_role();
    builder.cluster_role_bindings();
    builder.roles();
    builder.role_bindings();
    builder.hub_roles();
    let problems = own::withhold(seen.permission, &mut builder.out.items, &builder.lost);
    builder.out.problems.extend(problems);
    if seen.permission.spec.validate == Some(true) {
        builder.checks();
    }
    builder.out
}

/// Makes objects of entries, one after the other.
pub(super) struct Builder<'a> {
    pub(super) seen: &'a Observation<'a>,
    pub(super) name: String,
    adopt: bool,
    grants: GrantNames,
    pub(super) out: Built,
    /// Which entry made an object.
    pub(super) taken: BTreeMap<Id, String>,
    /// The roles that cannot be made.
    lost: Vec<Lost>,
}

impl<'a> Builder<'a> {
    pub(super) fn permission(&self) -> &'a ClusterPermission {
        self.seen.permission
    }

    fn cluster_role(&mut self) {
        if let Some(role) = &self.permission().spec.cluster_role {
            let name = self.name.clone();
            self.deliver(
                "spec.clusterRole",
                "ClusterRole",
                "",
                name,
                Content::Rules(&role.rules),
            );
        }
    }

    fn cluster_role_bindings(&mut self) {
        for (field, binding) in validate::cluster_role_bindings(self.permission()) {
            let problems = validate::cluster_role_binding(&field, binding);
            let bad = !problems.is_empty();
            self.out.problems.extend(problems);
            let subjects = self.subjects(
                &field,
                binding.subject.as_ref(),
                binding.subjects.as_deref(),
                false,
            );
            if bad {
                continue;
            }
            let own = RoleRef {
                kind: "ClusterRole".into(),
                name: self.name.clone(),
                ..RoleRef::default()
            };
            let role = role_ref(binding.role_ref.as_ref().unwrap_or(&own));
            let name = filled(binding.name.as_deref()).unwrap_or(&self.name).to_owned();
            self.deliver(
                &field,
                "ClusterRoleBinding",
                "",
                name,
                Content::Binding(&role, &subjects),
            );
        }
    }

    fn roles(&mut self) {
        for (i, role) in self.permission().spec.roles.iter().enumerate() {
            let field = format!("spec.roles[{i}]");
            let problems = validate::role(&field, role);
            if problems.is_empty() {
                self.place(
                    &field,
                    "Role",
                    &self.name.clone(),
                    role.namespace.as_deref(),
                    role.namespace_selector.as_ref(),
                    Content::Rules(&role.rules),
                );
            } else if role.namespace_selector.is_some() || filled(role.namespace.as_deref()).is_none() {
                // It may be meant for any namespace. One whose name cannot be has no bindings either.
                self.lose(&field, "Role", "", &self.name.clone());
            }
            self.out.problems.extend(problems);
        }
    }

    fn role_bindings(&mut self) {
        for (i, binding) in self.permission().spec.role_bindings.iter().enumerate() {
            let field = format!("spec.roleBindings[{i}]");
            let problems = validate::role_binding(&field, binding);
            let bad = !problems.is_empty();
            self.out.problems.extend(problems);
            let subjects = self.subjects(
                &field,
                binding.subject.as_ref(),
                binding.subjects.as_deref(),
                true,
            );
            if bad {
                continue;
            }
            let role = RoleRef {
                api_group: Some(RBAC_GROUP.into()),
                kind: binding.role_ref.kind.clone(),
                name: filled(binding.role_ref.name.as_deref())
                    .unwrap_or(&self.name)
                    .to_owned(),
            };
            let name = filled(binding.name.as_deref()).unwrap_or(&self.name).to_owned();
            self.place(
                &field,
                "RoleBinding",
                &name,
                binding.namespace.as_deref(),
                binding.namespace_selector.as_ref(),
                Content::Binding(&role, &subjects),
            );
        }
    }

    fn hub_roles(&mut self) {
        for (i, reference) in self.permission().spec.role_refs.iter().enumerate() {
            let field = format!("spec.roleRefs[{i}]");
            let problems = validate::hub_role_ref(&field, reference);
            let id = hub_role_id(reference);
            let namespace = id.namespace.as_str();
            if !problems.is_empty() {
                self.out.problems.extend(problems);
                self.lose(
                    &field,
                    &id.kind,
                    if id.kind == "Role" { namespace } else { "" },
                    &id.name,
                );
                continue;
            }
            match self.seen.hub_roles.get(&id) {
                // Whoever refers to it means the one that the cluster has: what binds it is delivered.
                there
                    if is_built_in(&id.kind, namespace, &id.name)
                        || there.is_some_and(|role| role.built_in) =>
                {
                    self.problem(
                        &field,
                        format!("{id} is one that Kubernetes brings: every cluster has its own, which is never overwritten, and a binding finds it by its name; remove the reference"),
                    );
                }
                None if self.seen.unread.roles => {
                    self.out.unread.insert("Roles and ClusterRoles");
                    if let Some(rules) = self.rules_before(&id) {
                        self.deliver(
                            &field,
                            &id.kind,
                            namespace,
                            id.name.clone(),
                            Content::Rules(&rules),
                        );
                    }
                }
                None => {
                    self.lose(&field, &id.kind, namespace, &id.name);
                    self.problem(
                        &field,
                        format!("the hub has no {id}: make it, or remove the reference"),
                    );
                }
                Some(role) => {
                    self.deliver(
                        &field,
                        &id.kind,
                        namespace,
                        id.name.clone(),
                        Content::Rules(&role.rules),
                    );
                }
            }
        }
    }

    /// One object in a namespace, or one in each namespace that a selector selects.
    fn place(
        &mut self,
        field: &str,
        kind: &'static str,
        name: &str,
        namespace: Option<&str>,
        labels: Option<&LabelSelector>,
        content: Content<'_>,
    ) {
        let Some(labels) = labels else {
            let namespace = filled(namespace).unwrap_or_default();
            self.deliver(field, kind, namespace, name.to_owned(), content);
            return;
        };
        if self.seen.by_agent {
            self.grant(field, kind, name, labels, content);
            return;
        }
        let selected: Vec<String> = if let Some(namespaces) = self.seen.hub_namespaces {
            let selected = selected(field, namespaces, labels);
            selected.into_iter().map(ToOwned::to_owned).collect()
        } else {
            self.out.unread.insert("Namespaces");
            self.namespaces_before(kind, name)
        };
        self.out.selected_by_hub.push((field.to_owned(), selected.len()));
        for namespace in selected {
            self.deliver(field, kind, &namespace, name.to_owned(), content);
        }
    }

    /// A grant that the agent expands where the namespaces are.
    fn grant(
        &mut self,
        field: &str,
        kind: &'static str,
        name: &str,
        labels: &LabelSelector,
        content: Content<'_>,
    ) {
        // There is one for every entry with a selector.
        let Some(grant) = self.grants.of(kind, name, labels) else {
            return;
        };
        let id = Id {
            kind: "NamespaceGrant".into(),
            namespace: String::new(),
            name: grant.clone(),
        };
        if is_built_in(kind, "", name) {
            self.lose(field, kind, "", name);
            self.built_in(field, &format!("{kind} {name}"));
            return;
        }
        if name.starts_with('.') {
            // The definition of a NamespaceGrant keeps `.` and `..` out by that, so the agent could not even store it.
            let message = format!(
                "is {name:?}; where a namespaceSelector selects, a name cannot begin with a dot: choose another name"
            );
            self.problem(&format!("{field}.name"), message);
            return;
        }
        let what = format!("a {kind} {name} for the same selector");
        let Some(id) = self.claim(field, id, &what) else {
            return;
        };
        // Also one whose subjects are not there has the name: it would take it from another when they come.
        let before = self.as_before(&id, content);
        let Some(content) = content.with(before.as_deref()).filter(Content::grants) else {
            return;
        };
        self.out.items.push(Item {
            field: field.to_owned(),
            purpose: Purpose::Grant,
            manifest: manifest::grant(
                self.metadata(&id, content),
                name,
                labels,
                Asked {
                    adopt: self.adopt,
                    validate: self.permission().spec.validate == Some(true),
                },
                content,
            ),
            config: Some(manifest::grant_config(&id.name)),
            id,
        });
    }

    fn deliver(&mut self, field: &str, kind: &str, namespace: &str, name: String, content: Content<'_>) {
        let id = Id {
            kind: kind.into(),
            namespace: namespace.into(),
            name,
        };
        let what = id.to_string();
        if is_built_in(kind, namespace, &id.name) {
            self.lose(field, kind, namespace, &id.name);
            self.built_in(field, &what);
            return;
        }
        let Some(id) = self.claim(field, id, &what) else {
            return;
        };
        let before = self.as_before(&id, content);
        let Some(content) = content.with(before.as_deref()).filter(Content::grants) else {
            return;
        };
        self.out.items.push(Item {
            field: field.to_owned(),
            purpose: Purpose::Deliver,
            manifest: manifest::object(self.metadata(&id, content), !namespace.is_empty(), content),
            config: None,
            id,
        });
    }

    /// The id, if no entry before has made this object.
    fn claim(&mut self, field: &str, id: Id, what: &str) -> Option<Id> {
        let Some(first) = self.taken.get(&id) else {
            self.taken.insert(id.clone(), field.to_owned());
            return Some(id);
        };
        let way_out = if what.contains("Binding") {
            "give each its own name"
        } else {
            "keep one of them"
        };
        let message = format!("{first} and {field} both make {what}; only {first} is delivered: {way_out}");
        self.problem(&format!("{field}.name"), message);
        None
    }

    fn metadata(&self, id: &Id, content: Content<'_>) -> ObjectMeta {
        let mut guards = BTreeMap::from([(ON_CONFLICT_ANNOTATION.to_owned(), ON_CONFLICT_REFUSE.to_owned())]);
        if matches!(content, Content::Binding(role, _) if own::defines(self.seen, role, id)) {
            guards.insert(BOUND_ROLE_ANNOTATION.to_owned(), BOUND_ROLE_OWN.to_owned());
        }
        ObjectMeta {
            name: Some(id.name.clone()),
            namespace: Some(id.namespace.clone()).filter(|ns| !ns.is_empty()),
            annotations: (!self.adopt).then_some(guards),
            ..ObjectMeta::default()
        }
    }

    /// Remembers a role that cannot be made. Of a binding nobody asks.
    fn lose(&mut self, field: &str, kind: &str, namespace: &str, name: &str) {
        self.lost.push(Lost {
            role: Id {
                kind: kind.into(),
                namespace: namespace.into(),
                name: name.into(),
            },
            field: field.to_owned(),
        });
    }

    fn built_in(&mut self, field: &str, what: &str) {
        let message = format!(
            "{what} is one that Kubernetes brings: it is never overwritten on a managed cluster; choose another name"
        );
        self.problem(field, message);
    }

    fn problem(&mut self, field: &str, message: String) {
        self.out.problems.push(Problem::new(field, message));
    }
}

fn role_ref(role: &RoleRef) -> RoleRef {
    RoleRef {
        api_group: Some(RBAC_GROUP.into()),
        ..role.clone()
    }
}

/// The namespaces of the hub that a selector selects.
pub(super) fn selected<'a>(
    field: &str,
    namespaces: &'a [(String, BTreeMap<String, String>)],
    labels: &LabelSelector,
) -> Vec<&'a str> {
    // Validated before: one that cannot be evaluated selects nothing.
    let Ok(selector) = validate::selector(field, labels) else {
        return Vec::new();
    };
    namespaces
        .iter()
        .filter(|(_, labels)| selector.matches(labels))
        .map(|(name, _)| name.as_str())
        .collect()
}
