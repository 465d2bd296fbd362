//! Writing many objects to a real control plane, and waiting until its authorizer has seen them.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use writ_authz::{Aggregation, Index, Key, Kind};

use crate::model::Policy;

/// Requests under way at once.
const CONCURRENCY: usize = 24;

/// How long the cluster may take to settle. The machine may be busy with other things.
const PATIENCE: Duration = Duration::from_mins(3);

/// One control plane at a time: two would only slow each other down.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// The source of all randomness of a test.
pub(crate) fn runner() -> Result<TestRunner> {
    let seed: u64 = match std::env::var("WRIT_AUTHZ_SEED") {
        Ok(text) => text.parse().context("WRIT_AUTHZ_SEED is not a number")?,
        Err(_) => 1,
    };
    println!("WRIT_AUTHZ_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    Ok(TestRunner::new_with_rng(Config::default(), rng))
}

pub(crate) fn sample<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> Result<S::Value> {
    let tree = strategy
        .new_tree(runner)
        .map_err(|reason| anyhow::anyhow!("{reason}"))?;
    Ok(tree.current())
}

/// Runs one action per item, many at once, and keeps the order of the results.
pub(crate) async fn each<T, R, Fut>(items: Vec<T>, action: impl Fn(T) -> Fut) -> Result<Vec<R>>
where
    Fut: Future<Output = Result<R>>,
{
    stream::iter(items)
        .map(action)
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}

async fn create<K>(api: impl Fn(&K) -> Api<K>, objects: &[K]) -> Result<()>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug,
{
    each(objects.iter().collect(), |object| {
        let api = api(object);
        async move {
            let name = object.meta().name.clone().unwrap_or_default();
            api.create(&PostParams::default(), object)
                .await
                .with_context(|| format!("create {name}"))?;
            Ok(())
        }
    })
    .await?;
    Ok(())
}

fn local<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(
        client.clone(),
        object.meta().namespace.as_deref().unwrap_or_default(),
    )
}

pub(crate) async fn create_namespaces(client: &Client, names: &[String]) -> Result<()> {
    let namespace = |name: &String| from::<Namespace>(json!({"metadata": {"name": name}}));
    let namespaces: Vec<_> = names.iter().map(namespace).collect();
    create(|_| Api::all(client.clone()), &namespaces).await
}

pub(crate) async fn create_policy(client: &Client, policy: &Policy) -> Result<()> {
    create(|_| Api::all(client.clone()), &policy.cluster_roles).await?;
    create(|role| local(client, role), &policy.roles).await?;
    create(|binding| local(client, binding), &policy.role_bindings).await?;
    create(|_| Api::all(client.clone()), &policy.cluster_role_bindings).await
}

/// The objects of both.
pub(crate) fn join(mut policy: Policy, other: &Policy) -> Policy {
    policy.roles.extend(other.roles.iter().cloned());
    policy.cluster_roles.extend(other.cluster_roles.iter().cloned());
    policy.role_bindings.extend(other.role_bindings.iter().cloned());
    policy
        .cluster_role_bindings
        .extend(other.cluster_role_bindings.iter().cloned());
    policy
}

pub(crate) fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Everything of RBAC that the cluster has stored.
pub(crate) async fn read(client: &Client) -> Result<Policy> {
    async fn all<K>(client: &Client) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        Ok(Api::<K>::all(client.clone())
            .list(&ListParams::default())
            .await?
            .items)
    }
    Ok(Policy {
        roles: all::<Role>(client).await?,
        cluster_roles: all::<ClusterRole>(client).await?,
        role_bindings: all::<RoleBinding>(client).await?,
        cluster_role_bindings: all::<ClusterRoleBinding>(client).await?,
    })
}

pub(crate) fn apply(index: &mut Index, policy: &Policy) -> Result<()> {
    policy.roles.iter().try_for_each(|role| index.apply(role))?;
    policy
        .cluster_roles
        .iter()
        .try_for_each(|role| index.apply(role))?;
    policy
        .role_bindings
        .iter()
        .try_for_each(|binding| index.apply(binding))?;
    policy
        .cluster_role_bindings
        .iter()
        .try_for_each(|binding| index.apply(binding))?;
    Ok(())
}

pub(crate) fn index_of(aggregation: Aggregation, policies: &[&Policy]) -> Result<Index> {
    let mut index = Index::new(aggregation);
    policies.iter().try_for_each(|policy| apply(&mut index, policy))?;
    Ok(index)
}

/// Waits until the aggregation controller has written into every aggregated ClusterRole what `wanted` computes for it,
/// no more and no less.
pub(crate) async fn wait_aggregated(client: &Client, wanted: &Index) -> Result<()> {
    let started = Instant::now();
    loop {
        let stored = Api::<ClusterRole>::all(client.clone())
            .list(&ListParams::default())
            .await?
            .items;
        let differs = stored
            .iter()
            .filter(|role| role.aggregation_rule.is_some())
            .find(|role| {
                let name = role.metadata.name.as_deref().unwrap_or_default();
                let stored = role.rules.clone().unwrap_or_default();
                let wanted = wanted
                    .role_rules(Key::new(Kind::ClusterRole, "", name))
                    .unwrap_or_default();
                !(stored.iter().all(|rule| wanted.contains(rule))
                    && wanted.iter().all(|rule| stored.contains(rule)))
            });
        let Some(role) = differs else { return Ok(()) };
        let name = role.metadata.name.as_deref().unwrap_or_default();
        ensure!(
            started.elapsed() < PATIENCE,
            "ClusterRole {name} is not aggregated"
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Writes one object of each kind, last of all, and waits until the authorizer knows them: it watches each kind in
/// order, so it then knows all that was written before.
pub(crate) async fn wait_authorizer(client: &Client, namespace: &str) -> Result<()> {
    let rule =
        |resource: &str| json!({"verbs": ["watch"], "apiGroups": ["sentinel"], "resources": [resource]});
    let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "sentinel"}]);
    let refer =
        |kind: &str| json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": "sentinel"});
    let in_namespace = json!({"name": "sentinel", "namespace": namespace});
    let in_cluster = json!({"name": "sentinel"});
    let sentinel = Policy {
        roles: vec![from(json!({"metadata": in_namespace, "rules": [rule("local")]}))],
        cluster_roles: vec![from(json!({"metadata": in_cluster, "rules": [rule("wide")]}))],
        role_bindings: vec![from(
            json!({"metadata": in_namespace, "subjects": subjects, "roleRef": refer("Role")}),
        )],
        cluster_role_bindings: vec![from(
            json!({"metadata": in_cluster, "subjects": subjects, "roleRef": refer("ClusterRole")}),
        )],
    };
    create_policy(client, &sentinel).await?;
    let started = Instant::now();
    for resource in ["local", "wide"] {
        let attributes =
            json!({"verb": "watch", "group": "sentinel", "resource": resource, "namespace": namespace});
        let review = json!({"metadata": {}, "spec": {"user": "sentinel", "resourceAttributes": attributes}});
        let review: SubjectAccessReview = from(review);
        while !ask(client, &review).await?.0 {
            ensure!(
                started.elapsed() < PATIENCE,
                "the authorizer does not see the sentinel"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// The answer of the API server, and its reason.
pub(crate) async fn ask(client: &Client, review: &SubjectAccessReview) -> Result<(bool, String)> {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    let status = reviews
        .create(&PostParams::default(), review)
        .await?
        .status
        .context("a review without status")?;
    Ok((status.allowed, status.reason.unwrap_or_default()))
}
