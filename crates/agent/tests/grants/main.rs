//! NamespaceGrants on a real control plane.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_api::writ::NamespaceGrant;
use writ_controller::health::Health;
use writ_testenv::{ControlPlane, Options, harness};

fn main() {
    harness::run(vec![
        harness::real("grant_follows_namespaces_and_repairs_drift", follows),
        harness::real("stripped_binding_is_restored_and_goes_with_its_grant", stripped),
    ]);
}

async fn namespace(client: &Client, name: &str, labels: Value) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

async fn label(client: &Client, name: &str, labels: Value) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn grant(client: &Client, name: &str, spec: Value) -> Result<()> {
    let api: Api<NamespaceGrant> = Api::all(client.clone());
    let object = json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": name}, "spec": spec});
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object))
        .await?;
    Ok(())
}

async fn until<F, Fut>(what: &str, ask: F) -> Result<Duration>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    let started = Instant::now();
    while !ask().await? {
        if started.elapsed() > Duration::from_mins(1) {
            bail!("waited for: {what}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(started.elapsed())
}

/// An agent that expands grants, once it is ready.
async fn run(client: &Client) -> Result<(CancellationToken, JoinHandle<Result<(), writ_controller::Error>>)> {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let options = writ_agent::Options {
        controllers: vec!["grants".into()],
        cluster_name: "c1".into(),
        ..writ_agent::Options::default()
    };
    // The hub cannot be reached at all: nothing here needs it.
    let nowhere = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse()?))?;
    let agent = tokio::spawn(writ_agent::run(
        nowhere,
        client.clone(),
        options,
        health.clone(),
        shutdown.clone(),
    ));
    tokio::time::timeout(Duration::from_secs(30), health.ready())
        .await
        .with_context(|| format!("waiting for {:?}", health.closed()))?;
    Ok((shutdown, agent))
}

/// Owner, label and managed fields are removed from a binding, while the agent runs and while it is away. The binding is restored,
/// and is deleted with its grant.
async fn stripped() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client()?;
    let (shutdown, agent) = run(&client).await?;
    namespace(&client, "n1", json!({"team": "a"})).await?;
    let spec = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "p", "roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [{"kind": "User", "name": "u"}]});
    grant(&client, "g", spec).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "n1");
    let is_bound = |wanted: bool| {
        let bindings = bindings.clone();
        async move {
            until(&format!("bound: {wanted}"), || async {
                Ok(bindings.get_opt("p").await?.is_some() == wanted)
            })
            .await
        }
    };
    let is_whole = || async {
        until("owner and label are back", || async {
            let Some(binding) = bindings.get_opt("p").await? else {
                return Ok(false);
            };
            let subjects = binding.subjects.clone().unwrap_or_default();
            Ok(binding.owner_references().len() == 1 && binding.labels().len() == 1 && subjects.len() == 1)
        })
        .await
    };
    is_bound(true).await?;
    let mallory = json!({"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"});
    let user = json!({"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"});
    let strip = |forget: bool| {
        let mut patch =
            json!({"metadata": {"ownerReferences": null, "labels": null}, "subjects": [user, mallory]});
        if forget {
            patch["metadata"]["managedFields"] = json!([{}]);
        }
        let bindings = bindings.clone();
        async move {
            bindings
                .patch("p", &PatchParams::apply("mallory"), &Patch::Merge(patch))
                .await
        }
    };
    // The agent remembers, even if the server has been made to forget.
    strip(true).await?;
    is_whole().await?;
    // Who says that a work delivers it has to have a work that does.
    let owner = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "name": "0-w", "uid": "1-2-3"}]);
    let forged = json!({"metadata": {"ownerReferences": owner, "labels": null}, "subjects": [user, mallory]});
    bindings
        .patch("p", &PatchParams::apply("mallory"), &Patch::Merge(forged))
        .await?;
    until("the forged owner counts for nothing", || async {
        let binding = bindings.get_opt("p").await?;
        let subjects = binding.and_then(|binding| binding.subjects).unwrap_or_default();
        Ok(subjects.len() == 1)
    })
    .await?;
    let clean = json!({"metadata": {"ownerReferences": null}});
    bindings
        .patch("p", &PatchParams::default(), &Patch::Merge(clean))
        .await?;
    is_whole().await?;
    shutdown.cancel();
    agent.await??;
    strip(false).await?;
    let (shutdown, agent) = run(&client).await?;
    is_whole().await?;
    // Away again, and the grant is deleted before the agent is back.
    shutdown.cancel();
    agent.await??;
    strip(false).await?;
    Api::<NamespaceGrant>::all(client.clone())
        .delete("g", &DeleteParams::default())
        .await?;
    let (shutdown, agent) = run(&client).await?;
    is_bound(false).await?;
    shutdown.cancel();
    agent.await??;
    Ok(())
}

async fn follows() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client()?;
    let (shutdown, agent) = run(&client).await?;

    let binding = |role: &str| json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "p", "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": "u"}]});
    let roles = |ns: &str| Api::<Role>::namespaced(client.clone(), ns);
    let bindings = |ns: &str| Api::<RoleBinding>::namespaced(client.clone(), ns);
    let grants: Api<NamespaceGrant> = Api::all(client.clone());
    let is_bound = |ns: &'static str, wanted: bool| {
        let api = bindings(ns);
        async move {
            until(&format!("bound in {ns}: {wanted}"), || async {
                Ok(api.get_opt("p").await?.is_some() == wanted)
            })
            .await
        }
    };
    let reports = |name: &'static str, selected: i64, ready: i64| {
        let grants = grants.clone();
        async move {
            until(&format!("{name} reports {ready} of {selected}"), || async {
                let grant = grants.get(name).await?;
                let status = grant.status.clone().unwrap_or_default();
                Ok(status.observed_generation == grant.metadata.generation
                    && (status.selected, status.ready) == (Some(selected), Some(ready)))
            })
            .await
        }
    };

    // Nothing is selected, which is reported and is no error; then namespaces are created, labelled, unlabelled, deleted.
    grant(&client, "g", binding("view")).await?;
    reports("g", 0, 0).await?;
    namespace(&client, "n1", json!({"team": "a"})).await?;
    namespace(&client, "n2", json!({})).await?;
    is_bound("n1", true).await?;
    is_bound("n2", false).await?;
    reports("g", 1, 1).await?;
    label(&client, "n2", json!({"team": "a"})).await?;
    let took = is_bound("n2", true).await?;
    println!("a label is followed within {took:?}");
    label(&client, "n1", json!({"team": null})).await?;
    is_bound("n1", false).await?;
    reports("g", 1, 1).await?;
    Api::<Namespace>::all(client.clone())
        .delete("n2", &DeleteParams::default())
        .await?;
    reports("g", 0, 0).await?;
    until("n2 is gone", || async {
        Ok(Api::<Namespace>::all(client.clone())
            .get_opt("n2")
            .await?
            .is_none())
    })
    .await?;
    namespace(&client, "n2", json!({"team": "a"})).await?;
    is_bound("n2", true).await?;

    // Drift is repaired at once: an edit, a deletion. Within a second on a machine that has nothing else to do.
    let patch = Patch::Merge(
        json!({"subjects": [{"kind": "User", "name": "evil", "apiGroup": "rbac.authorization.k8s.io"}]}),
    );
    bindings("n2").patch("p", &PatchParams::default(), &patch).await?;
    let took = until("the subjects are put right", || async {
        let subjects = bindings("n2").get("p").await?.subjects.unwrap_or_default();
        Ok(subjects.len() == 1 && subjects[0].name == "u")
    })
    .await?;
    ensure!(took < Duration::from_secs(20), "{took:?}");
    bindings("n2").delete("p", &DeleteParams::default()).await?;
    let took = is_bound("n2", true).await?;
    ensure!(took < Duration::from_secs(20), "{took:?}");

    // Another role: the binding is made again.
    grant(&client, "g", binding("edit")).await?;
    until("the binding has the other role", || async {
        Ok(bindings("n2")
            .get_opt("p")
            .await?
            .is_some_and(|b| b.role_ref.name == "edit"))
    })
    .await?;
    reports("g", 1, 1).await?;

    // A foreign object is left alone and reported; when it is deleted, the grant creates its own.
    let hand: Role = serde_json::from_value(json!({"metadata": {"name": "r"}, "rules": []}))?;
    roles("n2").create(&PostParams::default(), &hand).await?;
    let all = json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "name": "r", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    grant(&client, "roles", all).await?;
    reports("roles", 1, 0).await?;
    let status = grants.get("roles").await?.status.unwrap();
    ensure!(
        status
            .summary
            .as_deref()
            .is_some_and(|s| s.contains("n2: the Role r exists and no NamespaceGrant made it")),
        "{status:?}"
    );
    ensure!(
        roles("n2").get("r").await?.rules.unwrap_or_default().is_empty(),
        "it was overwritten"
    );
    roles("n2").delete("r", &DeleteParams::default()).await?;
    reports("roles", 1, 1).await?;
    ensure!(
        roles("n2")
            .get("r")
            .await?
            .labels()
            .contains_key("writ.dev/namespace-grant")
    );

    // With the grant everything that it made is deleted, and nothing else.
    let hand: RoleBinding = serde_json::from_value(
        json!({"metadata": {"name": "mine"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
    )?;
    bindings("n2").create(&PostParams::default(), &hand).await?;
    grants.delete("g", &DeleteParams::default()).await?;
    let took = is_bound("n2", false).await?;
    println!("a deleted grant is revoked within {took:?}");
    ensure!(bindings("n2").get_opt("mine").await?.is_some());
    shutdown.cancel();
    agent.await??;
    Ok(())
}
