//! What the agent writes about its cluster: labels and status of the ManagedCluster, and the namespaces that sets ask for.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::cluster::ManagedCluster;
use writ_controller::{Error, Name, error::Context as _};

use super::{observe, plan};
use crate::{Context, MANAGER};

/// The field manager of the mark on namespaces.
const NAMESPACE_MANAGER: &str = "writ-agent-registration";

/// Writes to the hub and to the cluster.
pub struct Apply {
    hub: Client,
    spoke: Client,
    /// `--cluster-label`.
    labels: BTreeMap<String, String>,
    /// The label of namespaces that sets ask for.
    mark: String,
}

impl Apply {
    /// Writes as the agent.
    pub fn new(context: &Context) -> Self {
        Self {
            hub: context.hub.clone(),
            spoke: context.spoke.clone(),
            labels: context.options.cluster_labels.clone(),
            mark: observe::mark(context),
        }
    }

    /// Changes the status of the ManagedCluster.
    pub async fn status(&self, cluster: &ManagedCluster, patch: &Value) -> Result<ManagedCluster, Error> {
        let api: Api<ManagedCluster> = Api::all(self.hub.clone());
        let name = cluster.name_any();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("report the status of ManagedCluster {name}"))
    }

    /// Sets the configured labels. A refusal is an answer, not a failure.
    pub async fn labels(&self, cluster: &ManagedCluster) -> Result<Option<Result<(), String>>, Error> {
        if self.labels.is_empty() {
            return Ok(None);
        }
        let has = |(key, value): (&String, &String)| cluster.labels().get(key) == Some(value);
        if self.labels.iter().all(has) {
            return Ok(Some(Ok(())));
        }
        let api: Api<ManagedCluster> = Api::all(self.hub.clone());
        let name = cluster.name_any();
        // The whole object is sent, because the right that an agent gets is `update`.
        let mut changed = cluster.clone();
        changed.labels_mut().extend(self.labels.clone());
        let params = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        match api.replace(&name, &params, &changed).await {
            Ok(_) => Ok(Some(Ok(()))),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                Ok(Some(Err(status.message.clone())))
            }
            Err(error) => Err(error).context(|| format!("set the labels of ManagedCluster {name}")),
        }
    }

    /// Creates and marks the namespaces that the sets of this cluster ask for; others keep existing without the mark. `marked`
    /// is `None` if the agent cannot watch namespaces: then nothing is done and reported.
    pub async fn namespaces(
        &self,
        cluster: &ManagedCluster,
        marked: Option<&[(Name, Arc<bool>)]>,
    ) -> Result<BTreeMap<String, Result<(), String>>, Error> {
        let Some(marked) = marked else {
            return Ok(BTreeMap::new());
        };
        let status = cluster.status.as_ref();
        let asked = status
            .map(|s| s.managed_namespaces.as_slice())
            .unwrap_or_default();
        let marked = marked.iter().map(|(name, is_asked)| (&*name.name, **is_asked));
        let changes = plan::namespace_changes(asked, marked);
        let mut outcomes: BTreeMap<_, _> = asked.iter().map(|a| (a.name.clone(), Ok(()))).collect();
        let api: Api<Namespace> = Api::all(self.spoke.clone());
        let params = PatchParams::apply(NAMESPACE_MANAGER).force();
        for name in changes.apply {
            let wanted = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {&self.mark: "true"}},
            });
            match api.patch(&name, &params, &Patch::Apply(wanted)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code < 500 => {
                    outcomes.insert(name, Err(status.message.clone()));
                }
                Err(error) => return Err(error).context(|| format!("create the Namespace {name}")),
            }
        }
        for name in changes.release {
            let patch = json!({"metadata": {"labels": {&self.mark: "false"}}});
            match api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => {
                    answer.context(|| format!("remove the mark of Namespace {name}"))?;
                }
            }
        }
        Ok(outcomes)
    }
}
