//! Works on one thing: reads the world, plans, writes the difference. Returns when to come back, if by itself.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use writ_api::{authentication::ManagedServiceAccount, proxy, work::ManifestWork};
use writ_controller::{Error, error::Context as _, write};

use super::{
    clusters,
    controller::{Key, Shared, read},
    foreign_secrets::{RECHECK, Strangers},
    mirror::Id,
    model::{ADDON, ADDON_ACCOUNT, ADDON_WORK, AGENT_ROLE, Credential, Granted, POLICY, Place},
    plan::{accounts, addon, addon_work, children, credential_request, older_group, policy, rights},
    write as exact,
};
use crate::{
    MANAGER,
    admission::managed_cluster::reserved,
    csr,
    options::{AccountOptions, RegistrationDriver},
    registration::plan::agent_requests::agent_user,
};

/// Does the work.
pub struct Worker {
    pub(super) client: Client,
    pub(super) world: Shared,
    pub(super) options: AccountOptions,
    /// The hub's option of that name.
    guard_default_key: bool,
    /// How agents prove who they are.
    driver: RegistrationDriver,
    /// Accounts whose Secret looks wrong, why, and since when.
    pub(super) suspects: Mutex<BTreeMap<Id, (String, Timestamp)>>,
    /// Whether the policy of these versions, and its binding, are as we want them.
    judged: Mutex<Option<(Versions, bool)>>,
    /// Secrets of somebody else that have the name of an account.
    pub(super) strangers: Strangers,
}

/// The resourceVersions of the policy and of its binding.
type Versions = (Option<String>, Option<String>);

/// When to come back, if by itself.
pub(super) type Due = Result<Option<Timestamp>, Error>;

impl Worker {
    /// A worker on this world.
    pub fn new(
        client: Client,
        world: Shared,
        options: AccountOptions,
        guard_default_key: bool,
        driver: RegistrationDriver,
        strangers: Strangers,
    ) -> Self {
        Self {
            client,
            world,
            options,
            guard_default_key,
            driver,
            suspects: Mutex::default(),
            judged: Mutex::default(),
            strangers,
        }
    }

    /// Works on one thing.
    pub async fn work(&self, key: &Key) -> Due {
        match key {
            Key::Policy => self.policy().await,
            Key::Cluster(name) => self.cluster(name).await,
            Key::Request(name) => self.request(name).await,
            Key::Owner(id) => self.owner(id).await,
            Key::Account(id) => self.account(id).await,
        }
    }

    async fn policy(&self) -> Due {
        let (policy, binding) = policy::policy()?;
        let (have_policy, have_binding) = {
            let world = read(&self.world);
            (
                world.policies.get("", POLICY).cloned(),
                world.policy_bindings.get("", POLICY).cloned(),
            )
        };
        let exact = ["/spec"];
        let api = Api::all(self.client.clone());
        exact::ensure(&api, have_policy.as_ref(), &policy, &exact).await?;
        let api = Api::all(self.client.clone());
        exact::ensure(&api, have_binding.as_ref(), &binding, &exact).await?;
        Ok(None)
    }

    /// Whether the policy is in place as we want it, as far as the watch has shown.
    fn policy_holds(&self) -> Result<bool, Error> {
        let world = read(&self.world);
        let policy = world.policies.get("", POLICY);
        let binding = world.policy_bindings.get("", POLICY);
        let (Some(policy), Some(binding)) = (policy, binding) else {
            return Ok(false);
        };
        let versions = (policy.resource_version(), binding.resource_version());
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, holds)) = judged.as_ref().filter(|(of, _)| *of == versions) {
            return Ok(*holds);
        }
        // To the letter: a selector or an exception more, and there are Secrets that it does not look at.
        let (want_policy, want_binding) = policy::policy()?;
        let holds = exact::change(policy, &want_policy, &["/spec"])?.is_none()
            && exact::change(binding, &want_binding, &["/spec"])?.is_none();
        *judged = Some((versions, holds));
        Ok(holds)
    }

    async fn cluster(&self, name: &str) -> Due {
        let (cluster, addon, role, role_binding, work, account) = {
            let world = read(&self.world);
            (
                world.clusters.get("", name).cloned(),
                world.addons.get(name, ADDON).cloned(),
                world.roles.get(name, AGENT_ROLE).cloned(),
                world.role_bindings.get(name, AGENT_ROLE).cloned(),
                world.works.get(name, ADDON_WORK).cloned(),
                world.identities.get(name, ADDON_ACCOUNT).cloned(),
            )
        };
        // One of a reserved name, from before admission knew it, is no cluster: its namespace is somebody else's.
        let accepted = cluster.filter(|cluster| {
            cluster.spec.hub_accepts_client
                && cluster.metadata.deletion_timestamp.is_none()
                && reserved(name).is_none()
        });
        let addon = addon.filter(|addon| addon.metadata.deletion_timestamp.is_none());
        let (Some(cluster), Some(addon)) = (&accepted, &addon) else {
            // Rights first: the rest does not matter to an agent that may do nothing.
            if let Some(binding) = role_binding {
                self.forget(name, &binding).await?;
            }
            if let Some(role) = role {
                self.forget(name, &role).await?;
            }
            // With the account its tokens die: a cluster that is accepted again gets new ones.
            if let (Some(addon), Some(account)) = (&addon, account)
                && rights::is_addon_account(&account, &addon::owner(addon))
            {
                self.forget(name, &account).await?;
            }
            if accepted.is_some() && addon.is_none() && self.options.install_everywhere {
                let api = write::namespaced(&self.client, name);
                match exact::ensure(&api, None, &addon::wanted(name), &[]).await {
                    Err(error) if error.is_code(409) => {}
                    // The namespace of the cluster is on its way.
                    Err(error) if error.is_code(404) => {
                        return Ok(Some(later(
                            self.options.clock.now(),
                            SignedDuration::from_secs(1),
                        )));
                    }
                    done => drop(done?),
                }
            }
            return Ok(None);
        };
        let owner = addon::owner(addon);
        let (secrets, refused) = self.secret_names(name, role.as_ref()).await?;
        let granted = Granted {
            secrets,
            create: self.policy_holds()?,
            server: addon::api_server(cluster),
        };
        if granted.create || role.is_some() {
            let api = write::namespaced(&self.client, name);
            exact::ensure(&api, role.as_ref(), &rights::role(name, &owner, &granted), &[]).await?;
        }
        if !granted.create {
            // Without the policy on Secrets no agent may create any; its watch brings every cluster back.
            return Ok(None);
        }
        let ours = addon::runs_our_agent(cluster);
        let delivered = !ours && (work.is_some() || addon::has_joined(cluster));
        let credential = self.credential(name, &owner, delivered, account).await?;
        let given = matches!(credential, Credential::Token(Ok(_)));
        let api = write::namespaced(&self.client, name);
        exact::ensure(
            &api,
            role_binding.as_ref(),
            &rights::role_binding(name, &owner, self.driver, agent_user(cluster), given),
            &[],
        )
        .await?;

        let works: Api<ManifestWork> = write::namespaced(&self.client, name);
        if ours {
            if let Some(work) = &work {
                write::delete(&works, ADDON_WORK, work.uid().as_deref()).await?;
            }
        } else if delivered {
            let wanted = addon_work::work(addon, name, &self.options.agent_image);
            exact::ensure(&works, work.as_ref(), &wanted, &[]).await?;
        }
        let status = addon::status(
            addon,
            cluster,
            work.as_ref(),
            &credential,
            self.options.clock.now(),
        );
        write::ensure_status(&write::namespaced(&self.client, name), addon, &status, MANAGER).await?;
        let followed = self.strangers.follow(&self.client, name, &refused);
        Ok((!followed).then(|| later(self.options.clock.now(), RECHECK)))
    }

    /// How the add-on's agent comes to its credential. With the token driver that is an account of its own, which is
    /// there as long as the add-on is delivered.
    async fn credential(
        &self,
        cluster: &str,
        owner: &OwnerReference,
        delivered: bool,
        there: Option<ServiceAccount>,
    ) -> Result<Credential, Error> {
        let made_for_it = |there: &ServiceAccount| rights::is_addon_account(there, owner);
        let by_token = self.driver == RegistrationDriver::Token;
        if !by_token || !delivered {
            if let Some(there) = there.filter(made_for_it) {
                self.forget(cluster, &there).await?;
            }
            return Ok(if by_token {
                Credential::Token(Err("no agent has joined yet".into()))
            } else {
                let requested = read(&self.world).has_requested(cluster);
                Credential::Certificate { requested }
            });
        }
        let api: Api<ServiceAccount> = write::namespaced(&self.client, cluster);
        let what = || format!("ServiceAccount {cluster}/{ADDON_ACCOUNT}");
        // The watch may not have shown yet what was made a moment ago.
        let there = match there {
            Some(there) => Some(there),
            None => api
                .get_opt(ADDON_ACCOUNT)
                .await
                .context(|| format!("read {}", what()))?,
        };
        let there = match there {
            Some(there) => there,
            None => api
                .create(&PostParams::default(), &rights::addon_account(cluster, owner))
                .await
                .context(|| format!("create {}", what()))?,
        };
        let why = if !made_for_it(&there) {
            // Whoever made it may hold tokens of it, which would become the add-on's.
            "exists and was not made for this add-on; delete it"
        } else if there.metadata.deletion_timestamp.is_some() {
            "is being deleted"
        } else {
            return Ok(Credential::Token(Ok(there.uid().unwrap_or_default())));
        };
        Ok(Credential::Token(Err(format!("{} {why}", what()))))
    }

    async fn forget<K>(&self, namespace: &str, object: &K) -> Result<(), Error>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = write::namespaced(&self.client, namespace);
        write::delete(&api, &object.name_any(), object.uid().as_deref()).await
    }

    async fn request(&self, name: &str) -> Due {
        let Some(request) = read(&self.world).requests.get("", name).cloned() else {
            return Ok(None);
        };
        if !csr::is_pending(&request) {
            return Ok(None);
        }
        if self.driver == RegistrationDriver::Token {
            // The rights are the account's: a certificate would be of no use, and would be a way in once they are not.
            return Ok(None);
        }
        let cluster = match credential_request::approvable_cluster(&request) {
            Ok(cluster) => cluster,
            Err(why) => {
                tracing::warn!(
                    request = name,
                    why,
                    "the request for the add-on's credential is not approved"
                );
                return Ok(None);
            }
        };
        let installed = {
            let world = read(&self.world);
            let accepted = world
                .clusters
                .get("", &cluster)
                .is_some_and(|cluster| cluster.spec.hub_accepts_client && !addon::runs_our_agent(cluster));
            accepted && world.addons.get(&cluster, ADDON).is_some()
        };
        if !installed {
            return Ok(None);
        }
        let message = format!("the add-on {ADDON} of cluster {cluster}");
        let now = self.options.clock.now();
        csr::approve(&self.client, &request, csr::AUTO_APPROVED, message, now).await?;
        Ok(None)
    }

    async fn owner(&self, id: &Id) -> Due {
        let (owner, account) = {
            let world = read(&self.world);
            (
                world.owners.get(&id.0, &id.1).cloned(),
                world.accounts.get(&id.0, &id.1).cloned(),
            )
        };
        let Some(owner) = owner.filter(|owner| owner.metadata.deletion_timestamp.is_none()) else {
            // The garbage collector takes what it owned.
            return Ok(None);
        };
        let now = self.options.clock.now();
        let mut refused = None;
        if account
            .as_ref()
            .is_none_or(|account| older_group::owns(&owner, account))
        {
            let exact = ["/spec"];
            let api = write::namespaced(&self.client, &id.0);
            match exact::ensure(&api, account.as_ref(), &older_group::owned(&owner), &exact).await {
                // Stored before its definition knew the bounds, or not to be had here: it is told why.
                Err(error) if matches!(error.code(), Some(400 | 403 | 422)) => refused = Some(error),
                done => drop(done?),
            }
        }
        let status = older_group::owner_status(&owner, account.as_ref(), refused.as_ref(), now);
        let api: Api<proxy::ManagedServiceAccount> = write::namespaced(&self.client, &id.0);
        match write::ensure_status(&api, &owner, &status, MANAGER).await {
            Err(error) if error.is_code(404) => {}
            done => drop(done?),
        }
        // A right or a policy may change without a word; what the object itself says does not.
        refused.filter(|error| error.is_code(403)).map_or(Ok(None), Err)
    }

    async fn account(&self, id: &Id) -> Due {
        let now = self.options.clock.now();
        let (account, seen) = {
            let world = read(&self.world);
            (
                world.accounts.get(&id.0, &id.1).cloned(),
                world.secrets.get(&id.0, &id.1).cloned(),
            )
        };
        let Some(account) = account else {
            return self.forget_secret(id, seen.as_ref()).await;
        };
        let (orphan, place, found) = {
            let world = read(&self.world);
            let orphan = children::has_parent(&account)
                && !world
                    .accounts
                    .named(&id.1)
                    .any(|(namespace, other)| namespace != id.0 && children::is_child(other, &account));
            let place = clusters::place(
                &id.0,
                &world.clusters,
                &world.sets,
                &world.bindings,
                self.guard_default_key,
            );
            let found: BTreeMap<String, ManagedServiceAccount> = world
                .accounts
                .named(&id.1)
                .filter(|(namespace, _)| *namespace != id.0)
                .map(|(namespace, account)| (namespace.to_owned(), account.clone()))
                .collect();
            (orphan, place, found)
        };
        let api: Api<ManagedServiceAccount> = write::namespaced(&self.client, &id.0);
        let deleting = account.metadata.deletion_timestamp.is_some();
        let ends = accounts::ends_at(&account);
        if !deleting && (orphan || ends.is_some_and(|ends| ends <= now)) {
            write::delete(&api, &id.1, account.uid().as_deref()).await?;
            return Ok(None);
        }
        let mut family = children::family(&account, &place, &found);
        for child in &family.surplus {
            let namespace = child.namespace().unwrap_or_default();
            let api: Api<ManagedServiceAccount> = write::namespaced(&self.client, &namespace);
            write::delete(&api, &id.1, child.uid().as_deref()).await?;
        }
        let mut failed = None;
        for child in &family.wanted {
            let namespace = child.namespace().unwrap_or_default();
            let api: Api<ManagedServiceAccount> = write::namespaced(&self.client, &namespace);
            // One cluster that cannot be served does not stop the others.
            if let Err(error) = exact::ensure(&api, found.get(&namespace), child, &["/spec"]).await
                && !error.is_code(409)
            {
                family.unwritten.insert(namespace, error.to_string());
                failed = Some(error);
            }
        }
        if place == Place::Cluster {
            if let Some(status) = children::childless_status(&account) {
                write::ensure_status(&api, &account, &status, MANAGER).await?;
            }
            let repair = self.repair(id, &account, seen.as_ref(), now).await?;
            return Ok(ends.into_iter().chain(repair).min());
        }
        if !deleting {
            let status = children::family_status(&account, &place, &family, &found, now);
            match write::ensure_status(&api, &account, &status, MANAGER).await {
                Err(error) if error.is_code(404) => {}
                done => drop(done?),
            }
        }
        failed.map_or(Ok(ends), Err)
    }

    pub(super) async fn annotate(
        &self,
        account: &ManagedServiceAccount,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), Error> {
        let namespace = account.namespace().unwrap_or_default();
        let name = account.name_any();
        let api: Api<ManagedServiceAccount> = write::namespaced(&self.client, &namespace);
        let patch = json!({ "metadata": { "uid": account.uid(), "annotations": { key: value } } });
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        api.patch(&name, &params, &Patch::Merge(&patch))
            .await
            .context(|| format!("annotate ManagedServiceAccount {namespace}/{name}"))?;
        Ok(())
    }
}

/// A time and a while.
pub(super) fn later(time: Timestamp, delay: SignedDuration) -> Timestamp {
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}
