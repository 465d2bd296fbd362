//! One real control plane and one manager for all cases: each uses syncs and namespaces of its own.

use std::{
    future::Future,
    sync::{OnceLock, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_runtime::health::Health;
use writ_testenv::{ControlPlane, git::Repository};

pub const SYSTEM: &str = "config-management-system";

/// A control plane with a manager that has exactly the rights that `deploy/sync` ships.
pub struct Env {
    pub plane: ControlPlane,
    pub cache: std::path::PathBuf,
}

static SHARED: OnceLock<Env> = OnceLock::new();

/// The environment that most cases share.
pub fn shared() -> &'static Env {
    SHARED.get_or_init(|| start(writ_sync::Options::default()).expect("a control plane"))
}

/// Starts a control plane and a manager that live as long as this process.
pub fn start(options: writ_sync::Options) -> Result<Env> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let started = boot(options).await;
            let failed = started.is_err();
            let _ = sender.send(started);
            if !failed {
                std::future::pending::<()>().await;
            }
        });
    });
    receiver.recv()?
}

async fn boot(mut options: writ_sync::Options) -> Result<Env> {
    if std::env::var("RUST_LOG").is_ok() {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
    }
    let plane = ControlPlane::start(writ_testenv::Options::default()).await?;
    let admin = plane.client()?;
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for crd in [writ_api::configsync::crds(), writ_api::kpt::crds()].concat() {
        crds.patch(
            &crd.name_any(),
            &PatchParams::apply("test").force(),
            &Patch::Apply(&crd),
        )
        .await?;
        kube::runtime::wait::await_condition(
            crds.clone(),
            &crd.name_any(),
            kube::runtime::conditions::is_crd_established(),
        )
        .await?;
    }
    for file in ["namespace.yaml", "roles.yaml"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy/sync")
            .join(file);
        apply(&admin, &std::fs::read_to_string(path)?).await?;
    }
    let token = token(&admin, SYSTEM, "writ-sync").await?;
    let config = config(plane.kubeconfig_with(AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    }))
    .await?;
    // Webhooks are for those who do not trust their tenants.
    options.tenants_read_local = !options.require_bind;
    options.leader_election = Some("test".into());
    options.cache = std::env::temp_dir().join(format!("writ-sync-test-{}", std::process::id()));
    let cache = options.cache.clone();
    let health = Health::default();
    tokio::spawn({
        let health = health.clone();
        async move {
            if let Err(error) = writ_sync::run(config, options, health, CancellationToken::new()).await {
                eprintln!("the manager ended: {error}");
            }
        }
    });
    tokio::time::timeout(Duration::from_mins(1), health.ready())
        .await
        .context("the manager did not become ready")?;
    Ok(Env { plane, cache })
}

pub async fn config(kubeconfig: Kubeconfig) -> Result<Config> {
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A token of a ServiceAccount.
pub async fn token(admin: &Client, namespace: &str, name: &str) -> Result<String> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec::default()),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    until("the ServiceAccount", || async {
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?;
        Ok(answer.status.and_then(|status| status.token))
    })
    .await
}

/// Asks until the answer is there.
pub async fn until<T, F, Fut>(what: &str, mut ask: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        let answer = ask().await;
        if let Ok(Some(found)) = answer {
            return Ok(found);
        }
        if started.elapsed() > Duration::from_mins(3) {
            match answer {
                Err(error) => bail!("waited for: {what}; the last error: {error:#}"),
                Ok(_) => bail!("waited for: {what}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates or changes every object of the text.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    for object in writ_runtime::yaml::documents::<DynamicObject>(text)? {
        let api = api(client, &object)?;
        api.patch(
            &object.name_any(),
            &PatchParams::apply("test").force(),
            &Patch::Apply(&object),
        )
        .await
        .with_context(|| format!("apply {}", object.name_any()))?;
    }
    Ok(())
}

fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.clone().context("no kind")?;
    let (group, version) = types
        .api_version
        .split_once('/')
        .unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// A case: an admin's client, and a repository.
pub struct Case {
    pub env: &'static Env,
    pub admin: Client,
    pub repo: Repository,
}

impl Case {
    pub fn new() -> Result<Self> {
        let env = shared();
        Ok(Self {
            env,
            admin: env.plane.client()?,
            repo: Repository::new()?,
        })
    }

    pub fn syncs(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", kind));
        Api::namespaced_with(self.admin.clone(), namespace, &resource)
    }

    /// Creates or changes a RootSync of this case's repository.
    pub async fn root_sync(&self, name: &str, extra: Value) -> Result<()> {
        self.sync("RootSync", SYSTEM, name, extra).await
    }

    pub async fn sync(&self, kind: &str, namespace: &str, name: &str, extra: Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "configsync.gke.io/v1beta1",
            "kind": kind,
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "sourceFormat": "unstructured",
                "git": { "repo": self.repo.url(), "branch": "main", "auth": "none", "period": "500ms" },
            },
        });
        json_merge(&mut object, extra);
        self.syncs(kind, namespace)
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
            .await?;
        Ok(())
    }

    pub async fn status(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let object = self.syncs(kind, namespace).get(name).await?;
        Ok(object.data.get("status").cloned().unwrap_or_default())
    }

    /// Waits until the sync's status is as asked for.
    pub async fn when(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        self.when_of("RootSync", SYSTEM, name, what, is).await
    }

    pub async fn when_of(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let last = std::cell::RefCell::new(Value::Null);
        let found = until(what, || async {
            let status = self.status(kind, namespace, name).await?;
            *last.borrow_mut() = status.clone();
            Ok(is(&status).then_some(status))
        })
        .await;
        found.with_context(|| format!("the last status of {kind} {name}: {:#}", last.borrow()))
    }

    /// Waits until that commit is applied without errors.
    pub async fn synced(&self, name: &str, commit: &str) -> Result<Value> {
        self.when(name, &format!("{name} is at {commit}"), |status| {
            status["lastSyncedCommit"] == commit
        })
        .await
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        self.syncs(kind, namespace)
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    pub async fn gone(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        until(&format!("{kind} {name} is gone"), || async {
            Ok(self
                .syncs(kind, namespace)
                .get_opt(name)
                .await?
                .is_none()
                .then_some(()))
        })
        .await
    }

    /// A client with the token of a sync's account.
    pub async fn as_reconciler(&self, account: &str) -> Result<Client> {
        let token = token(&self.admin, SYSTEM, account).await?;
        self.env.plane.client_with_token(&token)
    }
}

/// Puts the second into the first.
pub fn json_merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The condition of a type.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    status["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == type_))
        .unwrap_or(&Value::Null)
}

/// A ConfigMap as a file.
pub fn config_map(namespace: &str, name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  key: {value:?}\n"
    )
}

/// What a reconciler needs to manage ConfigMaps.
pub fn config_map_role(kind: &str, name: &str, namespace: &str) -> String {
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("\n  namespace: {namespace}")
    };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}{namespace}\nrules:\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get, list, watch, create, patch, delete]\n"
    )
}

pub fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}
