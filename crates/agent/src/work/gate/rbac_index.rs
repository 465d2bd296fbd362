//! The RBAC objects of the managed cluster, as far as the gate needs them: compiled roles, and who is bound to which.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject};
use writ_api::work::ExecutorServiceAccount;
use writ_authz::{Aggregation, Index, Key, Kind};

use super::model::{AgentIdentity, subject_namespace};
use crate::work::{model::RbacId, plan::rbac::referenced_role};

/// The role and the subjects of a binding.
#[derive(Clone, Debug, PartialEq)]
struct BoundRole {
    role: RbacId,
    subjects: Vec<Subject>,
}

/// All RBAC objects that the watches showed. A clone shares them.
#[derive(Clone, Debug)]
pub struct RbacIndex {
    /// Counts the changes.
    pub version: u64,
    index: Index,
    bindings: HashMap<Arc<RbacId>, Arc<BoundRole>>,
    /// The ClusterRoles with an aggregation rule.
    aggregated: BTreeSet<String>,
    /// The labels of the agent's own namespaces.
    own_labels: BTreeMap<String, BTreeMap<String, String>>,
}

impl Default for RbacIndex {
    fn default() -> Self {
        Self {
            // The API server decides by the stored rules of an aggregated role.
            index: Index::new(Aggregation::Stored),
            version: 0,
            bindings: HashMap::new(),
            aggregated: BTreeSet::new(),
            own_labels: BTreeMap::new(),
        }
    }
}

/// An RBAC object of any kind.
#[derive(Clone, Debug)]
pub enum RbacObject {
    /// A Role.
    Role(Role),
    /// A ClusterRole.
    ClusterRole(ClusterRole),
    /// A RoleBinding.
    RoleBinding(RoleBinding),
    /// A ClusterRoleBinding.
    ClusterRoleBinding(ClusterRoleBinding),
}

macro_rules! object {
    ($($kind:ident),*) => {
        $(impl From<$kind> for RbacObject {
            fn from(object: $kind) -> Self {
                Self::$kind(object)
            }
        })*

        impl RbacObject {
            /// The object's id.
            pub fn id(&self) -> RbacId {
                let (kind, metadata) = match self {
                    $(Self::$kind(object) => (Kind::$kind, &object.metadata),)*
                };
                (
                    kind,
                    metadata.namespace.clone().unwrap_or_default(),
                    metadata.name.clone().unwrap_or_default(),
                )
            }

            fn borrowed(&self) -> writ_authz::Object<'_> {
                match self {
                    $(Self::$kind(object) => object.into(),)*
                }
            }
        }
    };
}
object!(Role, ClusterRole, RoleBinding, ClusterRoleBinding);

impl RbacObject {
    /// Role and subjects, if it is a binding.
    fn bound_role(&self) -> Option<BoundRole> {
        let (namespace, role, subjects) = match self {
            Self::RoleBinding(binding) => (
                binding.metadata.namespace.clone().unwrap_or_default(),
                &binding.role_ref,
                &binding.subjects,
            ),
            Self::ClusterRoleBinding(binding) => (String::new(), &binding.role_ref, &binding.subjects),
            Self::Role(_) | Self::ClusterRole(_) => return None,
        };
        Some(BoundRole {
            role: referenced_role(&namespace, role),
            subjects: subjects.clone().unwrap_or_default(),
        })
    }
}

/// The subjects whose rights a change of RBAC can affect: kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedSubjects(BTreeSet<(String, String, String)>);

impl AffectedSubjects {
    fn add(&mut self, binding: &RbacId, bound: &BoundRole) {
        for subject in &bound.subjects {
            let namespace = subject_namespace(subject, binding).to_owned();
            self.0
                .insert((subject.kind.clone(), namespace, subject.name.clone()));
        }
    }

    /// Whether this account is among them: by name, as a user, or through a group.
    pub fn include(&self, account: &ExecutorServiceAccount) -> bool {
        let (user, groups) = (account.user(), account.groups());
        self.0.iter().any(|(kind, namespace, name)| match kind.as_str() {
            "ServiceAccount" => *namespace == account.namespace && *name == account.name,
            "User" => *name == user,
            "Group" => groups.contains(name),
            _ => false,
        })
    }
}

impl RbacIndex {
    /// The compiled objects.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Whether this role exists.
    pub fn has_role(&self, id: &RbacId) -> bool {
        self.index.has_role(key(id))
    }

    /// The labels of one of the agent's own namespaces.
    pub fn own_labels(&self, namespace: &str) -> BTreeMap<String, String> {
        self.own_labels.get(namespace).cloned().unwrap_or_default()
    }

    /// Sets the labels of one of the agent's own namespaces. Returns true if they changed.
    pub fn set_own_labels(&mut self, namespace: &str, labels: BTreeMap<String, String>) -> bool {
        let old = self.own_labels.insert(namespace.to_owned(), labels);
        old.as_ref() != self.own_labels.get(namespace)
    }

    /// Whether this ClusterRole has an aggregation rule.
    pub fn is_aggregated(&self, name: &str) -> bool {
        self.aggregated.contains(name)
    }

    /// Adds or changes an object. Returns the subjects that this affects, those that it no longer names included.
    pub fn put(&mut self, object: &RbacObject) -> AffectedSubjects {
        let id = object.id();
        let mut affected = self.holders(&id);
        // An invalid object grants nothing, whatever it granted before.
        if self.index.apply(object.borrowed()).is_err() {
            self.index.remove(key(&id));
        }
        if let RbacObject::ClusterRole(role) = object {
            if is_aggregated(role) {
                self.aggregated.insert(id.2.clone());
            } else {
                self.aggregated.remove(&id.2);
            }
        }
        match object.bound_role() {
            Some(bound) => {
                affected.add(&id, &bound);
                self.bindings.insert(Arc::new(id), Arc::new(bound));
            }
            None => {
                self.bindings.remove(&id);
            }
        }
        affected
    }

    /// Removes an object. Returns the subjects that this affects.
    pub fn remove(&mut self, id: &RbacId) -> AffectedSubjects {
        let affected = self.holders(id);
        self.index.remove(key(id));
        self.bindings.remove(id);
        if id.0 == Kind::ClusterRole {
            self.aggregated.remove(&id.2);
        }
        affected
    }

    /// The bindings that name an account, by name, as a user or through a group, and their roles.
    pub fn rights_of(&self, account: &ExecutorServiceAccount) -> BTreeSet<RbacId> {
        let names_account = |id: &RbacId, bound: &BoundRole| {
            let mut subjects = AffectedSubjects::default();
            subjects.add(id, bound);
            subjects.include(account)
        };
        let rights = self
            .bindings
            .iter()
            .filter(|(id, bound)| names_account(id, bound));
        rights
            .flat_map(|(id, bound)| [(**id).clone(), bound.role.clone()])
            .collect()
    }

    /// Whether the index has an object as it is on the cluster; `None` if it does not exist there.
    pub fn agrees_with(&self, id: &RbacId, live: Option<&RbacObject>) -> bool {
        let mut alone = Self::default();
        if let Some(object) = live {
            alone.put(object);
        }
        self.bindings.get(id) == alone.bindings.get(id)
            && self.rules_of(id) == alone.rules_of(id)
            && (id.0 != Kind::ClusterRole
                || self.aggregated.contains(&id.2) == alone.aggregated.contains(&id.2))
    }

    /// The rules of a role, without their order.
    fn rules_of(&self, id: &RbacId) -> Option<BTreeSet<[Vec<String>; 5]>> {
        let sorted = |words: Option<Vec<String>>| {
            let mut words = words.unwrap_or_default();
            words.sort();
            words
        };
        // The index finds roles by name alone, and a binding may have the same name.
        let is_role = matches!(id.0, Kind::Role | Kind::ClusterRole);
        let rules = self.index.role_rules(key(id)).filter(|_| is_role)?.into_iter();
        let rules = rules.map(|rule| {
            [
                Some(rule.verbs),
                rule.api_groups,
                rule.resources,
                rule.resource_names,
                rule.non_resource_urls,
            ]
            .map(sorted)
        });
        Some(rules.collect())
    }

    /// The subjects that hold rights through this role or binding.
    fn holders(&self, id: &RbacId) -> AffectedSubjects {
        let mut holders = AffectedSubjects::default();
        for (binding, bound) in &self.bindings {
            if **binding == *id || bound.role == *id {
                holders.add(binding, bound);
            }
        }
        holders
    }

    /// Whether the agent's own rights rest on this role or binding.
    pub fn belongs_to(&self, id: &RbacId, agent: &AgentIdentity) -> bool {
        self.bindings.iter().any(|(binding, bound)| {
            (**binding == *id || bound.role == *id) && agent.is_named(binding, &bound.subjects)
        })
    }

    /// Whether the agent's own rights rest on a Role or RoleBinding of this name, in any namespace.
    pub fn name_belongs_to(&self, kind: Kind, name: &str, agent: &AgentIdentity) -> bool {
        self.bindings.iter().any(|(binding, bound)| {
            [&**binding, &bound.role]
                .iter()
                .any(|id| id.0 == kind && id.2 == name)
                && agent.is_named(binding, &bound.subjects)
        })
    }
}

fn key(id: &RbacId) -> Key<'_> {
    Key::new(id.0, &id.1, &id.2)
}

/// Whether a ClusterRole is aggregated from others.
pub fn is_aggregated(role: &ClusterRole) -> bool {
    let aggregation = role.aggregation_rule.as_ref();
    let selectors = aggregation.and_then(|aggregation| aggregation.cluster_role_selectors.as_ref());
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn account(namespace: &str, name: &str) -> ExecutorServiceAccount {
        ExecutorServiceAccount {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn binding(subjects: &Value) -> RbacObject {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": subjects,
        }))
        .unwrap();
        binding.into()
    }

    #[test]
    fn change_affects_subjects_named_before_and_after() {
        let mut rbac = RbacIndex::default();
        let (a, b) = (account("shop", "a"), account("other", "b"));
        let affected = rbac.put(&binding(&json!([{"kind": "ServiceAccount", "name": "a"}])));
        assert!(affected.include(&a) && !affected.include(&b));
        assert!(!affected.include(&account("other", "a")));
        // The edit removes a and adds b: both are affected.
        let affected = rbac.put(&binding(
            &json!([{"kind": "User", "name": "system:serviceaccount:other:b"}]),
        ));
        assert!(affected.include(&a) && affected.include(&b));
        // The role affects all that are bound to it.
        let role: Role =
            serde_json::from_value(json!({"metadata": {"name": "r", "namespace": "shop"}})).unwrap();
        assert!(rbac.put(&role.into()).include(&b));
        let affected = rbac.put(&binding(
            &json!([{"kind": "Group", "name": "system:serviceaccounts:shop"}]),
        ));
        assert!(affected.include(&a) && affected.include(&account("shop", "zzz")));
        let id = (Kind::RoleBinding, "shop".into(), "b".into());
        assert!(rbac.remove(&id).include(&a));
        assert_eq!(rbac.remove(&id), AffectedSubjects::default());
    }

    #[test]
    fn index_agrees_only_with_the_live_object() {
        let role = |verb: &str| -> RbacObject {
            let role: Role = serde_json::from_value(json!({"metadata": {"name": "r", "namespace": "shop"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]}))
            .unwrap();
            role.into()
        };
        let subject = |name: &str| json!([{"kind": "ServiceAccount", "name": name}]);
        let mut rbac = RbacIndex::default();
        rbac.put(&role("get"));
        rbac.put(&binding(&subject("a")));
        let rights = rbac.rights_of(&account("shop", "a"));
        let [of_role, of_binding] = [role("get").id(), binding(&subject("a")).id()];
        assert_eq!(rights, BTreeSet::from([of_role.clone(), of_binding.clone()]));
        assert!(rbac.rights_of(&account("shop", "b")).is_empty());
        for (id, live, agrees) in [
            (&of_role, Some(role("get")), true),
            (&of_role, Some(role("list")), false),
            (&of_role, None, false),
            (&of_binding, Some(binding(&subject("a"))), true),
            (&of_binding, Some(binding(&subject("b"))), false),
            (&of_binding, None, false),
        ] {
            assert_eq!(rbac.agrees_with(id, live.as_ref()), agrees, "{id:?} {live:?}");
        }
        assert!(rbac.agrees_with(&(Kind::ClusterRole, String::new(), "none".into()), None));
    }
}
