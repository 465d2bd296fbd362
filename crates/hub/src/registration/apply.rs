//! The writes of the registration controller, each only where something differs.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

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
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster, managed_cluster::Taint},
    work::ManifestWork,
};
use writ_controller::{
    Error, Name,
    condition::{self, Wanted},
    error::Context as _,
    tolerant::Tolerant,
    write::{self, Ensure},
};

use super::observe::{Caches, cluster_of};
use crate::{
    Context, MANAGER,
    agent_identity::AGENT_ACCOUNT,
    names::reserved,
    options::Options,
    registration::{
        model::{CLUSTER_UID_ANNOTATION, Delete, FINALIZER, LABEL, LEASE, Level, TAKEN_OVER_ANNOTATION},
        plan::{agent_requests::agent_user, cluster::has_finalizer, rights},
    },
};

/// Writes what a plan wants.
pub struct Apply {
    client: Client,
    options: Arc<Options>,
    caches: Arc<Caches>,
}

impl Apply {
    /// Compares with what these caches show.
    pub fn new(context: &Context, caches: Arc<Caches>) -> Self {
        Self {
            client: context.client.clone(),
            options: context.options.clone(),
            caches,
        }
    }

    fn clusters(&self) -> Api<ManagedCluster> {
        Api::all(self.client.clone())
    }

    /// The finalizer, and with it what is recorded once.
    pub async fn finalizer(
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

    /// The namespace of a cluster.
    pub async fn namespace(&self, cluster: &str) -> Result<(), Error> {
        let wanted = Namespace {
            metadata: ObjectMeta {
                name: Some(cluster.into()),
                labels: Some(of_cluster(cluster)),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let current = self.caches.namespaces.get(&Name::global(cluster));
        self.adopt(&Api::all(self.client.clone()), current.as_deref(), &wanted)
            .await
    }

    /// The lease of a cluster, which its agent renews from then on.
    pub async fn lease(&self, cluster: &str, exists: bool) -> Result<(), Error> {
        if exists {
            return Ok(());
        }
        let leases: Api<Lease> = write::namespaced(&self.client, cluster);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(LEASE.into()),
                namespace: Some(cluster.into()),
                labels: Some(of_cluster(cluster)),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(LEASE.into()),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        match write::create(&leases, &lease, MANAGER).await {
            Err(error) if error.is_code(409) => Ok(()),
            done => done,
        }
    }

    /// Creates or changes an object, also one that exists without our label.
    async fn adopt<K>(&self, api: &Api<K>, current: Option<&K>, wanted: &K) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let ensure = Ensure::new(api, MANAGER).adopt(&|_| true);
        ensure.run(current, wanted).await.map(drop)
    }

    /// The rights of a cluster's agent; those that it had and should not have are deleted, bindings before roles.
    pub async fn rights(
        &self,
        cluster: &str,
        of: Option<&ManagedCluster>,
        level: Level,
    ) -> Result<(), Error> {
        let agent = of.and_then(agent_user);
        let (kind, driver) = (self.options.agent_rights, self.options.registration_driver);
        let wanted = rights::of(cluster, level, kind, driver, agent);
        let client = &self.client;
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let cluster_bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let bindings: Api<RoleBinding> = write::namespaced(client, cluster);
        for role in &wanted.roles {
            let is_for = |live: &ClusterRole| rights::is_for(live, cluster);
            let current = self.own_role(&role.name_any());
            let ensure = Ensure::new(&roles, MANAGER).adopt(&is_for);
            ensure.run(current.as_deref(), role).await?;
        }
        if let (Some(account), Some(of)) = (wanted.account, of) {
            self.account(of, account).await?;
        }
        for binding in &wanted.cluster_bindings {
            let current = self.caches.cluster_bindings.get(&Name::of(binding));
            self.adopt(&cluster_bindings, current.as_deref(), binding).await?;
        }
        for binding in &wanted.bindings {
            let current = self.caches.bindings.get(&Name::of(binding));
            self.adopt(&bindings, current.as_deref(), binding).await?;
        }
        for (name, binding) in self.caches.bindings.in_namespace(cluster) {
            if !wanted.bindings.iter().any(|w| w.name_any() == *name.name) {
                write::delete(&bindings, &name.name, binding.uid().as_deref()).await?;
            }
        }
        let names = rights::names(cluster);
        for name in &names {
            if let Some(binding) = self.caches.cluster_bindings.get(&Name::global(name.as_str()))
                && cluster_of(&*binding) == Some(cluster)
                && !wanted.cluster_bindings.iter().any(|w| w.name_any() == *name)
            {
                write::delete(&cluster_bindings, name, binding.uid().as_deref()).await?;
            }
        }
        for name in &names {
            // A role that all clusters share stays, whatever its label says.
            if let Some(role) = self.own_role(name)
                && cluster_of(&*role) == Some(cluster)
                && reserved(cluster).is_none()
                && !wanted.roles.iter().any(|w| w.name_any() == *name)
            {
                write::delete(&roles, name, role.uid().as_deref()).await?;
            }
        }
        Ok(())
    }

    /// The ClusterRole of that name, if this controller made it.
    fn own_role(&self, name: &str) -> Option<Arc<ClusterRole>> {
        let role = self.caches.cluster_roles.get(&Name::global(name))?;
        role.labels().contains_key(LABEL).then_some(role)
    }

    /// The account of a cluster's agent, for this very cluster. The account of a former cluster is deleted first, and its
    /// tokens with it: they may be in foreign hands.
    async fn account(&self, cluster: &ManagedCluster, mut wanted: ServiceAccount) -> Result<(), Error> {
        let name = cluster.name_any();
        let accounts: Api<ServiceAccount> = write::namespaced(&self.client, &name);
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

    /// The taints, if they should change.
    pub async fn taints(&self, cluster: &mut ManagedCluster, taints: Option<&[Taint]>) -> Result<(), Error> {
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

    /// The conditions; others stay.
    pub async fn conditions(&self, cluster: &mut ManagedCluster, wanted: &[Wanted]) -> Result<(), Error> {
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
        // The agent writes conditions too: the version makes sure that none of its writes is lost.
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
            // The cluster was written meanwhile; the event of that write brings it back.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => {
                *cluster = answer.context(|| format!("report the status of ManagedCluster {name}"))?;
                Ok(())
            }
        }
    }

    /// The next step of a detach.
    pub async fn delete(&self, cluster: &str, what: Delete) -> Result<(), Error> {
        match what {
            Delete::Nothing => {}
            Delete::AddOns => {
                let api: Api<ManagedClusterAddOn> = write::namespaced(&self.client, cluster);
                api.delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await
                    .context(|| format!("delete the add-ons of cluster {cluster}"))?;
            }
            Delete::Works => self.delete_works(cluster).await?,
            Delete::WorksByForce => {
                // An object that does not parse must not keep its cluster.
                let addons: Api<Tolerant<ManagedClusterAddOn>> = write::namespaced(&self.client, cluster);
                strip_and_delete(&addons).await?;
                let works: Api<Tolerant<ManifestWork>> = write::namespaced(&self.client, cluster);
                strip_and_delete(&works).await?;
            }
        }
        Ok(())
    }

    /// How many works and add-ons the server has for a cluster; more than one counts as one.
    pub async fn count_remaining(&self, cluster: &str) -> Result<(usize, usize), Error> {
        let works: Api<ManifestWork> = write::namespaced(&self.client, cluster);
        let addons: Api<ManagedClusterAddOn> = write::namespaced(&self.client, cluster);
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

    /// Deletes what the next cluster of this name must not find: accounts with their tokens, and the agent's identity.
    pub async fn clear_namespace(&self, cluster: &str) -> Result<(), Error> {
        let accounts: Api<ManagedServiceAccount> = write::namespaced(&self.client, cluster);
        accounts
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .context(|| format!("delete the accounts of cluster {cluster}"))?;
        let identities: Api<ServiceAccount> = write::namespaced(&self.client, cluster);
        write::delete(&identities, AGENT_ACCOUNT, None).await
    }

    async fn delete_works(&self, cluster: &str) -> Result<(), Error> {
        let api: Api<ManifestWork> = write::namespaced(&self.client, cluster);
        api.delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .context(|| format!("delete the works of cluster {cluster}"))?;
        Ok(())
    }
}

/// The label of what belongs to a cluster.
fn of_cluster(cluster: &str) -> BTreeMap<String, String> {
    [(CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned())].into()
}

/// Deletes everything in the namespace, and the finalizers that hold it back.
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
