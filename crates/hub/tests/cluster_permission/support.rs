//! What the tests share: a hub with its definitions.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{conditions, wait::await_condition},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_runtime::health::Health;
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
        tokio::time::timeout(Duration::from_secs(20), established).await??;
        let live = api.get(&name).await?;
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
    pub plane: ControlPlane,
    /// An admin.
    pub client: Client,
}

/// A hub process in this one.
pub struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), writ_runtime::Error>>,
}

impl Running {
    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.task.await??)
    }
}

impl Hub {
    /// Starts the server.
    pub async fn start() -> Result<Self> {
        Self::start_with(false).await
    }

    /// Starts the server, with Kubernetes' own controllers if they are needed.
    pub async fn start_with(controllers: bool) -> Result<Self> {
        let plane = ControlPlane::start(Options {
            controllers,
            ..Options::default()
        })
        .await?;
        let client = plane.client()?;
        install(&client, writ_api::crds().to_vec()).await?;
        Ok(Self { plane, client })
    }

    /// Runs the hub until it is ready.
    pub async fn run(&self, options: writ_hub::Options) -> Result<Running> {
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let task = tokio::spawn(writ_hub::run(
            self.client.clone(),
            options,
            health.clone(),
            shutdown.clone(),
        ));
        tokio::time::timeout(Duration::from_secs(30), health.ready())
            .await
            .with_context(|| format!("waiting for {:?}", health.closed()))?;
        Ok(Running { shutdown, task })
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
