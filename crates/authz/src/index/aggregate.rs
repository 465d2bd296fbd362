//! Which ClusterRoles make up an aggregated one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Id, Map, Role};
use crate::names::{Name, Names};

/// The graph of aggregation. It is touched only by a ClusterRole whose labels or selectors change: rules are looked
/// up when a question is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregates {
    /// Aggregated role to the roles its selectors match, never itself.
    direct: BTreeMap<Name, BTreeSet<Name>>,
    /// The same through all levels, in the order of names.
    closed: Map<Name, Box<[Name]>>,
}

impl Aggregates {
    pub(super) fn sources(&self, id: Id) -> &[Name] {
        if id.scope != Name::NONE {
            return &[];
        }
        self.closed.get(&id.name).map(AsRef::as_ref).unwrap_or_default()
    }

    /// Takes up that a role has changed from `old` to `new`; `roles` already holds the new state.
    pub(super) fn change(
        &mut self,
        roles: &Map<Id, std::sync::Arc<Role>>,
        names: &Names,
        id: Id,
        old: Option<&Role>,
        new: Option<&Role>,
    ) {
        let seen = |role: Option<&Role>| role.map(|role| (role.labels.clone(), role.aggregation.clone()));
        if id.scope != Name::NONE || seen(old) == seen(new) {
            return;
        }
        let mut changed = false;
        for (&aggregate, members) in &mut self.direct {
            if aggregate == id.name {
                continue;
            }
            let by = roles.get(&Id {
                scope: Name::NONE,
                name: aggregate,
            });
            let selected = new.is_some_and(|role| by.is_some_and(|by| by.selects(&role.labels)));
            changed |= if selected {
                members.insert(id.name)
            } else {
                members.remove(&id.name)
            };
        }
        if let Some(role) = new.filter(|role| role.aggregation.is_some()) {
            let is_member = |(other, labelled): &(&Id, &std::sync::Arc<Role>)| {
                other.scope == Name::NONE && **other != id && role.selects(&labelled.labels)
            };
            let members = roles
                .iter()
                .filter(is_member)
                .map(|(other, _)| other.name)
                .collect();
            self.direct.insert(id.name, members);
            changed = true;
        } else {
            changed |= self.direct.remove(&id.name).is_some();
        }
        if changed {
            self.close(names);
        }
    }

    fn close(&mut self, names: &Names) {
        self.closed.clear();
        for &aggregate in self.direct.keys() {
            let mut reached = BTreeSet::new();
            let mut open = vec![aggregate];
            while let Some(next) = open.pop() {
                for &member in self.direct.get(&next).into_iter().flatten() {
                    if member != aggregate && reached.insert(member) {
                        open.push(member);
                    }
                }
            }
            let mut sources: Vec<_> = reached.into_iter().collect();
            sources.sort_unstable_by_key(|&name| names.text(name));
            self.closed.insert(aggregate, sources.into_boxed_slice());
        }
    }
}
