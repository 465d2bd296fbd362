//! From the caches to what is observed of one permission.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use k8s_openapi::{api::rbac::v1::PolicyRule, jiff::Timestamp};
use kube::{Api, Resource, ResourceExt as _};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, managed_cluster::CONDITION_AVAILABLE},
    rbac::ClusterPermission,
    work::{Executor, ExecutorServiceAccount, ExecutorSubject, ExecutorSubjectType, ManifestWork},
};
use writ_controller::{
    Cache, Error, Name, Watch,
    condition::{self, clip},
};

use super::{
    dependents,
    model::{Account, AddOn, HubNamespaces, HubRole, Limits, NotSynced, ObjectId, Observation, SelectedBy},
    naming::{self, MAX_PARTS},
    spec::{
        references::{account_names, hub_roles, uses_selector},
        validate::filled,
    },
};
use crate::{Context, caches::works_of_permission, options::NamespaceSelector};

/// How long a process that starts may take to read what permissions refer to before it reports that it has not.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The add-on that keeps the ServiceAccounts of ManagedServiceAccounts.
const ADD_ON: &str = "managed-serviceaccount";

/// Observes permissions in the caches of the process.
pub struct Observer {
    context: Context,
    /// All permissions, indexed by [`dependents::index`].
    pub permissions: Cache<ClusterPermission>,
    executor: Option<Executor>,
    /// When the first permission was observed.
    started: OnceLock<Instant>,
}

impl Observer {
    /// Starts to watch permissions.
    pub fn start(context: &Context) -> Result<Self, Error> {
        let executor = context.options.permission_executor.as_deref().map(executor);
        Ok(Self {
            permissions: Watch::new(Api::all(context.client.clone()))
                .compressed()
                .index(dependents::index)
                .start(&context.shutdown),
            context: context.clone(),
            executor: executor.transpose()?,
            started: OnceLock::new(),
        })
    }

    /// What is observed of a permission, given the works that it owns. The error says how long to wait first: a process that
    /// starts has not read everything, and reports nothing of it yet.
    pub fn observe(
        &self,
        permission: &Arc<ClusterPermission>,
        owned: &[Arc<ManifestWork>],
    ) -> Result<Observation, Duration> {
        let caches = &self.context.caches;
        let namespace = permission.namespace().unwrap_or_default();
        let cluster = caches.clusters().get(&Name::global(&*namespace));
        let selected_by = selected_by(self.context.options.namespace_selector, cluster.as_deref());
        let account_names = account_names(permission);
        let not_synced = self.not_synced(permission, !account_names.is_empty(), selected_by);
        let neighbours = self.neighbours(permission);
        let selects = uses_selector(permission) || neighbours.iter().any(|other| uses_selector(other));
        let hub_namespaces = selects.then(|| self.hub_namespaces()).flatten();
        let misses_namespaces = selects && selected_by == SelectedBy::Hub && hub_namespaces.is_none();
        let started = self.started.get_or_init(Instant::now);
        if (not_synced.any() || misses_namespaces)
            && let Some(left) = READ_WITHIN.checked_sub(started.elapsed())
        {
            return Err(left);
        }
        let add_on_of_cluster = caches.add_ons().get(&Name::new(&*namespace, ADD_ON));
        Ok(Observation {
            works: self.numbered_works(permission, owned),
            cluster,
            accounts: self.accounts(&namespace, account_names),
            add_on: add_on(add_on_of_cluster.as_deref()),
            hub_roles: self.hub_roles(permission),
            permission: permission.clone(),
            selected_by,
            hub_namespaces,
            not_synced,
            neighbours,
            executor: self.executor.clone(),
            limits: Limits::within(self.context.options.admission.manifest_limit),
            now: Timestamp::now(),
        })
    }

    /// The works that a permission of this name owns, or an earlier one of this name.
    pub fn owned_works(&self, name: &Name) -> Vec<Arc<ManifestWork>> {
        let owned = works_of_permission(&name.namespace, &name.name);
        let works = self.context.caches.works().all_indexed(owned);
        works.into_iter().map(|(_, work)| work).collect()
    }

    /// The cluster of a permission.
    pub fn cluster(&self, name: &Name) -> Option<Arc<ManagedCluster>> {
        let clusters = self.context.caches.clusters();
        clusters.get(&Name::global(name.namespace.clone()))
    }

    /// The kinds that this permission refers to and that have not been read: that their objects are absent must revoke nothing.
    fn not_synced(
        &self,
        permission: &ClusterPermission,
        names_accounts: bool,
        selected_by: SelectedBy,
    ) -> NotSynced {
        let caches = &self.context.caches;
        let accounts_ready = || caches.accounts().is_ready() && caches.add_ons().is_ready();
        let roles_ready = || caches.roles().is_ready() && caches.cluster_roles().is_ready();
        let by_hub = selected_by == SelectedBy::Hub && uses_selector(permission);
        NotSynced {
            accounts: names_accounts && !accounts_ready(),
            roles: !permission.spec.role_refs.is_empty() && !roles_ready(),
            namespaces: by_hub && !caches.namespaces().is_ready(),
        }
    }

    /// The works of a permission by number. A work whose owner reference was removed is found by its name.
    fn numbered_works(
        &self,
        permission: &ClusterPermission,
        owned: &[Arc<ManifestWork>],
    ) -> BTreeMap<usize, Arc<ManifestWork>> {
        let namespace: Arc<str> = permission.namespace().unwrap_or_default().into();
        let find = |name: String| {
            let mut owned = owned.iter();
            let found = owned.find(|work| work.metadata.name.as_ref() == Some(&name));
            let works = self.context.caches.works();
            found
                .cloned()
                .or_else(|| works.get(&Name::new(namespace.clone(), name)))
        };
        let numbered = (1..=MAX_PARTS).map(|part| Some((part, find(naming::work(permission, part))?)));
        numbered.flatten().collect()
    }

    /// The other permissions of the cluster that name an object of the same kind and name, and stay.
    fn neighbours(&self, permission: &ClusterPermission) -> Vec<Arc<ClusterPermission>> {
        let names = dependents::neighbours(&self.permissions, permission).into_iter();
        names
            .filter_map(|name| self.permissions.get(&name))
            .filter(|other| other.metadata.deletion_timestamp.is_none())
            .collect()
    }

    /// The hub's namespaces that stay; `None` if they have not been read.
    fn hub_namespaces(&self) -> Option<HubNamespaces> {
        let namespaces = self.context.caches.namespaces();
        let stay = || {
            let all = namespaces.all().into_iter().map(|(_, namespace)| namespace);
            all.filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
        };
        namespaces.is_ready().then(|| {
            stay()
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect()
        })
    }

    fn accounts(&self, namespace: &str, names: BTreeSet<String>) -> BTreeMap<String, Account> {
        let accounts = names.into_iter().filter_map(|name| {
            let cached = Name::new(namespace, name.as_str());
            let found = self.context.caches.accounts().get(&cached)?;
            Some((name, account(&found)?))
        });
        accounts.collect()
    }

    fn hub_roles(&self, permission: &ClusterPermission) -> BTreeMap<ObjectId, HubRole> {
        let caches = &self.context.caches;
        let roles = hub_roles(permission).filter_map(|id| {
            let role = if &*id.kind == "ClusterRole" {
                let role = caches.cluster_roles().get(&id.name)?;
                hub_role(&*role, role.rules.as_deref())
            } else {
                let role = caches.roles().get(&id.name)?;
                hub_role(&*role, role.rules.as_deref())
            };
            Some((id, role))
        });
        roles.collect()
    }
}

/// The ServiceAccount `namespace/name` as the executor of works.
fn executor(text: &str) -> Result<Executor, Error> {
    let parts = text
        .split_once('/')
        .filter(|(ns, name)| !ns.is_empty() && !name.is_empty() && !name.contains('/'));
    let (namespace, name) = parts.ok_or_else(|| {
        Error::Invalid(format!(
            "the permission executor {text:?} is not of the form namespace/name"
        ))
    })?;
    Ok(Executor {
        subject: Some(ExecutorSubject {
            type_: ExecutorSubjectType::ServiceAccount,
            service_account: Some(ExecutorServiceAccount {
                namespace: namespace.into(),
                name: name.into(),
            }),
        }),
    })
}

/// Whether the cluster is available.
pub fn is_available(cluster: Option<&ManagedCluster>) -> bool {
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    status.is_some_and(|status| condition::is_true(&status.conditions, CONDITION_AVAILABLE))
}

/// Where the namespace selectors of this cluster's permissions are evaluated.
pub fn selected_by(mode: NamespaceSelector, cluster: Option<&ManagedCluster>) -> SelectedBy {
    let agent_selects = || {
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        let says = cluster.and_then(|cluster| cluster.agent_runs("grants"));
        // A cluster that has not reported yet may have either kind of agent; the hub's namespaces are never a guess for its own.
        says.unwrap_or_else(|| {
            status.is_none_or(|s| condition::find(&s.conditions, CONDITION_AVAILABLE).is_none())
        })
    };
    match mode {
        NamespaceSelector::Agent => SelectedBy::Agent,
        NamespaceSelector::Auto if agent_selects() => SelectedBy::Agent,
        NamespaceSelector::Auto | NamespaceSelector::Hub => SelectedBy::Hub,
    }
}

/// The namespace of ServiceAccounts, as the add-on says.
pub fn add_on(add_on: Option<&ManagedClusterAddOn>) -> AddOn {
    let Some(add_on) = add_on.filter(|a| a.metadata.deletion_timestamp.is_none()) else {
        return AddOn::Missing;
    };
    let status = add_on.status.as_ref();
    let reported = status.and_then(|status| filled(status.namespace.as_deref()));
    match reported.or_else(|| filled(Some(&add_on.spec.install_namespace))) {
        Some(namespace) => AddOn::Namespace(namespace.to_owned()),
        None => AddOn::NoNamespace,
    }
}

/// A ManagedServiceAccount; `None` if it is being deleted.
pub fn account(account: &ManagedServiceAccount) -> Option<Account> {
    if account.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = account.status.as_ref();
    let refused = status.and_then(|status| status.not_own());
    Some(refused.map_or(Account::Own, |said| {
        Account::NotOwn(format!("{}: {}", said.reason, clip(&said.message, 500)))
    }))
}

/// A role of the hub.
pub fn hub_role<K: Resource>(role: &K, rules: Option<&[PolicyRule]>) -> HubRole {
    let meta = role.meta();
    let labels = meta.labels.as_ref();
    let bootstrapping = labels.and_then(|labels| labels.get("kubernetes.io/bootstrapping"));
    let name = meta.name.as_deref().unwrap_or_default();
    HubRole {
        rules: rules.unwrap_or_default().to_vec(),
        built_in: name.starts_with("system:") || bootstrapping.is_some_and(|v| v == "rbac-defaults"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use writ_api::cluster::cluster_claim::CLAIM_AGENT;

    use super::*;

    #[test]
    fn agent_selects_where_it_reports_the_feature() {
        let cluster = |status: serde_json::Value| -> ManagedCluster {
            serde_json::from_value(
                json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": {"name": "c"}, "spec": {"hubAcceptsClient": true}, "status": status}),
            )
            .unwrap()
        };
        let available = json!([{"type": CONDITION_AVAILABLE, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let claim = |value: &str| json!({"conditions": available, "clusterClaims": [{"name": CLAIM_AGENT, "value": value}]});
        let selects = |mode, cluster: Option<&_>| selected_by(mode, cluster) == SelectedBy::Agent;
        let auto = |status| selects(NamespaceSelector::Auto, Some(&cluster(status)));
        assert!(auto(claim("tokens, grants,work")));
        assert!(!auto(claim("tokens,work")));
        assert!(!auto(json!({ "conditions": available })), "OCM's agent");
        assert!(auto(json!({})), "nothing is known yet");
        assert!(selects(NamespaceSelector::Agent, None));
        assert!(!selects(NamespaceSelector::Hub, Some(&cluster(claim("grants")))));
    }

    #[test]
    fn executor_is_a_namespace_and_a_name() {
        let account = executor("ns/name").unwrap();
        assert_eq!(
            account.service_account().unwrap().user(),
            "system:serviceaccount:ns:name"
        );
        for wrong in ["name", "/name", "ns/", "a/b/c"] {
            assert!(executor(wrong).is_err(), "{wrong}");
        }
    }
}
