//! The entries of a spec, with what they leave out filled in, in the order in which OCM writes their objects.

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use writ_api::rbac::{
    ClusterPermission,
    cluster_permission::{ClusterRoleBinding, HubRoleRef, RBAC_GROUP, Role, RoleBinding},
};

use super::validate::{self, filled};
use crate::cluster_permission::model::{ObjectId, Problem, object_id};

/// One entry of a spec.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The field, such as `spec.roleBindings[1]`.
    pub field: String,
    /// The kind of its objects.
    pub kind: &'a str,
    /// The namespace of its object; empty for a cluster-scoped one, and where a selector selects.
    pub namespace: &'a str,
    /// Selects the namespaces of its objects.
    pub selector: Option<&'a LabelSelector>,
    /// The name of its objects.
    pub name: &'a str,
    /// What its objects say.
    pub says: Says<'a>,
    /// Why it makes no object at all, its subjects aside.
    pub problems: Vec<Problem>,
}

/// What the objects of an entry say.
#[derive(Clone, Debug)]
pub enum Says<'a> {
    /// The rules of a role.
    Rules(&'a [PolicyRule]),
    /// The rules of the hub's role of that kind, namespace and name.
    HubRole,
    /// A binding.
    Binding {
        /// The role that is bound.
        role: RoleRef,
        /// Whether the entry leaves out the role's name, and so means a role of this permission.
        own_role: bool,
        /// Its subjects.
        subjects: Vec<NamedSubject<'a>>,
    },
}

/// A subject of an entry.
#[derive(Clone, Debug)]
pub struct NamedSubject<'a> {
    /// The subject, as written.
    pub subject: &'a Subject,
    /// Why it is left out.
    pub problems: Vec<Problem>,
}

impl Entry<'_> {
    /// The object of an entry without a selector.
    pub fn id(&self) -> ObjectId {
        self.id_in(self.namespace)
    }

    /// The object in a namespace that the selector selects.
    pub fn id_in(&self, namespace: &str) -> ObjectId {
        object_id(self.kind, namespace, self.name)
    }

    /// Whether it is a binding that leaves out the name of its role.
    pub fn binds_own_role(&self) -> bool {
        matches!(self.says, Says::Binding { own_role: true, .. })
    }

    /// Its subjects; a role has none.
    pub fn subjects(&self) -> &[NamedSubject<'_>] {
        match &self.says {
            Says::Binding { subjects, .. } => subjects,
            Says::Rules(_) | Says::HubRole => &[],
        }
    }

    /// What is wrong with its subjects.
    pub fn subject_problems(&self) -> Vec<Problem> {
        let is_binding = matches!(self.says, Says::Binding { .. });
        let none = (is_binding && self.subjects().is_empty()).then(|| validate::no_subjects(&self.field));
        let single = self.subjects().iter().flat_map(|named| named.problems.clone());
        none.into_iter().chain(single).collect()
    }
}

/// The entries of a spec.
pub fn entries(permission: &ClusterPermission) -> Vec<Entry<'_>> {
    let own = permission.metadata.name.as_deref().unwrap_or_default();
    let spec = &permission.spec;
    let mut entries = Vec::new();
    entries.extend(spec.cluster_role.as_ref().map(|role| Entry {
        field: "spec.clusterRole".into(),
        kind: "ClusterRole",
        namespace: "",
        selector: None,
        name: own,
        says: Says::Rules(&role.rules),
        problems: Vec::new(),
    }));
    // The single binding counts only where the list is empty.
    let bindings = &spec.cluster_role_bindings;
    let single = spec.cluster_role_binding.iter().filter(|_| bindings.is_empty());
    entries
        .extend(single.map(|binding| cluster_role_binding("spec.clusterRoleBinding".into(), own, binding)));
    entries.extend(
        bindings
            .iter()
            .enumerate()
            .map(|(i, binding)| cluster_role_binding(format!("spec.clusterRoleBindings[{i}]"), own, binding)),
    );
    let roles = spec.roles.iter().enumerate();
    entries.extend(roles.map(|(i, entry)| role(format!("spec.roles[{i}]"), own, entry)));
    let bindings = spec.role_bindings.iter().enumerate();
    entries.extend(bindings.map(|(i, entry)| role_binding(format!("spec.roleBindings[{i}]"), own, entry)));
    let references = spec.role_refs.iter().enumerate();
    entries.extend(references.map(|(i, entry)| hub_role(format!("spec.roleRefs[{i}]"), entry)));
    entries
}

fn cluster_role_binding<'a>(field: String, own: &'a str, binding: &'a ClusterRoleBinding) -> Entry<'a> {
    let named = binding.role_ref.as_ref();
    let role = RoleRef {
        api_group: Some(RBAC_GROUP.into()),
        kind: named.map_or("ClusterRole", |role| &role.kind).to_owned(),
        name: named.map_or(own, |role| &role.name).to_owned(),
    };
    let subjects = subjects(
        &field,
        binding.subject.as_ref(),
        binding.subjects.as_deref(),
        false,
    );
    Entry {
        kind: "ClusterRoleBinding",
        namespace: "",
        selector: None,
        name: filled(binding.name.as_deref()).unwrap_or(own),
        says: Says::Binding {
            role,
            own_role: named.is_none(),
            subjects,
        },
        problems: validate::cluster_role_binding(&field, binding),
        field,
    }
}

fn role<'a>(field: String, own: &'a str, role: &'a Role) -> Entry<'a> {
    Entry {
        kind: "Role",
        namespace: filled(role.namespace.as_deref()).unwrap_or_default(),
        selector: role.namespace_selector.as_ref(),
        name: own,
        says: Says::Rules(&role.rules),
        problems: validate::role(&field, role),
        field,
    }
}

fn role_binding<'a>(field: String, own: &'a str, binding: &'a RoleBinding) -> Entry<'a> {
    let named = filled(binding.role_ref.name.as_deref());
    let role = RoleRef {
        api_group: Some(RBAC_GROUP.into()),
        kind: binding.role_ref.kind.clone(),
        name: named.unwrap_or(own).to_owned(),
    };
    let subjects = subjects(
        &field,
        binding.subject.as_ref(),
        binding.subjects.as_deref(),
        true,
    );
    Entry {
        kind: "RoleBinding",
        namespace: filled(binding.namespace.as_deref()).unwrap_or_default(),
        selector: binding.namespace_selector.as_ref(),
        name: filled(binding.name.as_deref()).unwrap_or(own),
        says: Says::Binding {
            role,
            own_role: named.is_none(),
            subjects,
        },
        problems: validate::role_binding(&field, binding),
        field,
    }
}

fn hub_role(field: String, reference: &HubRoleRef) -> Entry<'_> {
    Entry {
        kind: &reference.kind,
        namespace: filled(reference.namespace.as_deref()).unwrap_or_default(),
        selector: None,
        name: &reference.name,
        says: Says::HubRole,
        problems: validate::hub_role_ref(&field, reference),
        field,
    }
}

/// The subjects that count: the list, or the single one where the list is empty.
fn subjects<'a>(
    field: &str,
    single: Option<&'a Subject>,
    list: Option<&'a [Subject]>,
    namespaced: bool,
) -> Vec<NamedSubject<'a>> {
    let named = |field: &str, subject: &'a Subject| NamedSubject {
        subject,
        problems: validate::subject(field, subject, namespaced),
    };
    let list = list.unwrap_or_default();
    if list.is_empty() {
        let single = single.into_iter();
        return single
            .map(|subject| named(&format!("{field}.subject"), subject))
            .collect();
    }
    let list = list.iter().enumerate();
    list.map(|(i, subject)| named(&format!("{field}.subjects[{i}]"), subject))
        .collect()
}
