//! An agent that keeps accounts, on one control plane that plays both clusters.

use std::{fmt::Debug, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec},
        core::v1::{Namespace, Secret, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{conditions, wait::await_condition},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_agent::{Options, options::TokenOptions};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{condition, health::Health};
use writ_testenv::ControlPlane;

pub const CLUSTER: &str = "c1";
pub const AGENTS: &str = "agents";

pub struct Env {
    pub plane: ControlPlane,
    pub admin: Client,
}

impl Env {
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start(writ_testenv::Options::default()).await?;
        let admin = plane.client()?;
        let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
        for crd in writ_api::authentication::crds() {
            crds.create(&PostParams::default(), &crd).await?;
            await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established()).await?;
        }
        for name in [CLUSTER, AGENTS] {
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(name.into()),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            Api::all(admin.clone())
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        Ok(Self { plane, admin })
    }

    pub fn agent(&self) -> Agent {
        Agent::start(
            self.admin.clone(),
            self.admin.clone(),
            Options {
                cluster_name: CLUSTER.into(),
                agent_namespace: AGENTS.into(),
                controllers: vec!["tokens".into()],
                tokens: TokenOptions {
                    api_server_url: Some(self.plane.url()),
                    ..TokenOptions::default()
                },
                ..Options::default()
            },
        )
    }

    pub fn accounts(&self) -> Api<ManagedServiceAccount> {
        Api::namespaced(self.admin.clone(), CLUSTER)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), CLUSTER)
    }

    pub fn service_accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.admin.clone(), AGENTS)
    }

    pub async fn create(&self, name: &str, change: serde_json::Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1",
            "kind": "ManagedServiceAccount",
            "metadata": { "name": name },
            "spec": { "rotation": {} },
        });
        json_patch::merge(&mut object, &change);
        self.accounts()
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(())
    }

    /// The token in the Secret, once the status reports it and it is none of these.
    pub async fn token(&self, name: &str, not: &[&str]) -> Result<String> {
        let account = eventually(&self.accounts(), name, |account| {
            account.is_some_and(|account| {
                account.status.as_ref().is_some_and(|status| {
                    condition::is_true(&status.conditions, "TokenReported")
                        && condition::is_true(&status.conditions, "SecretCreated")
                        && condition::is_true(&status.conditions, "AllServiceAccountPresent")
                        && status.expiration_timestamp.is_some()
                        && status.token_secret_ref.as_ref().is_some_and(|at| at.name == name)
                })
            })
        })
        .await?;
        ensure!(account.is_some());
        let secret = eventually(&self.secrets(), name, |secret| {
            secret.is_some_and(|secret| {
                token_of(secret)
                    .is_some_and(|token| token.matches('.').count() == 2 && !not.contains(&token.as_str()))
            })
        })
        .await?
        .context("no Secret")?;
        token_of(&secret).context("no token")
    }

    pub async fn accepted(&self, token: &str) -> Result<Option<String>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.into(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let review = Api::<TokenReview>::all(self.admin.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = review.status.context("no answer")?;
        Ok(status
            .authenticated
            .unwrap_or_default()
            .then(|| status.user.and_then(|user| user.username).unwrap_or_default()))
    }

    /// Waits until a token is refused: for ten seconds the API server remembers that it was good.
    pub async fn refused(&self, token: &str) -> Result<()> {
        tokio::time::timeout(Duration::from_mins(1), async {
            while self.accepted(token).await?.is_some() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        })
        .await
        .context("the token is still good")?
    }

    pub async fn patch<K>(&self, api: &Api<K>, name: &str, patch: serde_json::Value) -> Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// As the hub's manager asks when it sees that a Secret differs.
    pub async fn ask_for_repair(&self, name: &str, value: &str) -> Result<()> {
        self.patch(
            &self.accounts(),
            name,
            json!({"metadata": {"annotations": {"authentication.writ.dev/repair": value}}}),
        )
        .await
    }
}

pub struct Agent {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    pub fn start(hub: Client, spoke: Client, options: Options) -> Self {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let task = tokio::spawn(async move {
            writ_agent::run(hub, spoke, options, Health::default(), stop)
                .await
                .unwrap();
        });
        Self { shutdown, task }
    }

    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.task.await?)
    }
}

pub fn token_of(secret: &Secret) -> Option<String> {
    let token = secret.data.as_ref()?.get("token")?;
    String::from_utf8(token.0.clone()).ok()
}

/// Waits until the object is as wanted.
pub async fn eventually<K>(api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool) -> Result<Option<K>>
where
    K: kube::Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let seen = Arc::new(std::sync::Mutex::new(None));
    let last = seen.clone();
    let reached = await_condition(api.clone(), name, move |object: Option<&K>| {
        *last.lock().unwrap() = object.cloned();
        wanted(object)
    });
    match tokio::time::timeout(Duration::from_mins(1), reached).await {
        Ok(object) => Ok(object?),
        Err(_) => bail!("{name} did not get there: {:?}", seen.lock().unwrap()),
    }
}
