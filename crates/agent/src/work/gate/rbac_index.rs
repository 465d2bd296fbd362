//! The RBAC objects of the managed cluster, as far as the gate needs them: compiled, and who is bound to what.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject};
use writ_api::work::ExecutorServiceAccount;
use writ_authz::{Aggregation, Index, Key, Kind};

use super::escalation::selects;

/// The place of an RBAC object.
pub type Place = (Kind, String, String);

/// Who is bound to which role.
#[derive(Clone, Debug, PartialEq)]
struct Bound {
    role: Place,
    subjects: Vec<Subject>,
}

/// All RBAC objects that the watches showed. A clone shares them.
#[derive(Clone, Debug)]
pub struct Rbac {
    /// Counts the changes.
    pub version: u64,
    index: Index,
    bindings: HashMap<Arc<Place>, Arc<Bound>>,
    /// The ClusterRoles that others are folded into.
    aggregated: BTreeSet<String>,
    /// The labels of the agent's own namespaces.
    own_labels: BTreeMap<String, BTreeMap<String, String>>,
}

/// Who the agent is, and where it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Myself {
    /// Its user name.
    pub user: String,
    /// The groups that are it and those like it; not those that everybody is in.
    pub groups: Vec<String>,
    /// The namespace that it was told is its own, and that of its ServiceAccount.
    pub namespaces: BTreeSet<String>,
}

impl Myself {
    /// From what the API server says about the agent's credentials.
    pub fn new(namespace: &str, user: &str, groups: &[String]) -> Self {
        let mut namespaces = BTreeSet::from([namespace.to_owned()]);
        if let Some((namespace, _)) = writ_authz::split_service_account(user) {
            namespaces.insert(namespace.to_owned());
        }
        let everybody = ["system:authenticated", "system:serviceaccounts"];
        let narrow = groups.iter().filter(|group| !everybody.contains(&group.as_str()));
        Self {
            user: user.to_owned(),
            groups: narrow.cloned().collect(),
            namespaces,
        }
    }

    /// Whether subjects of a binding at this place name the agent.
    pub fn is_named(&self, place: &Place, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| match subject.kind.as_str() {
            "ServiceAccount" => {
                let namespace = namespace_of(subject, place);
                writ_authz::service_account_user(namespace, &subject.name) == self.user
            }
            "User" => subject.name == self.user,
            "Group" => self.groups.contains(&subject.name),
            _ => false,
        })
    }
}

/// The namespace of a subject: without one, it is in the binding's own.
fn namespace_of<'a>(subject: &'a Subject, place: &'a Place) -> &'a str {
    let namespace = subject.namespace.as_deref();
    namespace.filter(|name| !name.is_empty()).unwrap_or(&place.1)
}

impl Default for Rbac {
    fn default() -> Self {
        Self {
            // What is stored is what the API server decides by.
            index: Index::new(Aggregation::Stored),
            version: 0,
            bindings: HashMap::new(),
            aggregated: BTreeSet::new(),
            own_labels: BTreeMap::new(),
        }
    }
}

/// An RBAC object of any kind, as a watch shows it.
#[derive(Clone, Debug)]
pub enum Object {
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
        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$kind(object)
            }
        })*

        impl Object {
            /// The object's place.
            pub fn place(&self) -> Place {
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

impl Object {
    /// Role and subjects, if it is a binding.
    fn bound(&self) -> Option<Bound> {
        let (namespace, role, subjects) = match self {
            Self::RoleBinding(binding) => (
                binding.metadata.namespace.clone().unwrap_or_default(),
                &binding.role_ref,
                &binding.subjects,
            ),
            Self::ClusterRoleBinding(binding) => (String::new(), &binding.role_ref, &binding.subjects),
            Self::Role(_) | Self::ClusterRole(_) => return None,
        };
        Some(Bound {
            role: role_place(&namespace, role),
            subjects: subjects.clone().unwrap_or_default(),
        })
    }
}

/// The role that a binding in this namespace refers to.
pub fn role_place(namespace: &str, role: &RoleRef) -> Place {
    if role.kind == "Role" {
        (Kind::Role, namespace.into(), role.name.clone())
    } else {
        (Kind::ClusterRole, String::new(), role.name.clone())
    }
}

/// Those who a change of RBAC can touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched(BTreeSet<(String, String, String)>);

impl Touched {
    fn add(&mut self, place: &Place, bound: &Bound) {
        for subject in &bound.subjects {
            let namespace = namespace_of(subject, place).to_owned();
            self.0
                .insert((subject.kind.clone(), namespace, subject.name.clone()));
        }
    }

    /// Whether this account is among them: by name, as a user, or through a group.
    pub fn includes(&self, account: &ExecutorServiceAccount) -> bool {
        let (user, groups) = (account.user(), account.groups());
        self.0.iter().any(|(kind, namespace, name)| match kind.as_str() {
            "ServiceAccount" => *namespace == account.namespace && *name == account.name,
            "User" => *name == user,
            "Group" => groups.contains(name),
            _ => false,
        })
    }
}

impl Rbac {
    /// The compiled objects.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Whether this role is there.
    pub fn has_role(&self, place: &Place) -> bool {
        self.index.has_role(key(place))
    }

    /// The labels of a namespace of the agent's own.
    pub fn own_labels(&self, namespace: &str) -> BTreeMap<String, String> {
        self.own_labels.get(namespace).cloned().unwrap_or_default()
    }

    /// Takes in the labels of a namespace of the agent's own; returns whether they changed.
    pub fn set_own_labels(&mut self, namespace: &str, labels: BTreeMap<String, String>) -> bool {
        let old = self.own_labels.insert(namespace.to_owned(), labels);
        old.as_ref() != self.own_labels.get(namespace)
    }

    /// Whether other roles are folded into this ClusterRole.
    pub fn is_aggregated(&self, name: &str) -> bool {
        self.aggregated.contains(name)
    }

    /// Takes in an object; returns who that can touch, those it does not name any more included.
    pub fn put(&mut self, object: &Object) -> Touched {
        let place = object.place();
        let mut touched = self.holders(&place);
        // An object that makes no sense grants nothing, whatever it said before.
        if self.index.apply(object.borrowed()).is_err() {
            self.index.remove(key(&place));
        }
        if let Object::ClusterRole(role) = object {
            if selects(role) {
                self.aggregated.insert(place.2.clone());
            } else {
                self.aggregated.remove(&place.2);
            }
        }
        match object.bound() {
            Some(bound) => {
                touched.add(&place, &bound);
                self.bindings.insert(Arc::new(place), Arc::new(bound));
            }
            None => {
                self.bindings.remove(&place);
            }
        }
        touched
    }

    /// Takes an object out; returns who that can touch.
    pub fn remove(&mut self, place: &Place) -> Touched {
        let touched = self.holders(place);
        self.index.remove(key(place));
        self.bindings.remove(place);
        if place.0 == Kind::ClusterRole {
            self.aggregated.remove(&place.2);
        }
        touched
    }

    /// The places of all objects of a kind are those in `present`; the others are taken out.
    pub fn retain(&mut self, kind: Kind, present: &BTreeSet<Place>, known: &BTreeSet<Place>) -> Touched {
        let mut touched = Touched::default();
        for place in known
            .iter()
            .filter(|place| place.0 == kind && !present.contains(*place))
        {
            touched.0.extend(self.remove(place).0);
        }
        touched
    }

    /// The bindings that name an account, by name, as a user or through a group, and their roles.
    pub fn rights_of(&self, account: &ExecutorServiceAccount) -> BTreeSet<Place> {
        let named = |place: &Place, bound: &Bound| {
            let mut touched = Touched::default();
            touched.add(place, bound);
            touched.includes(account)
        };
        let rights = self.bindings.iter().filter(|(place, bound)| named(place, bound));
        rights
            .flat_map(|(place, bound)| [(**place).clone(), bound.role.clone()])
            .collect()
    }

    /// Whether an object is known as it is.
    pub fn shows(&self, place: &Place, live: Option<&Object>) -> bool {
        let mut alone = Self::default();
        if let Some(object) = live {
            alone.put(object);
        }
        self.bindings.get(place) == alone.bindings.get(place)
            && self.rules_of(place) == alone.rules_of(place)
            && (place.0 != Kind::ClusterRole
                || self.aggregated.contains(&place.2) == alone.aggregated.contains(&place.2))
    }

    /// What a role says, whatever the order.
    fn rules_of(&self, place: &Place) -> Option<BTreeSet<[Vec<String>; 5]>> {
        let sorted = |words: Option<Vec<String>>| {
            let mut words = words.unwrap_or_default();
            words.sort();
            words
        };
        // The index knows roles by their names alone, and a binding may have the same.
        let is_role = matches!(place.0, Kind::Role | Kind::ClusterRole);
        let rules = self.index.role_rules(key(place)).filter(|_| is_role)?.into_iter();
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

    /// Who holds something through this role or binding now.
    fn holders(&self, place: &Place) -> Touched {
        let mut touched = Touched::default();
        for (binding, bound) in &self.bindings {
            if **binding == *place || bound.role == *place {
                touched.add(binding, bound);
            }
        }
        touched
    }

    /// Whether this role or binding is one that the agent's own rights rest on.
    pub fn belongs_to(&self, place: &Place, me: &Myself) -> bool {
        self.bindings.iter().any(|(binding, bound)| {
            (**binding == *place || bound.role == *place) && me.is_named(binding, &bound.subjects)
        })
    }

    /// Whether a Role or RoleBinding of this name, in any namespace, is one that the agent's rights rest on.
    pub fn name_belongs_to(&self, kind: Kind, name: &str, me: &Myself) -> bool {
        self.bindings.iter().any(|(binding, bound)| {
            [&**binding, &bound.role]
                .iter()
                .any(|place| place.0 == kind && place.2 == name)
                && me.is_named(binding, &bound.subjects)
        })
    }
}

fn key(place: &Place) -> Key<'_> {
    Key::new(place.0, &place.1, &place.2)
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

    fn binding(subjects: &Value) -> Object {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": subjects,
        }))
        .unwrap();
        binding.into()
    }

    #[test]
    fn a_change_touches_all_that_it_named_or_names() {
        let mut rbac = Rbac::default();
        let (a, b) = (account("shop", "a"), account("other", "b"));
        let touched = rbac.put(&binding(&json!([{"kind": "ServiceAccount", "name": "a"}])));
        assert!(touched.includes(&a) && !touched.includes(&b));
        assert!(!touched.includes(&account("other", "a")));
        // The edit removes a and adds b: both are touched.
        let touched = rbac.put(&binding(
            &json!([{"kind": "User", "name": "system:serviceaccount:other:b"}]),
        ));
        assert!(touched.includes(&a) && touched.includes(&b));
        // The role touches whoever is bound to it.
        let role: Role =
            serde_json::from_value(json!({"metadata": {"name": "r", "namespace": "shop"}})).unwrap();
        assert!(rbac.put(&role.into()).includes(&b));
        let touched = rbac.put(&binding(
            &json!([{"kind": "Group", "name": "system:serviceaccounts:shop"}]),
        ));
        assert!(touched.includes(&a) && touched.includes(&account("shop", "zzz")));
        let place = (Kind::RoleBinding, "shop".into(), "b".into());
        assert!(rbac.remove(&place).includes(&a));
        assert_eq!(rbac.remove(&place), Touched::default());
    }

    #[test]
    fn what_differs_from_what_was_shown_is_noticed() {
        let role = |verb: &str| -> Object {
            let role: Role = serde_json::from_value(json!({"metadata": {"name": "r", "namespace": "shop"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]}))
            .unwrap();
            role.into()
        };
        let subject = |name: &str| json!([{"kind": "ServiceAccount", "name": name}]);
        let mut rbac = Rbac::default();
        rbac.put(&role("get"));
        rbac.put(&binding(&subject("a")));
        let rights = rbac.rights_of(&account("shop", "a"));
        let [of_role, of_binding] = [role("get").place(), binding(&subject("a")).place()];
        assert_eq!(rights, BTreeSet::from([of_role.clone(), of_binding.clone()]));
        assert!(rbac.rights_of(&account("shop", "b")).is_empty());
        for (place, live, same) in [
            (&of_role, Some(role("get")), true),
            (&of_role, Some(role("list")), false),
            (&of_role, None, false),
            (&of_binding, Some(binding(&subject("a"))), true),
            (&of_binding, Some(binding(&subject("b"))), false),
            (&of_binding, None, false),
        ] {
            assert_eq!(rbac.shows(place, live.as_ref()), same, "{place:?} {live:?}");
        }
        assert!(rbac.shows(&(Kind::ClusterRole, String::new(), "none".into()), None));
    }
}
