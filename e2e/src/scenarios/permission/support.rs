//! What the scenarios of permissions share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Result, anyhow, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use writ_api::{
    cluster::{ManagedCluster, cluster_claim::CLAIM_AGENT},
    rbac::ClusterPermission,
};
use writ_controller::condition;

use crate::{Cluster, Fleet, fleet::Running, wait};

/// What runs in a scenario; it stops when it is dropped.
pub struct Parts {
    /// The hub.
    pub hub: Running,
    /// The agent of `cluster1`.
    pub agent: Running,
}

/// The controllers of the hub that permissions need.
pub fn hub_controllers() -> Vec<String> {
    ["cluster_permission", "managed_service_account", "registration"]
        .map(str::to_owned)
        .into()
}

/// Starts hub and agent with the parts that permissions need; `cluster1` joins and says what its agent can.
pub async fn start(fleet: &Fleet) -> Result<Parts> {
    start_with(
        fleet,
        writ_hub::Options {
            controllers: hub_controllers(),
            ..writ_hub::Options::default()
        },
    )
    .await
}

/// The same with a hub of one's own choice; it must accept clusters.
pub async fn start_with(fleet: &Fleet, options: writ_hub::Options) -> Result<Parts> {
    start_all(
        fleet,
        options,
        agent_options(&["grants", "registration", "tokens", "work"]),
    )
    .await
}

/// The same with an agent of one's own choice, too.
pub async fn start_all(fleet: &Fleet, hub: writ_hub::Options, agent: writ_agent::Options) -> Result<Parts> {
    let hub = fleet.run_hub(hub).await?;
    let agent = join(fleet, 1, agent).await?;
    Ok(Parts { hub, agent })
}

/// An agent with these controllers.
pub fn agent_options(controllers: &[&str]) -> writ_agent::Options {
    writ_agent::Options {
        controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
        ..writ_agent::Options::default()
    }
}

/// Runs the agent of a cluster, which joins, until it has said what it can.
pub async fn join(fleet: &Fleet, number: usize, options: writ_agent::Options) -> Result<Running> {
    fleet.accept(number).await?;
    let mut claim = options.controllers.clone();
    claim.sort();
    let agent = fleet.run_agent(number, options).await?;
    let clusters: Api<ManagedCluster> = Api::all(fleet.hub.admin().await?);
    let name = fleet.cluster(number)?.name().to_owned();
    wait::until_true("the agent says what it can", || async {
        let status = clusters.get(&name).await?.status.unwrap_or_default();
        let said = status
            .cluster_claims
            .iter()
            .find(|claim| claim.name == CLAIM_AGENT);
        let mut said: Vec<String> = said
            .iter()
            .flat_map(|claim| claim.value.split(','))
            .map(|part| part.trim().to_owned())
            .collect();
        said.sort();
        Ok(said == claim)
    })
    .await?;
    Ok(agent)
}

/// Writes a permission in `cluster1`.
pub async fn permission(fleet: &Fleet, name: &str, spec: Value) -> Result<()> {
    annotated(fleet, name, &json!({}), spec).await
}

/// Writes a permission with annotations.
pub async fn annotated(fleet: &Fleet, name: &str, annotations: &Value, spec: Value) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let object = json!({
        "apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    });
    api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(object))
        .await?;
    Ok(())
}

/// Deletes a permission.
pub async fn delete(fleet: &Fleet, name: &str) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits for a condition of this generation, with these words in its message or as its reason.
pub async fn condition(
    fleet: &Fleet,
    name: &str,
    type_: &str,
    status: &str,
    words: &str,
) -> Result<ClusterPermission> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    wait::until(&format!("{type_}={status} of {name} with {words:?}"), || async {
        let object = api.get(name).await?;
        let conditions = object.status.clone().unwrap_or_default().conditions;
        let found = condition::find(&conditions, type_).is_some_and(|c| {
            c.status == status
                && c.observed_generation == object.metadata.generation
                && (c.message.contains(words) || c.reason == words)
        });
        if found {
            Ok(Some(object))
        } else {
            Err(anyhow!("it has {conditions:?}"))
        }
    })
    .await
}

/// Waits until the managed cluster's authorizer answers like this when this user asks for pods in a namespace.
pub async fn allowed(fleet: &Fleet, user: &str, verb: &str, namespace: &str, wanted: bool) -> Result<()> {
    allowed_on(fleet.cluster(1)?, user, verb, namespace, wanted).await
}

/// The same on one cluster, whatever became of the hub.
pub async fn allowed_on(
    cluster: &Cluster,
    user: &str,
    verb: &str,
    namespace: &str,
    wanted: bool,
) -> Result<()> {
    let client = cluster.admin().await?;
    wait::until_true(
        &format!("{user} may {verb} pods in {namespace}: {wanted}"),
        || async { Ok(may(&client, user, verb, namespace).await? == wanted) },
    )
    .await
}

/// What the authorizer says now.
pub async fn may(client: &Client, user: &str, verb: &str, namespace: &str) -> Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.into()),
            groups: Some(vec!["system:authenticated".into()]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some("pods".into()),
                namespace: Some(namespace.into()).filter(|ns: &String| !ns.is_empty()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Asks all the time whether somebody may do something, and remembers the first "no".
pub struct Always {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<Result<()>>,
}

impl Always {
    /// Starts to ask about pods in a namespace.
    pub fn may(client: &Client, user: &'static str, verb: &'static str, namespace: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, stopped) = (client.clone(), stop.clone());
        let asking = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                ensure!(may(&client, user, verb, namespace).await?, "{user} lost access");
            }
            Ok(())
        });
        Self { stop, asking }
    }

    /// Ends it; an error if the answer was ever "no".
    pub async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.asking.await?
    }
}

/// A client of `cluster1` with all rights.
pub async fn spoke(fleet: &Fleet) -> Result<Client> {
    fleet.cluster(1)?.admin().await
}

/// A subject.
pub fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

/// Rules about pods.
pub fn pods(verb: &str) -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}])
}

/// A reference to a ClusterRole of the managed cluster.
pub fn cluster_role(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name})
}
