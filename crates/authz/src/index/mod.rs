//! The index: roles and bindings compiled, one object at a time.

mod aggregate;
mod binding;
mod role;

use std::collections::HashMap;
use std::sync::Arc;

use aggregate::Aggregates;
pub(crate) use binding::{Binding, Class, Party};
pub(crate) use role::Role;

use crate::names::{Name, Names};
use crate::object::{InvalidObject, Key, Kind, Object};

/// A map keyed by numbers that we made.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Which rules of an aggregated ClusterRole count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// Those stored in it, as a real API server's authorizer has it. The right choice for a view of a live cluster
    /// at this moment: its controller writes the union into the object.
    Stored,
    /// Those of the ClusterRoles its selectors match, through any number of levels, as the controller will write
    /// them. The right choice where nothing else does the aggregation.
    Computed,
    /// Both: what is stored, and what the controller is about to add.
    #[default]
    StoredAndComputed,
}

/// A role's or binding's place: its namespace, or [`Name::NONE`] for the cluster, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) scope: Name,
    pub(crate) name: Name,
}

/// Who holds bindings where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seat {
    party: Party,
    scope: Name,
}

/// All RBAC objects of a cluster, compiled for asking.
///
/// It changes one object at a time, and a clone shares every compiled object with the original: cloning and applying
/// a few more objects is the way to ask "what if".
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) names: Names,
    aggregation: Aggregation,
    roles: Map<Id, Arc<Role>>,
    bindings: Map<Id, Arc<Binding>>,
    seats: Map<Seat, Vec<Arc<Binding>>>,
    aggregates: Aggregates,
}

impl Default for Index {
    fn default() -> Self {
        Self::new(Aggregation::default())
    }
}

impl Index {
    /// An index without objects: everything is denied.
    pub fn new(aggregation: Aggregation) -> Self {
        Self {
            names: Names::new(),
            aggregation,
            roles: Map::default(),
            bindings: Map::default(),
            seats: Map::default(),
            aggregates: Aggregates::default(),
        }
    }

    /// Adds an object, or replaces the one with its name. An invalid one is not taken up, and an older one with
    /// the same name stays.
    pub fn apply<'a>(&mut self, object: impl Into<Object<'a>>) -> Result<(), InvalidObject> {
        let object = object.into();
        let key = Key::from(object);
        if key.name.is_empty() {
            return Err(InvalidObject::NoName(key.kind));
        }
        if key.kind.is_namespaced() && key.namespace.is_empty() {
            return Err(InvalidObject::NoNamespace(key.kind, key.name.to_owned()));
        }
        // The new object is compiled before the old one goes, so that texts they share stay in place.
        let id = self.take_id(&key);
        match object {
            Object::Role(role) => {
                let role = Role::compile(&mut self.names, id, role.rules.as_deref());
                self.put_role(id, role);
            }
            Object::ClusterRole(cluster_role) => {
                let role = Role::compile_cluster(&mut self.names, id, cluster_role);
                self.put_role(id, role);
            }
            Object::RoleBinding(binding) => {
                let subjects = binding.subjects.as_deref();
                let binding =
                    Binding::compile(&mut self.names, id, key.namespace, &binding.role_ref, subjects);
                self.put_binding(id, binding);
            }
            Object::ClusterRoleBinding(binding) => {
                let subjects = binding.subjects.as_deref();
                let binding = Binding::compile(&mut self.names, id, "", &binding.role_ref, subjects);
                self.put_binding(id, binding);
            }
        }
        Ok(())
    }

    /// Removes an object; says whether it was there.
    pub fn remove<'a>(&mut self, key: impl Into<Key<'a>>) -> bool {
        let key = key.into();
        let id = self.find_id(&key);
        match key.kind {
            Kind::Role | Kind::ClusterRole => {
                let Some(old) = self.roles.remove(&id) else {
                    return false;
                };
                self.aggregates
                    .change(&self.roles, &self.names, id, Some(&old), None);
                old.release(&mut self.names);
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                let Some(old) = self.bindings.remove(&id) else {
                    return false;
                };
                self.unseat(&old);
                old.release(&mut self.names);
            }
        }
        true
    }

    /// Number of roles of both kinds.
    pub fn role_count(&self) -> usize {
        self.roles.len()
    }

    /// Number of bindings of both kinds.
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// Number of distinct texts held; it falls when objects go.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    fn put_role(&mut self, id: Id, role: Role) {
        let role = Arc::new(role);
        let old = self.roles.insert(id, Arc::clone(&role));
        self.aggregates
            .change(&self.roles, &self.names, id, old.as_deref(), Some(&role));
        if let Some(old) = old {
            old.release(&mut self.names);
        }
    }

    fn put_binding(&mut self, id: Id, binding: Binding) {
        let binding = Arc::new(binding);
        let old = self.bindings.insert(id, Arc::clone(&binding));
        if let Some(old) = &old {
            self.unseat(old);
        }
        for party in binding.parties() {
            let seat = self
                .seats
                .entry(Seat {
                    party,
                    scope: id.scope,
                })
                .or_default();
            seat.reserve_exact(1);
            seat.push(Arc::clone(&binding));
        }
        if let Some(old) = old {
            old.release(&mut self.names);
        }
    }

    fn unseat(&mut self, binding: &Arc<Binding>) {
        for party in binding.parties() {
            let seat = Seat {
                party,
                scope: binding.id.scope,
            };
            if let Some(bindings) = self.seats.get_mut(&seat) {
                bindings.retain(|have| have.id != binding.id);
                if bindings.is_empty() {
                    self.seats.remove(&seat);
                }
            }
        }
    }

    fn take_id(&mut self, key: &Key<'_>) -> Id {
        Id {
            scope: if key.kind.is_namespaced() {
                self.names.take(key.namespace)
            } else {
                Name::NONE
            },
            name: self.names.take(key.name),
        }
    }

    pub(crate) fn find_id(&self, key: &Key<'_>) -> Id {
        Id {
            scope: if key.kind.is_namespaced() {
                match self.names.find(key.namespace) {
                    // An unknown namespace must not be taken for the cluster.
                    Name::NONE => {
                        return Id {
                            scope: Name::STAR,
                            name: Name::NONE,
                        };
                    }
                    scope => scope,
                }
            } else {
                Name::NONE
            },
            name: self.names.find(key.name),
        }
    }

    /// The bindings of a party in one scope.
    pub(crate) fn seated(&self, party: Party, scope: Name) -> &[Arc<Binding>] {
        self.seats
            .get(&Seat { party, scope })
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// All bindings, in no order.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    pub(crate) fn binding(&self, id: Id) -> Option<&Arc<Binding>> {
        self.bindings.get(&id)
    }

    /// All roles, in no order.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (Id, &Role)> {
        self.roles.iter().map(|(id, role)| (*id, role.as_ref()))
    }

    pub(crate) fn role(&self, id: Id) -> Option<&Role> {
        self.roles.get(&id).map(AsRef::as_ref)
    }

    /// The roles whose own rules make up the rules of a role: itself, and where it is aggregated its sources. None
    /// where the role does not exist.
    pub(crate) fn parts(&self, id: Id) -> impl Iterator<Item = (Id, &Role)> {
        let role = self.role(id);
        let aggregated = role.is_some_and(|role| role.aggregation.is_some());
        let sources = if aggregated && self.aggregation != Aggregation::Stored {
            self.aggregates.sources(id)
        } else {
            &[]
        };
        sources
            .iter()
            .map(|&source| Id {
                scope: Name::NONE,
                name: source,
            })
            .chain(std::iter::once(id))
            .filter_map(|part| Some((part, self.role(part)?)))
            .filter(|(_, part)| self.aggregation != Aggregation::Computed || part.aggregation.is_none())
    }

    /// Where a rule stored in an aggregated role comes from, if one of its sources has the same rule.
    pub(crate) fn source_of(&self, id: Id, rule: &crate::rule::Rule) -> Option<Id> {
        let has_rule = |source: &Id| self.role(*source).is_some_and(|role| role.rules.contains(rule));
        let sources = || {
            self.aggregates.sources(id).iter().map(|&name| Id {
                scope: Name::NONE,
                name,
            })
        };
        let is_leaf = |source: &Id| self.role(*source).is_some_and(|role| role.aggregation.is_none());
        sources()
            .filter(is_leaf)
            .find(has_rule)
            .or_else(|| sources().find(has_rule))
    }
}
