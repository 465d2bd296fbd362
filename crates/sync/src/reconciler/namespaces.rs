//! Namespaces that are used and that nobody has declared, and those that a commit would take away.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use serde_json::json;
use writ_api::configsync::{RootSyncSpec, overrides::NamespaceStrategy};
use writ_controller::error::status_code;

use super::{
    engine::Engine,
    error::{Code, Problem},
    object::{DELETION, Key, MANAGER, Raw},
};
use crate::{model::SyncKind, names};

fn is_namespace(key: &Key) -> bool {
    key.group.is_empty() && key.kind == "Namespace"
}

/// Whether a sync makes the namespaces that its objects are in.
pub fn implicit(kind: SyncKind, spec: &RootSyncSpec) -> bool {
    let set = spec.override_.as_ref().and_then(|o| o.namespace_strategy);
    kind == SyncKind::Root && set.unwrap_or_default() != NamespaceStrategy::Explicit
}

impl Engine {
    /// Declares those of the namespaces that are neither declared nor there; returns whether there were any. That one may
    /// not be read is no error.
    pub(super) async fn imply_namespaces(&mut self, mut used: BTreeSet<String>) -> bool {
        let Some(ask) = self.asked.as_ref().filter(|ask| ask.implicit) else {
            return false;
        };
        let context = ask.context.clone();
        used.remove("");
        let api = Api::<Namespace>::all(self.client.clone());
        let mut any = false;
        for name in used {
            let raw = Raw {
                path: "".into(),
                value: json!({
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": { "name": name, "annotations": { DELETION: "detach" }},
                }),
            };
            let key = raw.key("");
            if !self.declared.contains_key(&key) && self.implies(&api, &name).await {
                self.put(vec![(raw, key)], &context);
                any = true;
            }
        }
        any
    }

    /// Whether a namespace that nobody has declared is to be made, or was.
    async fn implies(&self, api: &Api<Namespace>, name: &str) -> bool {
        match api.get_opt(name).await {
            Ok(None) => true,
            Ok(Some(live)) => live
                .metadata
                .annotations
                .and_then(|mut a| a.remove(MANAGER))
                .is_some_and(|manager| manager == names::manager_value(&self.id)),
            Err(error) => {
                if status_code(&error) != Some(403) {
                    tracing::debug!(sync = %self.id, namespace = %name, %error, "the namespace could not be read");
                }
                false
            }
        }
    }

    /// A commit that drops every namespace at once is more likely a mistake than a wish.
    pub(super) async fn drops_all_namespaces(&self) -> Option<Problem> {
        if !self.unresolved.is_empty() || self.declared.keys().any(is_namespace) {
            return None;
        }
        let dropped: Vec<&Key> = self
            .inventory
            .iter()
            .flatten()
            .filter(|key| is_namespace(key) && !self.disabled.contains(key))
            .collect();
        if dropped.len() < 2 {
            return None;
        }
        let api = Api::<Namespace>::all(self.client.clone());
        let mut lost = 0;
        for key in dropped {
            // One that is gone is not deleted, nor is one that is left where it is, as those are that nobody declared.
            let stays = match api.get_opt(&key.name).await {
                Ok(None) => true,
                Ok(Some(live)) => live
                    .annotations()
                    .get(DELETION)
                    .is_some_and(|value| value == "detach"),
                Err(_) => false,
            };
            lost += usize::from(!stays);
        }
        (lost >= 2).then(|| {
            Problem::new(
                Code::EmptySource,
                format!("the commit would delete all {lost} namespaces of this sync; delete all but one first if that is meant"),
            )
        })
    }
}
