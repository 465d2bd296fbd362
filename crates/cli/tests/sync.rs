//! `writ sync` as processes: a reconciler started by the command of its Deployment, and repositories behind ssh.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::ConfigMap},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    config::AuthInfo,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use writ_api::kpt::ResourceGroup;
use writ_fleet::{Cluster, Kind, cluster::install_crds, git::Repository, manifests, wait::until};
use writ_testenv::harness;

const SYSTEM: &str = "config-management-system";

fn main() {
    let mut tests = Vec::new();
    for kind in [Kind::Embedded, Kind::Real] {
        let add = |name: &str, test: harness_test::Test| harness_test::trial(kind, name, test);
        tests.push(add(
            "the_command_of_a_deployment_reconciles_with_its_account",
            |kind| Box::pin(pods(kind)),
        ));
        tests.push(add("a_repository_behind_ssh", |kind| Box::pin(ssh(kind))));
        tests.push(add("what_is_not_installed_is_told_once", |kind| {
            Box::pin(not_installed(kind))
        }));
    }
    harness::run(tests);
}

/// One test on either kind of cluster.
mod harness_test {
    use std::{future::Future, pin::Pin};

    use anyhow::Result;
    use writ_fleet::Kind;
    use writ_testenv::harness;

    pub type Test = fn(Kind) -> Pin<Box<dyn Future<Output = Result<()>>>>;

    pub fn trial(kind: Kind, name: &str, test: Test) -> libtest_mimic::Trial {
        match kind {
            Kind::Embedded => harness::plain(name, "embedded", move || test(kind)),
            Kind::Real => harness::real(name, move || test(kind)),
        }
    }
}

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Env {
    cluster: Cluster,
    admin: Client,
    folder: TempDir,
    repo: Repository,
}

impl Env {
    async fn start(kind: Kind) -> Result<Self> {
        let cluster = Cluster::start(kind, "cluster", 0, None, None).await?;
        let admin = cluster.admin().await?;
        manifests::apply_folder(&admin, "sync").await?;
        Ok(Self {
            cluster,
            admin,
            folder: TempDir::new()?,
            repo: Repository::new()?,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A kubeconfig file with the token of that account and nothing else.
    async fn kubeconfig(&self, account: &str) -> Result<PathBuf> {
        let token = self.cluster.token(SYSTEM, account).await?;
        let config = self.cluster.kubeconfig_with(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        });
        let file = self.path(&format!("{account}.kubeconfig"));
        fs::write(&file, writ_runtime::yaml::to_string(&config)?)?;
        Ok(file)
    }

    /// `writ sync` as the shipped account, with these programs to be found.
    async fn manager(&self, args: &[&str], path: &Path) -> Result<Process> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
        command
            .args(["sync", "--no-leader-election", "--kubeconfig"])
            .arg(self.kubeconfig("writ-sync").await?)
            .arg("--cache")
            .arg(self.path("clones"))
            .args(args)
            .env("PATH", path);
        Ok(Process(command.spawn()?))
    }

    fn syncs(&self) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync"));
        Api::namespaced_with(self.admin.clone(), SYSTEM, &resource)
    }

    async fn root_sync(&self, name: &str, git: Value, roles: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
            "metadata": { "name": name, "namespace": SYSTEM },
            "spec": { "sourceFormat": "unstructured", "git": git, "override": { "roleRefs": roles }},
        });
        self.syncs()
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object))
            .await?;
        Ok(())
    }

    async fn status(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let last = std::cell::RefCell::new(Value::Null);
        let found = until(what, || async {
            let object = self.syncs().get(name).await?;
            let status = object.data.get("status").cloned().unwrap_or_default();
            *last.borrow_mut() = status.clone();
            Ok(is(&status).then_some(status))
        })
        .await;
        found.with_context(|| format!("the last status of {name}: {:#}", last.borrow()))
    }

    async fn apply(&self, text: &str) -> Result<()> {
        manifests::apply(&self.admin, text).await
    }
}

fn config_map(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {{key: x}}\n"
    )
}

fn source_error(status: &Value) -> &str {
    status["source"]["errors"][0]["errorMessage"]
        .as_str()
        .unwrap_or_default()
}

/// On a cluster without its namespace or without its kinds, the log says so once, and what to do.
async fn not_installed(kind: Kind) -> Result<()> {
    let cluster = Cluster::start(kind, "cluster", 0, None, None).await?;
    let folder = TempDir::new()?;
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, writ_runtime::yaml::to_string(cluster.kubeconfig())?)?;
    let log = folder.path().join("log");
    let start = |args: &[&str]| -> Result<Process> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
        command.args(["sync", "--kubeconfig"]).arg(&kubeconfig);
        command.arg("--cache").arg(folder.path().join("clones"));
        command.args(args).stderr(fs::File::create(&log)?);
        Ok(Process(command.spawn()?))
    };
    let told = |what: &str| -> Result<usize> {
        let text = fs::read_to_string(&log)?;
        let told = text.lines().filter(|line| line.contains("writ install sync"));
        Ok(told.filter(|line| line.contains(what)).count())
    };
    let admin = cluster.admin().await?;

    let process = start(&[])?;
    let lease = "cannot write the lease";
    until("the way out is told", || async {
        Ok((told(lease)? > 0).then_some(()))
    })
    .await?;
    cluster.namespace(SYSTEM).await?;
    let leases: Api<Lease> = Api::namespaced(admin.clone(), SYSTEM);
    until("it is elected", || async {
        Ok(leases.get_opt("writ-sync").await?)
    })
    .await?;
    ensure!(told(lease)? == 1, "{}", fs::read_to_string(&log)?);
    drop(process);

    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let name = "rootsyncs.configsync.gke.io";
    definitions.delete(name, &DeleteParams::default()).await?;
    until("the definition is gone", || async {
        Ok(definitions.get_opt(name).await?.is_none().then_some(()))
    })
    .await?;
    let _process = start(&["--no-leader-election"])?;
    until("the way out is told", || async {
        Ok((told("RootSyncs")? > 0).then_some(()))
    })
    .await?;
    install_crds(&admin).await?;
    let object = json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
        "metadata": { "name": "late", "namespace": SYSTEM },
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync"));
    let syncs: Api<DynamicObject> = Api::namespaced_with(admin, SYSTEM, &resource);
    let params = PatchParams::apply("test");
    // A definition is established a moment before its kind is served.
    until("the kind is served", || async {
        Ok(Some(syncs.patch("late", &params, &Patch::Apply(&object)).await?))
    })
    .await?;
    until("it works on syncs", || async {
        Ok(syncs.get("late").await?.metadata.finalizers)
    })
    .await?;
    ensure!(told("RootSyncs")? == 1, "{}", fs::read_to_string(&log)?);
    Ok(())
}

/// `--isolation=pod`: what the Deployment says is started, word by word, with its environment and its account's token.
async fn pods(kind: Kind) -> Result<()> {
    let env = Env::start(kind).await?;
    env.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: pods}\n")
        .await?;
    env.apply("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pods}\nrules:\n- {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}\n").await?;
    let commit = env.repo.commit("main", &[("a.yaml", config_map("pods", "a"))])?;
    let nothing = env.path("nothing");
    let _manager = env
        .manager(&["--isolation", "pod", "--default-role", "none"], &nothing)
        .await?;
    let git = json!({ "repo": env.repo.url(), "branch": "main", "auth": "none", "period": "500ms" });
    env.root_sync("pods", git.clone(), json!([])).await?;
    let deployments = Api::<Deployment>::namespaced(env.admin.clone(), SYSTEM);
    let deployment = until("the Deployment", || async {
        Ok(deployments.get_opt("root-reconciler-pods").await?)
    })
    .await?;
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let account = pod.service_account_name.clone().unwrap();
    ensure!(account == "root-reconciler-pods");
    let container = &pod.containers[0];
    let words = container.command.clone().unwrap();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(container.args.iter().flatten());
    command.env_clear();
    // The program is found as in the image; the pod's volume and account come from a folder and a kubeconfig.
    let program = Path::new(env!("CARGO_BIN_EXE_writ")).parent().unwrap();
    command
        .env("PATH", program)
        .env("KUBECONFIG", env.kubeconfig(&account).await?);
    for variable in container.env.iter().flatten() {
        let mut value = variable.value.clone().unwrap_or_default();
        for mount in container.volume_mounts.iter().flatten() {
            if value == mount.mount_path {
                let folder = env.path(&mount.name);
                fs::create_dir_all(&folder)?;
                value = folder.display().to_string();
            }
        }
        command.env(&variable.name, value);
    }
    let _reconciler = Process(command.spawn().with_context(|| format!("start {words:?}"))?);
    // Bound to nothing, it is refused; bound to a role, it works.
    env.status("pods", "the refusal", |status| {
        status["sync"]["errors"][0]["code"] == "2013"
    })
    .await?;
    let roles = json!([{ "kind": "ClusterRole", "name": "pods", "namespace": "pods" }]);
    env.root_sync("pods", git, roles).await?;
    env.status("pods", "the commit", |status| {
        status["lastSyncedCommit"] == commit.as_str()
    })
    .await?;
    let maps = Api::<ConfigMap>::namespaced(env.admin.clone(), "pods");
    ensure!(maps.get_opt("a").await?.is_some());
    // An inventory that somebody deletes is made anew by the manager, and filled by the reconciler.
    let groups = Api::<ResourceGroup>::namespaced(env.admin.clone(), SYSTEM);
    groups.delete("pods", &DeleteParams::default()).await?;
    until("the inventory is restored", || async {
        let found = groups.get_opt("pods").await?;
        let listed = found.and_then(|group| group.spec.resources).unwrap_or_default();
        Ok(listed.iter().any(|object| object.name == "a").then_some(()))
    })
    .await?;
    env.syncs().delete("pods", &DeleteParams::default()).await?;
    until("the RootSync is gone", || async {
        Ok(env.syncs().get_opt("pods").await?.is_none().then_some(()))
    })
    .await?;
    ensure!(deployments.get_opt("root-reconciler-pods").await?.is_none());
    Ok(())
}

/// A program `ssh` that notes what it was told and runs the server's side on this machine.
fn fake_ssh(env: &Env) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = env.path("bin");
    fs::create_dir_all(&folder)?;
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("git"))
        .find(|file| file.is_file())
        .context("there is no git")?;
    let log = env.path("ssh.log");
    let script = format!(
        r#"#!/bin/sh
PATH={path}
log={log}
echo "args: $*" > $log.new
while [ $# -gt 0 ]; do
  case "$1" in
    -i) stat -c 'mode: %a' "$2" >> $log.new; sed 's/^/key: /' "$2" >> $log.new; shift ;;
    -o) case "$2" in UserKnownHostsFile=/dev/null) ;; UserKnownHostsFile=*) sed 's/^/hosts: /' "${{2#*=}}" >> $log.new ;; esac; shift ;;
    -F|-p) shift ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
echo "host: $1" >> $log.new
shift
mv $log.new $log
exec {git} -c safe.directory='*' upload-pack "$(echo "$*" | sed "s/^[^']*'//; s/'.*$//")"
"#,
        path = std::env::var("PATH").unwrap_or_default(),
        log = log.display(),
        git = git.display(),
    );
    let file = folder.join("ssh");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

async fn ssh(kind: Kind) -> Result<()> {
    let env = Env::start(kind).await?;
    let commit = env
        .repo
        .commit("main", &[("a.yaml", config_map("default", "by-ssh"))])?;
    let repo = format!("ssh://git@git.example.com{}", env.repo.path().display());
    let git = |auth: &str| match auth {
        "none" => json!({ "repo": repo, "branch": "main", "auth": "none", "period": "500ms" }),
        auth => {
            json!({ "repo": repo, "branch": "main", "auth": auth, "period": "500ms", "secretRef": { "name": "git-key" }})
        }
    };
    // Without the program, and without a key: said in words.
    {
        let _manager = env.manager(&[], &env.path("nothing")).await?;
        env.root_sync("ssh", git("none"), json!([])).await?;
        env.status("ssh", "a key is asked for", |status| {
            source_error(status).contains("spec.git.auth ssh")
        })
        .await?;
        env.root_sync("ssh", git("ssh"), json!([])).await?;
        env.status("ssh", "the Secret is asked for", |status| {
            source_error(status).contains("git-key")
        })
        .await?;
        env.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: git-key, namespace: config-management-system}\nstringData: {ssh: s3cret-key}\n")
            .await?;
        env.status("ssh", "the program is missing", |status| {
            source_error(status).contains("`ssh` is not installed")
        })
        .await?;
    }
    let bin = fake_ssh(&env)?;
    let _manager = env.manager(&[], &bin).await?;
    let status = env
        .status("ssh", "the commit", |status| {
            status["lastSyncedCommit"] == commit.as_str()
        })
        .await?;
    ensure!(!status.to_string().contains("s3cret"), "{status:#}");
    let maps = Api::<ConfigMap>::namespaced(env.admin.clone(), "default");
    ensure!(maps.get_opt("by-ssh").await?.is_some());
    let log = fs::read_to_string(env.path("ssh.log"))?;
    for line in [
        "mode: 600",
        "key: s3cret-key",
        "StrictHostKeyChecking=no",
        "BatchMode=yes",
    ] {
        ensure!(log.contains(line), "{line} is not in\n{log}");
    }
    ensure!(
        log.lines().any(|line| line == "host: git@git.example.com"),
        "{log}"
    );
    // Known hosts are checked.
    env.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: git-key, namespace: config-management-system}\nstringData: {ssh: s3cret-key, known_hosts: git.example.com ssh-ed25519 AAAA}\n")
        .await?;
    let next = env
        .repo
        .commit("main", &[("a.yaml", config_map("default", "by-ssh-too"))])?;
    env.status("ssh", "the next commit", |status| {
        status["lastSyncedCommit"] == next.as_str()
    })
    .await?;
    until("the known hosts are used", || async {
        let log = fs::read_to_string(env.path("ssh.log"))?;
        let all = log.contains("StrictHostKeyChecking=yes")
            && log.contains("hosts: git.example.com ssh-ed25519 AAAA");
        Ok(all.then_some(()))
    })
    .await?;
    // Nothing that an address says becomes an option.
    let evil = json!({ "repo": "ssh://-oProxyCommand=touch%20/tmp/x/repo", "auth": "ssh", "secretRef": { "name": "git-key" }});
    env.root_sync("evil", evil, json!([])).await?;
    env.status("evil", "the address is refused", |status| {
        !source_error(status).is_empty() && status["source"]["commit"].is_null()
    })
    .await?;
    ensure!(!fs::read_to_string(env.path("ssh.log"))?.contains("ProxyCommand"));
    Ok(())
}
