//! Watches everything that can change the answer, plans, and writes the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{core::v1::Namespace, rbac::v1 as rbac},
    jiff::Timestamp,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, cluster_claim::CLAIM_AGENT, managed_cluster::CONDITION_AVAILABLE},
    rbac::{ClusterPermission, cluster_permission::MANAGED_SERVICE_ACCOUNT_KIND},
    work::{Executor, ExecutorServiceAccount, ExecutorSubject, ExecutorSubjectType, ManifestWork},
};
use writ_runtime::{
    Error, apply, condition,
    error::Context as _,
    queue::{Next, Queue},
};

use super::{
    build::Id,
    names::{self, MAX_PARTS},
    plan::{self, AddOn, HubRole, Observation, Plan},
    split::Limits,
    status::{self, Refused},
    validate::{self, filled},
    watches::{Key, Watches},
};
use crate::{Context, MANAGER, options::NamespaceSelector};

/// How many permissions are worked on at the same time.
const CONCURRENCY: usize = 8;

/// The add-on that keeps the ServiceAccounts of ManagedServiceAccounts.
const ADD_ON: &str = "managed-serviceaccount";

/// Runs the controller until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let executor = context
        .options
        .permission_executor
        .as_deref()
        .map(executor)
        .transpose()?;
    let queue = Queue::default();
    let watches = Watches::start(&context, &queue);
    tokio::select! {
        () = context.shutdown.cancelled() => return Ok(()),
        () = watches.ready() => {}
    }
    let shutdown = context.shutdown.clone();
    let controller = Arc::new(Reconciler {
        context,
        watches,
        executor,
    });
    queue
        .run(CONCURRENCY, &shutdown, move |key: Key| {
            let controller = controller.clone();
            async move {
                match controller.reconcile(&key).await {
                    Ok(next) => next,
                    Err(error) => {
                        tracing::warn!(permission = %key, %error, "cannot reconcile, will try again");
                        Next::Retry
                    }
                }
            }
        })
        .await;
    Ok(())
}

/// `namespace/name` of a ServiceAccount, as the executor of works.
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

struct Reconciler {
    context: Context,
    watches: Watches,
    executor: Option<Executor>,
}

impl Reconciler {
    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(permission) = self.watches.permissions.get(&key.namespace, &key.name) else {
            return self.gone(key).await;
        };
        if permission.metadata.deletion_timestamp.is_some() {
            self.delete_works(key).await?;
            return Ok(Next::Wait);
        }
        if !self.watches.knows_enough(&permission) {
            // Absence revokes, a failed read never does. The watch will say when it has the answer.
            tracing::info!(permission = %key, "waits for watches that are not initialised");
            return Ok(Next::Wait);
        }
        let works = self.works(&permission);
        let borrowed: BTreeMap<usize, &ManifestWork> = works.iter().map(|(n, w)| (*n, w)).collect();
        let cluster = self.watches.clusters.get(&ObjectRef::new(&key.namespace));
        let add_on = self
            .watches
            .add_ons
            .get(&ObjectRef::new(ADD_ON).within(&key.namespace));
        let namespaces = self.hub_namespaces(&permission, cluster.as_deref());
        let seen = Observation {
            permission: &permission,
            works: &borrowed,
            cluster: cluster.as_deref(),
            accounts: &self.accounts(&permission),
            add_on: add_on_namespace(add_on.as_deref()),
            hub_roles: &self.hub_roles(&permission),
            hub_namespaces: namespaces.as_deref(),
            executor: self.executor.as_ref(),
            limits: Limits::default(),
            now: Timestamp::now(),
        };
        let plan = plan::plan(&seen);
        let (refused, failed) = self.write(&seen, &plan).await;
        let status = status::status(&seen, &plan, &refused);
        let api: Api<ClusterPermission> = apply::namespaced(&self.context.client, &key.namespace);
        apply::ensure_status(&api, &permission, &status, MANAGER).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Next::Wait),
        }
    }

    /// Writes the works that differ, then deletes the ones that are not wanted. A refusal is the first result;
    /// the second is the error to retry for.
    async fn write(&self, seen: &Observation<'_>, plan: &Plan) -> (Refused, Option<Error>) {
        let (mut refused, mut failed) = (Refused::new(), None);
        for (number, wanted) in &plan.works {
            let current = seen.works.get(number).copied();
            let Err(error) = self.ensure_work(current, wanted).await else {
                continue;
            };
            if error.is_code(409) {
                // The cache is behind; the watch brings the news.
                failed = Some(error);
                continue;
            }
            refused.insert(*number, error.to_string());
            if let Some(current) = current.filter(|_| [400, 403, 413, 422].iter().any(|c| error.is_code(*c)))
            {
                let reduced = self.reduce(current, wanted).await;
                failed = reduced.err().or(failed);
            }
            failed = Some(failed.unwrap_or(error));
        }
        for number in &plan.delete {
            let Some(work) = seen
                .works
                .get(number)
                .filter(|w| w.metadata.deletion_timestamp.is_none())
            else {
                continue;
            };
            failed = self.delete_work(work).await.err().or(failed);
        }
        (refused, failed)
    }

    async fn ensure_work(&self, current: Option<&ManifestWork>, wanted: &ManifestWork) -> Result<(), Error> {
        let namespace = wanted.namespace().unwrap_or_default();
        let api: Api<ManifestWork> = apply::namespaced(&self.context.client, &namespace);
        let name = wanted.name_any();
        let Some(current) = current else {
            let params = PostParams {
                field_manager: Some(MANAGER.into()),
                ..PostParams::default()
            };
            api.create(&params, wanted)
                .await
                .context(|| format!("create ManifestWork {namespace}/{name}"))?;
            return Ok(());
        };
        if current.metadata.deletion_timestamp.is_some() {
            // It cannot be saved any more; when it is gone the watch brings us back to make it again.
            return Ok(());
        }
        let owners = wanted.owner_references();
        if let Some(other) = current.owner_references().iter().find(|o| {
            o.controller == Some(true) && !owners.iter().any(|w| w.uid == o.uid && w.kind == o.kind)
        }) {
            return Err(Error::Invalid(format!(
                "it exists and belongs to {} {}: remove it",
                other.kind, other.name
            )));
        }
        let same_owners = owners
            .iter()
            .all(|owner| current.owner_references().contains(owner));
        if current.spec == wanted.spec && same_owners {
            return Ok(());
        }
        let (have, want) = (json!(current.spec), json!(wanted.spec));
        let metadata = if same_owners {
            json!({ "uid": current.metadata.uid })
        } else {
            json!({ "uid": current.metadata.uid, "ownerReferences": owners })
        };
        let spec = apply::replacement(&have, &want).unwrap_or_else(|| json!({}));
        let patch = json!({ "metadata": metadata, "spec": spec });
        api.patch(&name, &manager(), &Patch::Merge(&patch))
            .await
            .context(|| format!("change ManifestWork {namespace}/{name}"))?;
        Ok(())
    }

    /// The hub refuses the new content: what the old one granted and the new one does not is still revoked.
    async fn reduce(&self, current: &ManifestWork, wanted: &ManifestWork) -> Result<(), Error> {
        let mut kept = current.clone();
        let still = &wanted.spec.workload.manifests;
        kept.spec
            .workload
            .manifests
            .retain(|manifest| still.contains(manifest));
        if kept.spec.workload.manifests.is_empty() {
            return self.delete_work(current).await;
        }
        self.ensure_work(Some(current), &kept).await
    }

    /// The permission is not in the cache: if it is really gone, so are its works.
    async fn gone(&self, key: &Key) -> Result<Next, Error> {
        if !self.watches.has_works(key) {
            return Ok(Next::Wait);
        }
        let api: Api<ClusterPermission> = apply::namespaced(&self.context.client, &key.namespace);
        let live = api
            .get_opt(&key.name)
            .await
            .context(|| format!("read ClusterPermission {key}"))?;
        if live.is_none() {
            self.delete_works(key).await?;
        }
        Ok(Next::Wait)
    }

    async fn delete_works(&self, key: &Key) -> Result<(), Error> {
        for work in self.watches.works_of(key) {
            self.delete_work(&work).await?;
        }
        Ok(())
    }

    async fn delete_work(&self, work: &ManifestWork) -> Result<(), Error> {
        if work.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<ManifestWork> =
            apply::namespaced(&self.context.client, &work.namespace().unwrap_or_default());
        apply::delete(&api, &work.name_any(), work.metadata.uid.as_deref()).await
    }

    fn works(&self, permission: &ClusterPermission) -> BTreeMap<usize, ManifestWork> {
        let namespace = permission.namespace().unwrap_or_default();
        let mut works = BTreeMap::new();
        for part in 1..=MAX_PARTS {
            let work = self.watches.works.get(&namespace, &names::work(permission, part));
            works.extend(work.map(|work| (part, work)));
        }
        works
    }

    fn accounts(&self, permission: &ClusterPermission) -> BTreeSet<String> {
        let namespace = permission.namespace().unwrap_or_default();
        account_names(permission)
            .filter(|name| {
                let reference = ObjectRef::<ManagedServiceAccount>::new(name).within(&namespace);
                let account = self.watches.accounts.get(&reference);
                account.is_some_and(|account| account.metadata.deletion_timestamp.is_none())
            })
            .map(ToOwned::to_owned)
            .collect()
    }

    fn hub_roles(&self, permission: &ClusterPermission) -> BTreeMap<Id, HubRole> {
        let mut roles = BTreeMap::new();
        for reference in &permission.spec.role_refs {
            let namespace = filled(reference.namespace.as_deref()).unwrap_or_default();
            let id = Id {
                kind: reference.kind.clone(),
                namespace: namespace.into(),
                name: reference.name.clone(),
            };
            let role = if reference.kind == "ClusterRole" {
                let role = self.watches.cluster_roles.get(&ObjectRef::new(&reference.name));
                role.map(|role| hub_role(role.as_ref(), role.rules.as_deref()))
            } else {
                let role = self
                    .watches
                    .roles
                    .get(&ObjectRef::new(&reference.name).within(namespace));
                role.map(|role| hub_role(role.as_ref(), role.rules.as_deref()))
            };
            roles.extend(role.map(|role| (id, role)));
        }
        roles
    }

    /// The hub's namespaces, if it is the hub that selects for this permission.
    fn hub_namespaces(
        &self,
        permission: &ClusterPermission,
        cluster: Option<&ManagedCluster>,
    ) -> Option<Vec<(String, BTreeMap<String, String>)>> {
        if !uses_selector(permission) || agent_selects(self.context.options.namespace_selector, cluster) {
            return None;
        }
        let labels = |namespace: &Arc<Namespace>| (namespace.name_any(), namespace.labels().clone());
        let mut all: Vec<_> = self
            .watches
            .namespaces
            .state()
            .iter()
            .filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
            .map(labels)
            .collect();
        all.sort();
        Some(all)
    }
}

/// Whether the agent of this cluster expands namespace selectors.
fn agent_selects(mode: NamespaceSelector, cluster: Option<&ManagedCluster>) -> bool {
    match mode {
        NamespaceSelector::Agent => true,
        NamespaceSelector::Hub => false,
        NamespaceSelector::Auto => {
            let status = cluster.and_then(|cluster| cluster.status.as_ref());
            let claims = status.map(|s| s.cluster_claims.as_slice()).unwrap_or_default();
            match claims.iter().find(|claim| claim.name == CLAIM_AGENT) {
                Some(claim) => claim.value.split(',').any(|part| part.trim() == "grants"),
                // Before a cluster has reported nobody knows; the hub's namespaces are never a guess for its own.
                None => status.is_none_or(|s| condition::find(&s.conditions, CONDITION_AVAILABLE).is_none()),
            }
        }
    }
}

/// Whether any entry has a namespace selector.
pub fn uses_selector(permission: &ClusterPermission) -> bool {
    let spec = &permission.spec;
    spec.roles.iter().any(|role| role.namespace_selector.is_some())
        || spec
            .role_bindings
            .iter()
            .any(|binding| binding.namespace_selector.is_some())
}

/// The ManagedServiceAccounts that a permission names.
pub fn account_names(permission: &ClusterPermission) -> impl Iterator<Item = &str> {
    let cluster = validate::cluster_role_bindings(permission)
        .map(|(_, binding)| (binding.subject.as_ref(), binding.subjects.as_deref()));
    let bindings = &permission.spec.role_bindings;
    let namespaced = bindings
        .iter()
        .map(|binding| (binding.subject.as_ref(), binding.subjects.as_deref()));
    cluster
        .chain(namespaced)
        .flat_map(|(single, list)| validate::subject_entries("", single, list))
        .filter(|(_, subject)| subject.kind == MANAGED_SERVICE_ACCOUNT_KIND)
        .map(|(_, subject)| subject.name.as_str())
}

fn add_on_namespace(add_on: Option<&ManagedClusterAddOn>) -> AddOn<'_> {
    let Some(add_on) = add_on.filter(|a| a.metadata.deletion_timestamp.is_none()) else {
        return AddOn::Missing;
    };
    let reported = add_on
        .status
        .as_ref()
        .and_then(|status| filled(status.namespace.as_deref()));
    match reported.or_else(|| filled(Some(&add_on.spec.install_namespace))) {
        Some(namespace) => AddOn::Namespace(namespace),
        None => AddOn::NoNamespace,
    }
}

fn hub_role<K: Resource>(role: &K, rules: Option<&[rbac::PolicyRule]>) -> HubRole {
    let name = role.meta().name.as_deref().unwrap_or_default();
    let labels = role.meta().labels.as_ref();
    HubRole {
        rules: rules.unwrap_or_default().to_vec(),
        built_in: name.starts_with("system:")
            || labels.is_some_and(|l| {
                l.get("kubernetes.io/bootstrapping")
                    .is_some_and(|v| v == "rbac-defaults")
            }),
    }
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    }
}

/// The API version of ClusterPermission's group, for owner references.
pub(super) const OWNER_GROUP: &str = "rbac.open-cluster-management.io/";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_agent_selects_where_it_says_that_it_can() {
        let cluster = |status: serde_json::Value| -> ManagedCluster {
            serde_json::from_value(
                json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": {"name": "c"}, "spec": {"hubAcceptsClient": true}, "status": status}),
            )
            .unwrap()
        };
        let available = json!([{"type": CONDITION_AVAILABLE, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let claim = |value: &str| json!({"conditions": available, "clusterClaims": [{"name": CLAIM_AGENT, "value": value}]});
        let auto = |status| agent_selects(NamespaceSelector::Auto, Some(&cluster(status)));
        assert!(auto(claim("tokens, grants,work")));
        assert!(!auto(claim("tokens,work")));
        assert!(!auto(json!({ "conditions": available })), "OCM's agent");
        assert!(auto(json!({})), "nothing is known yet");
        assert!(agent_selects(NamespaceSelector::Agent, None));
        assert!(!agent_selects(
            NamespaceSelector::Hub,
            Some(&cluster(claim("grants")))
        ));
    }

    #[test]
    fn an_executor_is_a_namespace_and_a_name() {
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
