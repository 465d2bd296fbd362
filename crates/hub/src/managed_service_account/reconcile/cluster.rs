//! One cluster: its add-on, and what its agent may do for accounts.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use writ_api::addon::ManagedClusterAddOn;
use writ_controller::{Error, Name, Next, error::Context as _, write};

use super::Reconciler;
use crate::{
    MANAGER,
    managed_service_account::{
        foreign_secrets::RECHECK,
        model::{ADDON, ADDON_ACCOUNT, ADDON_WORK, AGENT_ROLE, Credential, Granted},
        plan::{addon, addon_work, rights},
    },
    names::reserved,
    options::RegistrationDriver,
    registration::plan::agent_requests::agent_user,
};

/// How soon the add-on of a cluster is tried again whose namespace does not exist yet.
const NAMESPACE_MISSING: std::time::Duration = std::time::Duration::from_secs(1);

impl Reconciler {
    pub(super) async fn cluster(&self, name: &str) -> Result<Next, Error> {
        let cluster = self.caches.clusters.get(&Name::global(name));
        // A cluster of a reserved name, from before admission knew it, has no namespace of its own.
        let cluster = cluster.filter(|cluster| {
            cluster.spec.hub_accepts_client
                && cluster.metadata.deletion_timestamp.is_none()
                && reserved(name).is_none()
        });
        let add_on = self.caches.add_ons.get(&Name::new(name, ADDON));
        let add_on = add_on.filter(|add_on| add_on.metadata.deletion_timestamp.is_none());
        let (Some(cluster), Some(add_on)) = (&cluster, &add_on) else {
            self.revoke(name, add_on.as_deref()).await?;
            if cluster.is_some() && add_on.is_none() && self.options.install_everywhere {
                return self.install(name).await;
            }
            return Ok(Next::Wait);
        };
        let owner = addon::owner(add_on);
        let role = self.caches.roles.get(&Name::new(name, AGENT_ROLE));
        let (secrets, refused) = self.secret_names(name, role.as_deref()).await?;
        let granted = Granted {
            secrets,
            create: self.policy_holds()?,
            server: addon::api_server(cluster),
        };
        if granted.create || role.is_some() {
            let wanted = rights::role(name, &owner, &granted);
            self.ensure(name, role.as_deref(), &wanted).await?;
        }
        if !granted.create {
            // Without the policy on Secrets no agent may create any; its watch brings every cluster back.
            return Ok(Next::Wait);
        }
        let work = self.caches.works.get(&Name::new(name, ADDON_WORK));
        let ours = addon::runs_our_agent(cluster);
        let delivered = !ours && (work.is_some() || addon::has_joined(cluster));
        let credential = self.credential(name, &owner, delivered).await?;
        let given = matches!(credential, Credential::Token(Ok(_)));
        let binding = self.caches.role_bindings.get(&Name::new(name, AGENT_ROLE));
        let wanted = rights::role_binding(name, &owner, self.driver, agent_user(cluster), given);
        self.ensure(name, binding.as_deref(), &wanted).await?;
        if ours {
            if let Some(work) = &work {
                self.delete(name, &**work).await?;
            }
        } else if delivered {
            let wanted = addon_work::work(add_on, name, &self.options.agent_image);
            self.ensure(name, work.as_deref(), &wanted).await?;
        }
        let status = addon::status(add_on, cluster, work.as_deref(), &credential, self.now());
        let api: Api<ManagedClusterAddOn> = write::namespaced(&self.client, name);
        write::ensure_status(&api, &**add_on, &status, MANAGER).await?;
        let watched = self.foreign_secrets.watch_until_gone(name, &refused);
        Ok(if watched { Next::Wait } else { Next::After(RECHECK) })
    }

    /// Takes the agent's rights, then the identity of the add-on's agent: with it its tokens die, and a cluster that is
    /// accepted again gets new ones.
    async fn revoke(&self, name: &str, add_on: Option<&ManagedClusterAddOn>) -> Result<(), Error> {
        if let Some(binding) = self.caches.role_bindings.get(&Name::new(name, AGENT_ROLE)) {
            self.delete(name, &*binding).await?;
        }
        if let Some(role) = self.caches.roles.get(&Name::new(name, AGENT_ROLE)) {
            self.delete(name, &*role).await?;
        }
        let identity = self.caches.identities.get(&Name::new(name, ADDON_ACCOUNT));
        if let (Some(add_on), Some(identity)) = (add_on, identity)
            && rights::is_addon_account(&identity, &addon::owner(add_on))
        {
            self.delete(name, &*identity).await?;
        }
        Ok(())
    }

    /// Creates the ManagedClusterAddOn of a cluster that has none.
    async fn install(&self, name: &str) -> Result<Next, Error> {
        match self.ensure(name, None, &addon::wanted(name)).await {
            Err(error) if error.is_code(404) => Ok(Next::After(NAMESPACE_MISSING)),
            Err(error) if !error.is_code(409) => Err(error),
            _ => Ok(Next::Wait),
        }
    }

    /// How the add-on's agent comes to its credential. With the token driver that is an account of its own, which exists as
    /// long as the add-on is delivered.
    async fn credential(
        &self,
        cluster: &str,
        owner: &OwnerReference,
        delivered: bool,
    ) -> Result<Credential, Error> {
        let found = self.caches.identities.get(&Name::new(cluster, ADDON_ACCOUNT));
        let by_token = self.driver == RegistrationDriver::Token;
        if !by_token || !delivered {
            if let Some(found) = found.filter(|found| rights::is_addon_account(found, owner)) {
                self.delete(cluster, &*found).await?;
            }
            return Ok(if by_token {
                Credential::Token(Err("no agent has joined yet".into()))
            } else {
                let requested = self.caches.has_requested(cluster);
                Credential::Certificate { requested }
            });
        }
        let api: Api<ServiceAccount> = write::namespaced(&self.client, cluster);
        let what = || format!("ServiceAccount {cluster}/{ADDON_ACCOUNT}");
        // The cache may lag behind an account that was created a moment ago.
        let found = match found {
            Some(found) => Some((*found).clone()),
            None => api
                .get_opt(ADDON_ACCOUNT)
                .await
                .context(|| format!("read {}", what()))?,
        };
        let found = match found {
            Some(found) => found,
            None => api
                .create(&PostParams::default(), &rights::addon_account(cluster, owner))
                .await
                .context(|| format!("create {}", what()))?,
        };
        let why = if !rights::is_addon_account(&found, owner) {
            // Tokens of it may be in foreign hands, and would become the add-on's.
            "exists and was not made for this add-on; delete it"
        } else if found.metadata.deletion_timestamp.is_some() {
            "is being deleted"
        } else {
            return Ok(Credential::Token(Ok(found.uid().unwrap_or_default())));
        };
        Ok(Credential::Token(Err(format!("{} {why}", what()))))
    }

    /// Makes an object of a namespace hold everything that is wanted of it.
    async fn ensure<K>(&self, namespace: &str, current: Option<&K>, wanted: &K) -> Result<(), Error>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api: Api<K> = write::namespaced(&self.client, namespace);
        write::ensure(&api, current, wanted, MANAGER).await.map(drop)
    }

    async fn delete<K>(&self, namespace: &str, object: &K) -> Result<(), Error>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = write::namespaced(&self.client, namespace);
        write::delete(&api, &object.name_any(), object.uid().as_deref()).await
    }
}
