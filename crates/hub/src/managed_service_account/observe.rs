//! What is observed of accounts, clusters and add-ons: the caches that this controller reads.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    certificates::v1::CertificateSigningRequest,
    core::v1::{Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, ResourceExt as _};
use writ_api::{
    addon::{LABEL_ADDON, ManagedClusterAddOn},
    authentication::{ANNOTATION_TOKEN_REQUEST, LABEL_MANAGED, ManagedServiceAccount, digest},
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding},
    proxy,
    work::ManifestWork,
};
use writ_controller::{
    Cache, Name, Watch,
    cache::{Change, index_key},
};

use super::{
    model::{ADDON, ADDON_ACCOUNT, AGENT_ROLE, POLICY, Place, SeenSecret},
    plan::{bound_clusters, credential_request::approvable_cluster},
};
use crate::{Context, caches::accounts_of_name};

/// The caches that this controller reads.
pub struct Caches {
    /// Accounts.
    pub accounts: Cache<ManagedServiceAccount>,
    /// Accounts of the older group.
    pub owners: Cache<proxy::ManagedServiceAccount>,
    /// Clusters.
    pub clusters: Cache<ManagedCluster>,
    /// Sets of clusters.
    pub sets: Cache<ManagedClusterSet>,
    /// Bindings of sets to namespaces.
    pub set_bindings: Cache<ManagedClusterSetBinding>,
    /// Add-ons of clusters.
    pub add_ons: Cache<ManagedClusterAddOn>,
    /// ManifestWorks.
    pub works: Cache<ManifestWork>,
    /// The accounts' Secrets, without their secret data.
    pub secrets: Cache<SeenSecret>,
    /// Certificate requests for the add-on.
    pub requests: Cache<CertificateSigningRequest>,
    /// The admission policy on Secrets.
    pub policies: Cache<ValidatingAdmissionPolicy>,
    /// Its binding.
    pub policy_bindings: Cache<ValidatingAdmissionPolicyBinding>,
    /// Roles.
    pub roles: Cache<Role>,
    /// The bindings of the agents' Roles.
    pub role_bindings: Cache<RoleBinding>,
    /// The ServiceAccounts of add-on agents, where the token driver is used.
    pub identities: Cache<ServiceAccount>,
    /// `--guard-default-key`.
    guard_default_key: bool,
}

impl Caches {
    /// Starts the watches that no other controller shares.
    pub fn start(context: &Context) -> Self {
        let (client, shutdown, shared) = (&context.client, &context.shutdown, &context.caches);
        let named = |name: &str| format!("metadata.name={name}");
        Self {
            accounts: shared.accounts().clone(),
            owners: Watch::new(Api::all(client.clone())).start(shutdown),
            clusters: shared.clusters().clone(),
            sets: shared.sets().clone(),
            set_bindings: shared.set_bindings().clone(),
            add_ons: shared.add_ons().clone(),
            works: shared.works().clone(),
            secrets: Watch::new(Api::all(client.clone()))
                .labels(&format!("{LABEL_MANAGED}=true"))
                .keep(|secret| SeenSecret::of(&secret))
                .start(shutdown),
            requests: Watch::new(Api::all(client.clone()))
                .labels(&format!("{LABEL_ADDON}={ADDON}"))
                .index(|request: &CertificateSigningRequest| {
                    let cluster = request.labels().get(CLUSTER_NAME_LABEL);
                    cluster.map(index_key).into_iter().collect()
                })
                .start(shutdown),
            policies: Watch::new(Api::all(client.clone()))
                .fields(&named(POLICY))
                .start(shutdown),
            policy_bindings: Watch::new(Api::all(client.clone()))
                .fields(&named(POLICY))
                .start(shutdown),
            roles: shared.roles().clone(),
            role_bindings: Watch::new(Api::all(client.clone()))
                .fields(&named(AGENT_ROLE))
                .start(shutdown),
            identities: Watch::new(Api::all(client.clone()))
                .fields(&named(ADDON_ACCOUNT))
                .start(shutdown),
            guard_default_key: context.options.guards.default_key,
        }
    }

    /// Returns true if the namespace is a cluster's.
    pub fn is_of_cluster(&self, namespace: &str) -> bool {
        let cluster = self.clusters.get(&Name::global(namespace));
        cluster.is_some_and(|cluster| bound_clusters::has_namespace(&cluster))
    }

    /// Where an account in this namespace is.
    pub fn place(&self, namespace: &str) -> Place {
        let own = self.clusters.get(&Name::global(namespace));
        let bindings = self.set_bindings.in_namespace(namespace);
        bound_clusters::place(
            own.as_deref(),
            bindings.iter().map(|(_, binding)| &**binding),
            |set| self.sets.get(&Name::global(set)),
            || {
                self.clusters
                    .all()
                    .into_iter()
                    .map(|(_, cluster)| cluster)
                    .collect()
            },
            self.guard_default_key,
        )
    }

    /// The accounts of this name in all namespaces.
    pub fn accounts_named(&self, name: &str) -> Vec<(Name, Arc<ManagedServiceAccount>)> {
        self.accounts.all_indexed(accounts_of_name(name))
    }

    /// The accounts outside of cluster namespaces: those that may have children.
    pub fn parents(&self) -> Vec<Name> {
        let mut names = self.accounts.names();
        names.retain(|name| !self.is_of_cluster(&name.namespace));
        names
    }

    /// Returns true if an agent of that cluster has asked for the add-on's credential.
    pub fn has_requested(&self, cluster: &str) -> bool {
        let requests = self.requests.all_indexed(index_key(cluster));
        requests
            .iter()
            .any(|(_, request)| approvable_cluster(request).is_ok())
    }
}

impl SeenSecret {
    /// What is kept of a Secret.
    pub fn of(secret: &Secret) -> Self {
        Self {
            digest: digest::of(secret),
            version: secret.resource_version().unwrap_or_default(),
            uid: secret.uid().unwrap_or_default(),
            orphaned: secret.owner_references().is_empty()
                && secret.annotations().contains_key(ANNOTATION_TOKEN_REQUEST),
        }
    }
}

/// The last version of each account's Secret that was deleted: two deletions in a row are two reasons for a repair.
#[derive(Default)]
pub struct DeletedSecrets {
    versions: Mutex<HashMap<Name, String>>,
}

impl DeletedSecrets {
    /// Takes in a change of a Secret.
    pub fn take(&self, change: &Change<'_, SeenSecret>) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        match change.old().filter(|_| change.is_gone()) {
            Some(secret) => versions.insert(change.name.clone(), secret.version.clone()),
            None => versions.remove(&change.name),
        };
    }

    /// Forgets the Secret of an account that is gone.
    pub fn forget(&self, name: &Name) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.remove(name);
    }

    /// The version at which the Secret of this account was deleted.
    pub fn version(&self, name: &Name) -> Option<String> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(name).cloned()
    }
}
