//! One API server, embedded or real, with the same interface.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        core::v1::Namespace,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    runtime::wait::{Condition, await_condition, conditions},
};
use tokio::sync::OnceCell;
use writ_apiserver::{Definitions, Recorder, Server};
use writ_process::token;
#[cfg(feature = "real")]
use writ_testenv::{ControlPlane, Options};

/// How many definitions are installed at once.
const CRDS_AT_ONCE: usize = 8;

/// The two kinds of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `writ-apiserver`, in this process.
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager.
    Real,
}

impl Kind {
    /// The word for messages and for the marker file of a fleet.
    pub fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

enum Plane {
    Embedded(Server),
    #[cfg(feature = "real")]
    #[expect(dead_code, reason = "held to keep the servers running")]
    Real(Box<ControlPlane>),
    /// Another process runs it.
    Elsewhere,
}

/// An API server. It stops when it is dropped.
///
/// Clients of an embedded server bypass the network: the same authentication and authorization without a connection.
pub struct Cluster {
    name: String,
    kubeconfig: Kubeconfig,
    /// One client for all requests of the admin, as a connection costs more than a request.
    admin: Client,
    plane: Plane,
}

impl Cluster {
    /// Starts an API server with writ's CRDs. Port 0 picks a free port; without a folder nothing is kept. Only an embedded
    /// server reports used rights to the recorder.
    pub async fn start(
        kind: Kind,
        name: &str,
        port: u16,
        data: Option<PathBuf>,
        recorder: Option<Arc<Recorder>>,
    ) -> Result<Self> {
        let keeps = data.is_some();
        let (kubeconfig, plane) = match kind {
            Kind::Real => real(port, data).await?,
            Kind::Embedded => {
                let mut builder = Server::builder().port(port).definitions(definitions().await?);
                if let Some(folder) = data {
                    builder = builder.data(folder);
                }
                if let Some(recorder) = recorder {
                    builder = builder.recorder(recorder);
                }
                let server = builder
                    .start()
                    .await
                    .with_context(|| format!("start the API server of {name}"))?;
                (
                    Kubeconfig::from_yaml(&server.kubeconfig()?)?,
                    Plane::Embedded(server),
                )
            }
        };
        let cluster = Self::new(name, kubeconfig, plane).await?;
        // The kept data of an embedded server may have the definitions of an earlier version.
        if kind == Kind::Real || keeps {
            install_crds(&cluster.admin).await?;
        }
        Ok(cluster)
    }

    /// An API server that another process runs, with the kubeconfig of its admin.
    pub async fn attach(name: &str, kubeconfig: Kubeconfig) -> Result<Self> {
        Self::new(name, kubeconfig, Plane::Elsewhere).await
    }

    async fn new(name: &str, kubeconfig: Kubeconfig, plane: Plane) -> Result<Self> {
        let admin = if let Plane::Embedded(server) = &plane {
            server.client()
        } else {
            client(kubeconfig.clone()).await?
        };
        Ok(Self {
            name: name.into(),
            admin,
            kubeconfig,
            plane,
        })
    }

    /// `hub`, `cluster1`, ...
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The admin's kubeconfig, with everything inside.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        let cluster = self
            .kubeconfig
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref());
        cluster
            .and_then(|cluster| cluster.server.clone())
            .unwrap_or_default()
    }

    /// The CA of the API server: PEM in base64.
    pub fn ca(&self) -> Option<String> {
        self.kubeconfig
            .clusters
            .first()?
            .cluster
            .as_ref()?
            .certificate_authority_data
            .clone()
    }

    /// A client with all rights, for the administrator. No part of writ runs with it.
    #[expect(
        clippy::unused_async,
        reason = "scenarios await it; a client may have to be made"
    )]
    pub async fn admin(&self) -> Result<Client> {
        Ok(self.admin.clone())
    }

    /// A client that acts as this user in these groups.
    pub async fn user(&self, user: &str, groups: &[&str]) -> Result<Client> {
        if let Plane::Embedded(server) = &self.plane {
            return Ok(server.client_as(user, groups.iter().copied()));
        }
        client(self.kubeconfig_as(user, groups)).await
    }

    /// A client with a token of this ServiceAccount, as a pod would have.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        let token = self.token(namespace, name).await?;
        self.with_token(&token).await
    }

    /// A client with this bearer token.
    pub async fn with_token(&self, token: &str) -> Result<Client> {
        if let Plane::Embedded(server) = &self.plane {
            return Ok(server.client_with_token(token)?);
        }
        client(self.kubeconfig_with(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        }))
        .await
    }

    /// An anonymous client; requests may carry a token of their own.
    pub async fn anonymous(&self) -> Result<Client> {
        if let Plane::Embedded(server) = &self.plane {
            return Ok(server.anonymous());
        }
        client(self.kubeconfig_with(AuthInfo::default())).await
    }

    /// A token of this ServiceAccount.
    pub async fn token(&self, namespace: &str, name: &str) -> Result<String> {
        let token = token::request(&self.admin().await?, namespace, name, None).await?;
        Ok(token.text)
    }

    /// A kubeconfig that acts as this user in these groups.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let admin = self
            .kubeconfig
            .auth_infos
            .first()
            .and_then(|named| named.auth_info.clone());
        self.kubeconfig_with(AuthInfo {
            impersonate: Some(user.into()),
            impersonate_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
            ..admin.unwrap_or_default()
        })
    }

    /// A kubeconfig with other credentials.
    pub fn kubeconfig_with(&self, auth: AuthInfo) -> Kubeconfig {
        let mut config = self.kubeconfig.clone();
        if let Some(named) = config.auth_infos.first_mut() {
            named.auth_info = Some(auth);
        }
        config
    }

    /// Creates a namespace unless it exists.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
        match Api::all(self.admin().await?)
            .create(&PostParams::default(), &namespace)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => answer
                .map(drop)
                .with_context(|| format!("create namespace {name}")),
        }
    }

    /// Whether the API server's authorizer lets `user` (in `groups`) do this.
    pub async fn allows(&self, user: &str, groups: &[&str], what: ResourceAttributes) -> Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.into()),
                groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
                resource_attributes: Some(what),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::all(self.admin().await?)
            .create(&PostParams::default(), &review)
            .await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(feature = "real")]
async fn real(port: u16, data: Option<PathBuf>) -> Result<(Kubeconfig, Plane)> {
    let options = Options {
        port,
        data,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await?;
    Ok((plane.kubeconfig().clone(), Plane::Real(Box::new(plane))))
}

#[cfg(not(feature = "real"))]
#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
async fn real(_: u16, _: Option<PathBuf>) -> Result<(Kubeconfig, Plane)> {
    anyhow::bail!(
        "this writ was built without real control planes, as those of the images are; \
         `cargo install --path crates/cli` builds one that starts them"
    )
}

/// Writ's definitions as an embedded server stores them: installed once per process, and copied to every cluster.
async fn definitions() -> Result<Definitions> {
    static MADE: OnceCell<Definitions> = OnceCell::const_new();
    let make = || async {
        let server = Server::builder().start().await?;
        install_crds(&server.client()).await?;
        anyhow::Ok(server.definitions())
    };
    MADE.get_or_try_init(make).await.cloned()
}

/// Installs writ's definitions, several at once, and waits until all are served.
pub async fn install_crds(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let install = |crd: &'static CustomResourceDefinition| {
        let api = api.clone();
        async move {
            let name = crd.name_any();
            let made = api
                .patch(&name, &PatchParams::apply("writ").force(), &Patch::Apply(crd))
                .await
                .with_context(|| format!("install CRD {name}"))?;
            if !conditions::is_crd_established().matches_object(Some(&made)) {
                await_condition(api, &name, conditions::is_crd_established()).await?;
            }
            anyhow::Ok(())
        }
    };
    stream::iter(writ_api::crds().iter().map(install))
        .buffer_unordered(CRDS_AT_ONCE)
        .try_collect()
        .await
}

/// A client of this kubeconfig.
pub async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(writ_process::client::connect(config)?)
}
