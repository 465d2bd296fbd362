//! Tables against the plan: a world that tests change, and what becomes of it.

mod conflicts;
mod deleting;
mod delivery;
mod lingering;
mod names;
mod revocation;
mod safety;
mod spec;
mod unbuildable_roles;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use writ_api::{
    cluster::ManagedCluster,
    rbac::{ClusterPermission, cluster_permission::ClusterPermissionStatus},
    work::ManifestWork,
};
use writ_controller::condition;

use super::{
    model::{
        Account, AddOn, HubNamespaces, HubRole, Limits, NotSynced, ObjectId, Observation, Plan, Refused,
        SelectedBy, object_id,
    },
    plan::{manifest, plan},
    status::{status, status_of_deleted},
};

/// A hub in a test: what the controller would have observed.
struct World {
    permission: ClusterPermission,
    works: BTreeMap<usize, ManifestWork>,
    cluster: Option<ManagedCluster>,
    accounts: BTreeSet<String>,
    /// Those of them whose ServiceAccount is not theirs, and why.
    not_own: BTreeMap<String, String>,
    add_on: Option<&'static str>,
    hub_roles: BTreeMap<ObjectId, HubRole>,
    selected_by: SelectedBy,
    hub_namespaces: Option<HubNamespaces>,
    not_synced: NotSynced,
    neighbours: Vec<ClusterPermission>,
    limits: Limits,
    now: i64,
}

impl World {
    fn new(spec: Value) -> Self {
        let cluster = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true},
            "status": {"conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True", "reason": "r",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        });
        Self {
            permission: permission(spec),
            works: BTreeMap::new(),
            cluster: serde_json::from_value(cluster).unwrap(),
            accounts: BTreeSet::new(),
            not_own: BTreeMap::new(),
            add_on: None,
            hub_roles: BTreeMap::new(),
            selected_by: SelectedBy::Agent,
            hub_namespaces: None,
            not_synced: NotSynced::default(),
            neighbours: Vec::new(),
            limits: Limits::within(512_000),
            now: 1_800_000_000,
        }
    }

    fn observe(&self) -> Observation {
        let account = |name: &String| match self.not_own.get(name) {
            Some(why) => Account::NotOwn(why.clone()),
            None => Account::Own,
        };
        let works = self.works.iter();
        Observation {
            permission: Arc::new(self.permission.clone()),
            works: works.map(|(n, w)| (*n, Arc::new(w.clone()))).collect(),
            cluster: self.cluster.clone().map(Arc::new),
            accounts: self.accounts.iter().map(|a| (a.clone(), account(a))).collect(),
            add_on: self
                .add_on
                .map_or(AddOn::Missing, |name| AddOn::Namespace(name.into())),
            hub_roles: self.hub_roles.clone(),
            selected_by: self.selected_by,
            hub_namespaces: self.hub_namespaces.clone(),
            not_synced: self.not_synced,
            neighbours: self.neighbours.iter().cloned().map(Arc::new).collect(),
            executor: None,
            limits: self.limits,
            now: Timestamp::from_second(self.now).unwrap(),
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.observe())
    }

    fn status(&self) -> ClusterPermissionStatus {
        let seen = self.observe();
        status(&seen, &plan(&seen), &Refused::new())
    }

    /// What the controller does: writes the plan to the hub, and the status.
    fn reconcile(&mut self) {
        let seen = self.observe();
        let plan = plan(&seen);
        let status = status(&seen, &plan, &Refused::new());
        self.permission.status = Some(status);
        for number in plan.delete {
            self.works.remove(&number);
        }
        for (number, mut work) in plan.works {
            let before = self.works.remove(&number);
            if before.as_ref().is_none_or(|b| b.spec != work.spec) {
                let generation = before.as_ref().and_then(|b| b.metadata.generation).unwrap_or(0);
                work.metadata.generation = Some(generation + 1);
            } else {
                work.metadata.generation = before.as_ref().and_then(|b| b.metadata.generation);
            }
            work.status = before.and_then(|b| b.status);
            self.works.insert(number, work);
        }
    }

    /// What an agent does: applies a work and says so; `broken` are names of objects that it cannot apply.
    fn agent(&mut self, broken: &[&str]) {
        for work in self.works.values_mut() {
            let generation = work.metadata.generation;
            let condition = |ok: bool, message: &str| {
                json!({"type": "Applied", "status": if ok { "True" } else { "False" }, "message": message,
                "reason": if ok { "AppliedManifestWorkComplete" } else { "AppliedManifestWorkFailed" },
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let mut all = true;
            let manifests: Vec<Value> = work
                .spec
                .workload
                .manifests
                .iter()
                .enumerate()
                .map(|(ordinal, m)| {
                    let id = manifest::id(&m.0);
                    let ok = !broken.contains(&&*id.name.name);
                    all &= ok;
                    json!({
                        "resourceMeta": {"ordinal": ordinal, "kind": &*id.kind, "namespace": &*id.name.namespace, "name": &*id.name.name},
                        "conditions": [condition(ok, if ok { "Apply manifest complete" } else { "no such thing" })]
                    })
                })
                .collect();
            let message = if all {
                "Apply manifest work complete"
            } else {
                "Failed to apply manifest work"
            };
            work.status = serde_json::from_value(
                json!({"conditions": [condition(all, message)], "resourceStatus": {"manifests": manifests}}),
            )
            .unwrap();
        }
    }

    fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.status();
        let condition = condition::find(&status.conditions, type_).unwrap_or_else(|| panic!("no {type_}"));
        (
            condition.status.clone(),
            condition.reason.clone(),
            condition.message.clone(),
        )
    }

    fn ids(&self) -> Vec<String> {
        self.plan().works.values().flat_map(ids).collect()
    }
}

fn ids(work: &ManifestWork) -> Vec<String> {
    work.spec
        .workload
        .manifests
        .iter()
        .map(|m| manifest::id(&m.0).to_string())
        .collect()
}

fn permission(spec: impl Into<Value>) -> ClusterPermission {
    serde_json::from_value(json!({
        "apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": "p", "namespace": "cluster1", "uid": "abcdef01-0000", "generation": 1},
        "spec": spec.into(),
    }))
    .unwrap()
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

fn account(name: &str) -> Value {
    json!({"kind": "ManagedServiceAccount", "name": name, "apiGroup": "authentication.open-cluster-management.io"})
}

fn binding(namespace: &str, name: &str, subject: &Value) -> Value {
    let role = json!({"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"});
    json!({"namespace": namespace, "name": name, "roleRef": role, "subject": subject})
}

fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
}
