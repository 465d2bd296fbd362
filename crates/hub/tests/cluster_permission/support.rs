//! What the tests share: a hub with its definitions.

use std::{
    collections::BTreeSet,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_api::{rbac::ClusterPermission, work::ManifestWork};
use writ_controller::health::Health;
use writ_testenv::{ControlPlane, Options};

/// Installs every definition and waits until the server serves them.
pub async fn install(client: &Client, definitions: Vec<CustomResourceDefinition>) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in &definitions {
        let made = api.create(&PostParams::default(), definition).await;
        made.with_context(|| format!("install {}", definition.name_any()))?;
    }
    for definition in &definitions {
        let name = definition.name_any();
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_mins(1), established).await??;
        let live = api.get(&name).await?;
        // It is established a moment before its kind is served.
        let spec = &definition.spec;
        let version = spec.versions.iter().find(|version| version.served);
        let kind = kube::core::GroupVersionKind::gvk(
            &spec.group,
            version.map_or("", |version| &version.name),
            &spec.names.kind,
        );
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
        until(&format!("{name} is served"), || async {
            objects.list(&ListParams::default()).await?;
            Ok(())
        })
        .await?;
        let structural = live.status.iter().flat_map(|s| s.conditions.iter().flatten());
        ensure!(
            !structural
                .clone()
                .any(|c| c.type_ == "NonStructuralSchema" && c.status == "True"),
            "{name} is not structural"
        );
    }
    Ok(())
}

/// A hub: a real API server with the definitions, without controllers of Kubernetes.
pub struct Hub {
    /// The server.
    _plane: ControlPlane,
    /// An admin.
    pub client: Client,
}

/// A hub process in this one.
pub struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), writ_controller::Error>>,
}

impl Running {
    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.task.await??)
    }

    /// Ends it in the middle of what it does.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Hub {
    /// Starts the server.
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Options {
            controllers: false,
            ..Options::default()
        })
        .await?;
        let client = plane.client()?;
        install(&client, writ_api::crds().to_vec()).await?;
        Ok(Self {
            _plane: plane,
            client,
        })
    }

    /// Runs the hub until it is ready.
    pub async fn run(&self, options: writ_hub::Options) -> Result<Running> {
        let (health, running) = self.spawn(options);
        tokio::time::timeout(Duration::from_secs(30), health.ready())
            .await
            .with_context(|| format!("waiting for {:?}", health.closed()))?;
        Ok(running)
    }

    /// Runs the hub, ready or not.
    pub fn spawn(&self, options: writ_hub::Options) -> (Health, Running) {
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let task = tokio::spawn(writ_hub::run(
            self.client.clone(),
            options,
            health.clone(),
            shutdown.clone(),
        ));
        (health, Running { shutdown, task })
    }
}

/// Asks until it holds; the last objection is the error.
pub async fn until<F, Fut>(what: &str, ask: F) -> Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_mins(1) => {
                return Err(error).with_context(|| format!("waited for: {what}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A subject.
pub fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

/// A binding to `view`.
pub fn binding(namespace: &str, name: &str, subject: &Value) -> Value {
    let role = json!({"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"});
    json!({"namespace": namespace, "name": name, "roleRef": role, "subject": subject})
}

/// Creates or replaces an object of any kind, status included.
pub async fn put(client: &Client, object: Value) -> Result<()> {
    let gvk = kube::core::GroupVersionKind::try_from(&kube::core::TypeMeta {
        api_version: object["apiVersion"].as_str().unwrap().into(),
        kind: object["kind"].as_str().unwrap().into(),
    })?;
    let resource = ApiResource::from_gvk(&gvk);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("test").force();
    api.patch(&name, &params, &Patch::Apply(&object)).await?;
    if object.get("status").is_some() {
        api.patch_status(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": object["status"]})),
        )
        .await?;
    }
    Ok(())
}

/// A cluster and its namespace.
pub async fn cluster(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let _ = Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await;
    put(
        client,
        json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": name}, "spec": {"hubAcceptsClient": true}}),
    )
    .await
}

/// Writes a permission.
pub async fn permission(
    client: &Client,
    namespace: &str,
    name: &str,
    spec: Value,
) -> Result<ClusterPermission> {
    put(
        client,
        json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "metadata": {"name": name, "namespace": namespace}, "spec": spec}),
    )
    .await?;
    Ok(Api::namespaced(client.clone(), namespace).get(name).await?)
}

/// The objects of all works in a namespace.
pub async fn objects(client: &Client, namespace: &str) -> Result<BTreeSet<String>> {
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), namespace);
    let list = works.list(&ListParams::default()).await?;
    let manifests = list.items.iter().flat_map(|w| &w.spec.workload.manifests);
    Ok(manifests
        .map(|m| {
            let text = |p: &str| {
                m.0.pointer(p)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let subjects = m.0["subjects"].as_array().into_iter().flatten();
            let names: Vec<String> = subjects
                .map(|s| {
                    format!(
                        "{}{}",
                        s["namespace"]
                            .as_str()
                            .map(|n| format!("{n}/"))
                            .unwrap_or_default(),
                        s["name"].as_str().unwrap()
                    )
                })
                .collect();
            format!(
                "{} {}/{} {}",
                text("/kind"),
                text("/metadata/namespace"),
                text("/metadata/name"),
                names.join("+")
            )
        })
        .collect())
}

/// Waits until the works of a namespace hold exactly these objects.
pub async fn holds(client: &Client, namespace: &str, wanted: &[&str]) -> Result<()> {
    let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
    until(&format!("{namespace} holds {wanted:?}"), || async {
        let have = objects(client, namespace).await?;
        if have == wanted {
            Ok(())
        } else {
            Err(anyhow::anyhow!("it holds {have:?}"))
        }
    })
    .await
}

/// Waits for a condition of this generation with these words.
pub async fn condition(
    client: &Client,
    namespace: &str,
    name: &str,
    type_: &str,
    status: &str,
    words: &str,
) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(client.clone(), namespace);
    until(&format!("{type_}={status} with {words:?}"), || async {
        let object = api.get(name).await?;
        let conditions = object.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|c| c.type_ == type_);
        let generation = object.metadata.generation;
        match found {
            Some(c)
                if c.status == status
                    && c.observed_generation == generation
                    && (c.message.contains(words) || c.reason == words) =>
            {
                Ok(())
            }
            other => Err(anyhow::anyhow!("it is {other:?}")),
        }
    })
    .await
}
