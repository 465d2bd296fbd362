//! `validate: true`: a stub for each role that a binding names and that this permission does not make. The agent looks
//! whether it is there and does nothing else with it. Roles behind a selector that the agent expands have no stub: the
//! grant itself asks for the answer.
//!
//! A role that this permission made until now gets its stub only when the agent has removed it: in a work that names it
//! all the time the agent would keep it, and with it what it allows.
//!
//! A role whose name is no part of a URL has no stub either: with it the whole work would be refused.

use std::collections::BTreeSet;

use writ_runtime::segment;

use super::{
    build::{Builder, Id, Item, Purpose, selected},
    manifest, report,
    validate::{self, filled},
};

impl Builder<'_> {
    /// Adds the stubs.
    pub(super) fn checks(&mut self) {
        let mut wanted = BTreeSet::new();
        // An entry that is not delivered needs no role; the name of one could have the whole work refused.
        for (field, binding) in validate::cluster_role_bindings(self.permission())
            .filter(|(field, binding)| validate::cluster_role_binding(field, binding).is_empty())
        {
            if let Some(role) = binding
                .role_ref
                .as_ref()
                .filter(|role| role.kind == "ClusterRole")
            {
                wanted.insert((String::new(), role.name.clone(), field));
            }
        }
        for (i, binding) in self.permission().spec.role_bindings.iter().enumerate() {
            let field = format!("spec.roleBindings[{i}]");
            if !validate::role_binding(&field, binding).is_empty() {
                continue;
            }
            let name = filled(binding.role_ref.name.as_deref())
                .unwrap_or(&self.name)
                .to_owned();
            let namespace = filled(binding.namespace.as_deref());
            let namespaces = self.seen.hub_namespaces.filter(|_| !self.seen.by_agent);
            let by_hub = binding.namespace_selector.as_ref().zip(namespaces);
            match (binding.role_ref.kind.as_str(), namespace, by_hub) {
                ("ClusterRole", ..) => {
                    wanted.insert((String::new(), name, field));
                }
                ("Role", Some(namespace), _) => {
                    wanted.insert((namespace.into(), name, field));
                }
                ("Role", None, Some((labels, namespaces))) => {
                    let namespaces = selected(&field, namespaces, labels);
                    wanted.extend(
                        namespaces
                            .iter()
                            .map(|namespace| ((*namespace).to_owned(), name.clone(), field.clone())),
                    );
                }
                _ => {}
            }
        }
        let made = self.made_before();
        for (namespace, name, field) in wanted {
            let kind = if namespace.is_empty() {
                "ClusterRole"
            } else {
                "Role"
            };
            let id = Id {
                kind: kind.into(),
                namespace,
                name,
            };
            if id.name.is_empty() || self.taken.contains_key(&id) {
                continue;
            }
            // A binding may name such a role, but nobody can ask for it.
            if let Err(words) = segment::check(&format!("{field}.roleRef.name"), &id.name) {
                self.out.unsearchable.insert((kind, words));
                continue;
            }
            if made.contains(&id) {
                self.out.unchecked.insert(kind);
                continue;
            }
            self.taken.insert(id.clone(), field.clone());
            let (manifest, config) = manifest::stub(&id);
            self.out.items.push(Item {
                id,
                field,
                purpose: Purpose::Check,
                manifest,
                config: Some(config),
            });
        }
    }
    /// The objects that works still carry with content, or that the agent still reports from when they did.
    fn made_before(&self) -> BTreeSet<Id> {
        let mut made = BTreeSet::new();
        for work in self.seen.works.values() {
            let manifests = work.spec.workload.manifests.iter();
            let (content, stubs): (Vec<_>, Vec<_>) =
                manifests.partition(|manifest| manifest.0.get("rules").is_some());
            let stubs: BTreeSet<Id> = stubs.iter().map(|stub| Id::of(&stub.0)).collect();
            let reports = work.status.iter().flat_map(|s| &s.resource_status.manifests);
            made.extend(content.iter().map(|manifest| Id::of(&manifest.0)));
            made.extend(reports.map(report::id).filter(|id| !stubs.contains(id)));
        }
        made
    }
}
