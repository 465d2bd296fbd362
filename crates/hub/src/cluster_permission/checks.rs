//! `validate: true`: a stub for each role that a binding names and that this permission does not make. The agent looks
//! whether it is there and does nothing else with it. Roles behind a selector that the agent expands have no stub: the
//! grant itself asks for the answer.

use std::collections::BTreeSet;

use super::{
    build::{Builder, Id, Item, Purpose, selected},
    manifest,
    validate::{self, filled},
};

impl Builder<'_> {
    /// Adds the stubs.
    pub(super) fn checks(&mut self) {
        let mut wanted = BTreeSet::new();
        for (field, binding) in validate::cluster_role_bindings(self.permission()) {
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
}
