//! Builders for what is desired and observed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::Instant;
use writ_controller::{Name, ObjectId};

use crate::{
    model::{SyncId, SyncKind},
    reconciler::{
        desired::{Desired, Unresolved},
        drift::{Scope, Seen},
        error::{Cause, Code, Failure, Problem},
        fetch::SourceSpec,
        object::{Declared, Origin, Raw},
        observed::{Applied, NamespaceState, Observed, Outcome, WatchState},
        plan::{Plan, Prune, plan},
    },
};

/// What is desired and observed in one case. Objects are written `Kind namespace/name`, or `Kind name`.
pub struct Case {
    pub desired: Desired,
    pub observed: Observed,
}

pub fn sync_id() -> SyncId {
    SyncId::new(SyncKind::Root, "config-management-system", "a")
}

/// A RootSync that creates used namespaces. Its commit declares nothing, and its inventory is empty.
pub fn case() -> Case {
    let mut desired = Desired::new(sync_id());
    desired.commit = Some("c1".into());
    desired.source = Some(SourceSpec::for_tests(true));
    let mut observed = Observed::default();
    observed.inventory.objects = Some(BTreeSet::new());
    Case { desired, observed }
}

/// The group of a kind in these tests.
fn group(kind: &str) -> &'static str {
    match kind {
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        "Deployment" => "apps",
        "Role" | "ClusterRole" => "rbac.authorization.k8s.io",
        "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io",
        "Thing" => "example.com",
        _ => "",
    }
}

pub fn id(text: &str) -> ObjectId {
    let (kind, name) = text.split_once(' ').unwrap();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectId {
        group: group(kind).into(),
        kind: kind.into(),
        name: Name::new(namespace, name),
    }
}

fn text(id: &ObjectId) -> String {
    id.to_string()
}

pub fn raw(text: &str) -> Raw {
    let id = id(text);
    let api_version = if id.group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{}/v1", id.group)
    };
    Raw {
        path: "a.yaml".into(),
        value: json!({
            "apiVersion": api_version, "kind": &*id.kind, "metadata": { "name": &*id.name.name },
        }),
    }
}

fn declare(raw: Raw, id: ObjectId) -> Declared {
    let sync = sync_id();
    let origin = Origin {
        id: &sync,
        commit: "c1",
        context: "{}",
    };
    Declared::new(raw, id, &origin)
}

pub fn declared_with(text: &str, annotations: &Value) -> Declared {
    let mut raw = raw(text);
    raw.value["metadata"]["annotations"] = annotations.clone();
    declare(raw, id(text))
}

pub fn failure(cause: Cause) -> Failure {
    let code = match cause {
        Cause::ManagementConflict => Code::ManagementConflict,
        Cause::Forbidden => Code::InsufficientPermission,
        Cause::Unanswered | Cause::ServerError | Cause::Unauthorized => Code::ApiServer,
        _ => Code::Resource,
    };
    Failure {
        problem: Problem::new(code, format!("{cause:?}")),
        cause,
    }
}

impl Case {
    pub fn declares(mut self, objects: &[&str]) -> Self {
        for text in objects {
            let object = declare(raw(text), id(text));
            self.desired.declared.insert(object.id.clone(), object);
        }
        self
    }

    /// Declares an object with these annotations.
    pub fn declares_with(mut self, text: &str, annotations: &Value) -> Self {
        let object = declared_with(text, annotations);
        self.desired.declared.insert(object.id.clone(), object);
        self
    }

    pub fn disables(mut self, objects: &[&str]) -> Self {
        self.desired.disabled.extend(objects.iter().map(|text| id(text)));
        self
    }

    /// Objects whose kind is not served, or not known for this reason.
    pub fn unresolved(mut self, text: &str, error: Option<&str>) -> Self {
        let error = error.map(str::to_owned);
        let raw = raw(text);
        self.desired.unresolved.push(Unresolved { raw, error });
        self
    }

    pub fn bad_file(mut self) -> Self {
        let problem = Problem::new(Code::ObjectParse, "bad file");
        self.desired.problems.push(problem);
        self
    }

    pub fn without_implied_namespaces(mut self) -> Self {
        self.desired.source = Some(SourceSpec::for_tests(false));
        self
    }

    /// The stored inventory.
    pub fn lists(mut self, objects: &[&str]) -> Self {
        let objects = objects.iter().map(|text| id(text));
        self.observed
            .inventory
            .objects
            .get_or_insert_default()
            .extend(objects);
        self
    }

    /// Writes the planned inventory, as every step does first.
    pub fn writes_inventory(mut self) -> Self {
        let plan = self.plan();
        self.observed.record_inventory(plan.inventory, "1".into());
        self
    }

    /// Objects that were applied as they are declared now.
    pub fn applied(mut self, objects: &[&str]) -> Self {
        for text in objects {
            let hash = self.desired.declared[&id(text)].hash.clone();
            self.record(text, Outcome::Applied(applied("1", &hash)));
        }
        self
    }

    /// Objects that were applied as they were declared before.
    pub fn applied_before(mut self, objects: &[&str]) -> Self {
        for text in objects {
            self.record(text, Outcome::Applied(applied("1", "before")));
        }
        self
    }

    pub fn failed(mut self, text: &str, cause: Cause) -> Self {
        self.record(text, Outcome::Failed(failure(cause)));
        self
    }

    pub fn pruned(mut self, text: &str) -> Self {
        self.record(text, Outcome::Pruned);
        self
    }

    pub fn record(&mut self, text: &str, outcome: Outcome) {
        self.observed.record(&id(text), outcome, Instant::now());
    }

    /// A retry is due.
    pub fn retries(mut self) -> Self {
        self.observed.retry(&self.desired);
        self
    }

    pub fn sees(mut self, seen: Seen) -> Self {
        self.observed.see(&self.desired, seen, Instant::now());
        self
    }

    /// The live object as it is declared, with this version and a change by another writer if there is one.
    pub fn sees_live(self, text: &str, version: &str, change: Option<&str>) -> Self {
        let id = id(text);
        let mut object = self.desired.declared[&id].value.clone();
        object["metadata"]["resourceVersion"] = json!(version);
        if change.is_some() {
            object["metadata"]["labels"] = json!({});
        }
        let by = change.map(str::to_owned);
        let object = Box::new(object);
        self.sees(Seen::Live { id, object, by })
    }

    pub fn namespace(mut self, name: &str, state: NamespaceState) -> Self {
        self.observed.namespaces.insert(name.into(), state);
        self
    }

    pub fn watch(mut self, scope: Scope, state: WatchState) -> Self {
        self.observed.watches.insert(scope, state);
        self
    }

    pub fn plan(&self) -> Plan {
        plan(&self.desired, &self.observed)
    }

    /// The planned waves of objects to apply.
    pub fn apply(&self) -> Vec<Vec<String>> {
        let wave = |wave: &Vec<ObjectId>| {
            let mut names: Vec<String> = wave.iter().map(text).collect();
            names.sort_unstable();
            names
        };
        self.plan().actions.apply.iter().map(wave).collect()
    }

    /// The planned waves of objects to prune.
    pub fn prune(&self) -> Vec<Vec<String>> {
        let waves = self.plan().actions.prune;
        let wave = |wave: Vec<Prune>| {
            let prunes = wave.iter().map(|prune| match prune {
                Prune::Delete(id) => format!("delete {}", text(id)),
                Prune::GiveUp(id) => format!("give up {}", text(id)),
            });
            prunes.collect()
        };
        waves.into_iter().map(wave).collect()
    }

    /// The planned inventory.
    pub fn inventory(&self) -> Vec<String> {
        self.plan().inventory.iter().map(text).collect()
    }
}

pub fn applied(version: &str, hash: &str) -> Applied {
    Applied {
        version: version.into(),
        hash: hash.into(),
    }
}

pub fn scope(kind: &str, namespace: &str) -> Scope {
    Scope {
        group: group(kind).into(),
        version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
    }
}

pub const OURS: NamespaceState = NamespaceState::Present {
    is_ours: true,
    is_detached: false,
};
pub const OTHERS: NamespaceState = NamespaceState::Present {
    is_ours: false,
    is_detached: false,
};
pub const DETACHED: NamespaceState = NamespaceState::Present {
    is_ours: true,
    is_detached: true,
};
