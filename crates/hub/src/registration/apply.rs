//! The writes of the registration controller, each only where something differs.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster, managed_cluster::Taint},
    work::ManifestWork,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
    error::Context as _,
    tolerant::Guarded,
    write,
};

use super::controller::State;
use crate::{
    MANAGER,
    admission::{access::AGENT_ACCOUNT, managed_cluster::reserved},
    registration::{
        model::{CLUSTER_UID_ANNOTATION, Delete, FINALIZER, LEASE, Level, TAKEN_OVER_ANNOTATION},
        plan::{agent_requests::agent_user, cluster::has_finalizer, rights},
    },
    upsert::{upsert, upsert_if},
};

impl State {
    pub(super) fn clusters(&self) -> Api<ManagedCluster> {
        Api::all(self.context.client.clone())
    }

    /// The finalizer, and with it what is recorded once.
    pub(super) async fn write_finalizer(
        &self,
        cluster: &mut ManagedCluster,
        wanted: bool,
        taken_over: Option<bool>,
    ) -> Result<(), Error> {
        if has_finalizer(cluster) == wanted && taken_over.is_none() {
            return Ok(());
        }
        let mut finalizers: Vec<&str> = cluster
            .finalizers()
            .iter()
            .map(String::as_str)
            .filter(|f| *f != FINALIZER)
            .collect();
        if wanted {
            finalizers.push(FINALIZER);
        }
        let mut patch = json!({"metadata": {
            "uid": cluster.uid(), "resourceVersion": cluster.resource_version(), "finalizers": finalizers
        }});
        if let (Some(taken_over), Some(metadata)) = (taken_over, patch.get_mut("metadata")) {
            json_patch::merge(
                metadata,
                &json!({"annotations": {TAKEN_OVER_ANNOTATION: taken_over.to_string()}}),
            );
        }
        let name = cluster.name_any();
        *cluster = self
            .clusters()
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("change the finalizers of ManagedCluster {name}"))?;
        Ok(())
    }

    pub(super) async fn write_home(&self, cluster: &str, has_lease: bool) -> Result<(), Error> {
        let labels = || Some([(CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned())].into());
        let namespaces: Api<Namespace> = Api::all(self.context.client.clone());
        if self.seen.namespaces.get(cluster).is_none() {
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(cluster.into()),
                    labels: labels(),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            upsert(&namespaces, None, &namespace).await?;
        }
        if !has_lease {
            let leases: Api<Lease> = write::namespaced(&self.context.client, cluster);
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(LEASE.into()),
                    namespace: Some(cluster.into()),
                    labels: labels(),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(LEASE.into()),
                    renew_time: Some(MicroTime(Timestamp::now())),
                    ..LeaseSpec::default()
                }),
            };
            match leases.create(&PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => {
                    answer.context(|| format!("create Lease {cluster}/{LEASE}"))?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn write_rights(
        &self,
        cluster: &str,
        of: Option<&ManagedCluster>,
        level: Level,
    ) -> Result<(), Error> {
        let options = &self.context.options;
        let agent = of.and_then(agent_user);
        let wanted = rights::of(
            cluster,
            level,
            options.agent_rights,
            options.registration_driver,
            agent,
        );
        let client = &self.context.client;
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let cluster_bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let bindings: Api<RoleBinding> = write::namespaced(client, cluster);
        for role in &wanted.roles {
            let current = self.seen.roles.get(&role.name_any());
            upsert_if(&roles, current, role, |there| rights::is_for(there, cluster)).await?;
        }
        if let (Some(account), Some(of)) = (wanted.account, of) {
            self.write_account(of, account).await?;
        }
        for binding in &wanted.cluster_bindings {
            let current = self.seen.cluster_bindings.get(&binding.name_any());
            upsert(&cluster_bindings, current, binding).await?;
        }
        for binding in &wanted.bindings {
            let key = format!("{cluster}/{}", binding.name_any());
            upsert(&bindings, self.seen.bindings.get(&key), binding).await?;
        }
        // Whatever else this controller once granted this cluster goes, bindings before roles.
        let is_own = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get(CLUSTER_NAME_LABEL).is_some_and(|c| c == cluster)
        };
        for binding in self.seen.bindings.in_namespace(cluster) {
            if !wanted.bindings.iter().any(|w| w.name_any() == binding.name_any()) {
                write::delete(&bindings, &binding.name_any(), binding.uid().as_deref()).await?;
            }
        }
        for name in &rights::names(cluster) {
            if let Some(binding) = self.seen.cluster_bindings.get(name)
                && is_own(binding.labels())
                && !wanted.cluster_bindings.iter().any(|w| w.name_any() == *name)
            {
                write::delete(&cluster_bindings, name, binding.uid().as_deref()).await?;
            }
        }
        for name in &rights::names(cluster) {
            // One that all clusters share stays, whatever somebody has put on it.
            if let Some(role) = self.seen.roles.get(name)
                && is_own(role.labels())
                && reserved(cluster).is_none()
                && !wanted.roles.iter().any(|w| w.name_any() == *name)
            {
                write::delete(&roles, name, role.uid().as_deref()).await?;
            }
        }
        Ok(())
    }

    /// The account of a cluster's agent, for this very cluster: of one that was there before somebody may hold tokens,
    /// and with it they die.
    async fn write_account(&self, cluster: &ManagedCluster, mut wanted: ServiceAccount) -> Result<(), Error> {
        let name = cluster.name_any();
        let accounts: Api<ServiceAccount> = write::namespaced(&self.context.client, &name);
        let mut current = accounts
            .get_opt(AGENT_ACCOUNT)
            .await
            .context(|| format!("read the account of cluster {name}"))?;
        if let Some(former) = current.take_if(|account| !rights::is_account_of(account, cluster)) {
            tracing::info!(
                cluster = name,
                "replacing the account of a former cluster of that name"
            );
            write::delete(&accounts, AGENT_ACCOUNT, former.uid().as_deref()).await?;
        }
        let uid = cluster.uid().unwrap_or_default();
        wanted
            .annotations_mut()
            .insert(CLUSTER_UID_ANNOTATION.into(), uid);
        write::ensure(&accounts, current.as_ref(), &wanted, MANAGER).await?;
        Ok(())
    }

    pub(super) async fn write_taints(
        &self,
        cluster: &mut ManagedCluster,
        taints: Option<&[Taint]>,
    ) -> Result<(), Error> {
        let Some(taints) = taints else { return Ok(()) };
        let name = cluster.name_any();
        let patch = json!({
            "metadata": {"uid": cluster.uid(), "resourceVersion": cluster.resource_version()},
            "spec": {"taints": taints},
        });
        *cluster = self
            .clusters()
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("change the taints of ManagedCluster {name}"))?;
        Ok(())
    }

    pub(super) async fn write_conditions(
        &self,
        cluster: &mut ManagedCluster,
        wanted: &[Wanted],
    ) -> Result<(), Error> {
        let mut conditions = cluster
            .status
            .as_ref()
            .map(|s| s.conditions.clone())
            .unwrap_or_default();
        let now = Timestamp::now();
        let mut changed = false;
        for wanted in wanted {
            changed |= condition::set(&mut conditions, wanted, cluster.metadata.generation, now);
        }
        if !changed {
            return Ok(());
        }
        // The agent writes conditions too: the version makes sure that none of its news is lost.
        let name = cluster.name_any();
        let patch = json!({
            "metadata": {"uid": cluster.uid(), "resourceVersion": cluster.resource_version()},
            "status": {"conditions": conditions},
        });
        match self
            .clusters()
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            // Something else of the cluster was just written; its event brings this cluster back.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => {
                *cluster = answer.context(|| format!("report the status of ManagedCluster {name}"))?;
                Ok(())
            }
        }
    }

    pub(super) async fn delete(&self, cluster: &str, what: Delete) -> Result<(), Error> {
        match what {
            Delete::Nothing => {}
            Delete::AddOns => {
                let api: Api<ManagedClusterAddOn> = write::namespaced(&self.context.client, cluster);
                api.delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await
                    .context(|| format!("delete the add-ons of cluster {cluster}"))?;
            }
            Delete::Works => self.delete_works(cluster).await?,
            Delete::WorksByForce => {
                // Guarded: an agent that reported what nobody can read is no reason to keep its cluster.
                let addons: Api<Guarded<ManagedClusterAddOn>> =
                    write::namespaced(&self.context.client, cluster);
                strip_and_delete(&addons).await?;
                let works: Api<Guarded<ManifestWork>> = write::namespaced(&self.context.client, cluster);
                strip_and_delete(&works).await?;
            }
        }
        Ok(())
    }

    /// How many works and add-ons the server has for a cluster; more than one counts as one.
    pub(super) async fn count_left(&self, cluster: &str) -> Result<(usize, usize), Error> {
        let works: Api<ManifestWork> = write::namespaced(&self.context.client, cluster);
        let addons: Api<ManagedClusterAddOn> = write::namespaced(&self.context.client, cluster);
        let one = ListParams::default().limit(1);
        let works = works
            .list_metadata(&one)
            .await
            .context(|| format!("count the works of cluster {cluster}"))?;
        let addons = addons
            .list_metadata(&one)
            .await
            .context(|| format!("count the add-ons of cluster {cluster}"))?;
        Ok((works.items.len(), addons.items.len()))
    }

    /// What the next cluster of this name must not find: accounts with their tokens, and the identity of the agent.
    pub(super) async fn clear_home(&self, cluster: &str) -> Result<(), Error> {
        let accounts: Api<ManagedServiceAccount> = write::namespaced(&self.context.client, cluster);
        accounts
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .context(|| format!("delete the accounts of cluster {cluster}"))?;
        let identities: Api<ServiceAccount> = write::namespaced(&self.context.client, cluster);
        write::delete(&identities, AGENT_ACCOUNT, None).await
    }

    async fn delete_works(&self, cluster: &str) -> Result<(), Error> {
        let api: Api<ManifestWork> = write::namespaced(&self.context.client, cluster);
        api.delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .context(|| format!("delete the works of cluster {cluster}"))?;
        Ok(())
    }
}

/// Deletes everything in the namespace and does not wait for whoever holds it back.
async fn strip_and_delete<K>(api: &Api<K>) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let list = api
        .list(&ListParams::default())
        .await
        .context(|| format!("list {kind}"))?;
    for object in list {
        let name = object.name_any();
        write::delete(api, &name, object.uid().as_deref()).await?;
        let patch = json!({"metadata": {"uid": object.uid(), "finalizers": null}});
        match api
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            answer => {
                answer.context(|| format!("release {kind} {name}"))?;
            }
        }
    }
    Ok(())
}
