//! `writ grant` and `writ revoke`: the permission of a subject on clusters.

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::wait::{Condition, await_condition, conditions},
};
use writ_api::{
    authentication::ManagedServiceAccount,
    cluster::ManagedCluster,
    rbac::{ClusterPermission, cluster_permission::ClusterPermissionSpec},
};
use writ_controller::condition;

use crate::{
    connect::{Connection, explain},
    grant::{self, Grant as Wanted},
    output::{self, Format, clean},
    terminal,
};

/// How often to retry when a permission changed between read and write.
const TRIES: usize = 5;

/// The flags of both commands.
#[derive(Debug, Args)]
struct What {
    /// Who: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME, or account:NAME for a ManagedServiceAccount.
    #[arg(long, visible_alias = "from", value_name = "SUBJECT")]
    to: String,
    /// The role on the managed cluster: a ClusterRole, or role:NAME.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    role: String,
    /// The namespace on the managed cluster; without it, all namespaces.
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    /// The managed cluster; may be repeated.
    #[arg(long = "cluster", value_name = "NAME", required = true)]
    clusters: Vec<String>,
    /// Print what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl What {
    fn grant(&self) -> Result<Wanted> {
        let (role_kind, role) = grant::parse_role(&self.role);
        Ok(Wanted {
            subject: grant::parse_subject(&self.to)?,
            role_kind,
            role: role.into(),
            namespace: self.namespace.clone(),
        })
    }

    /// Prints the permissions that were written; a dry run prints them whole.
    fn print(&self, done: &[Done]) -> Result<()> {
        let format = match (self.output, self.dry_run) {
            (Format::Table, true) => Format::Yaml,
            (format, _) => format,
        };
        match format {
            Format::Table => done.iter().for_each(|done| println!("{}", done.words)),
            Format::Name => done.iter().for_each(|done| {
                println!(
                    "clusterpermissions.rbac.open-cluster-management.io/{}",
                    done.permission.name_any()
                );
            }),
            _ => match done {
                [only] => output::value(format, &only.permission, String::new)?,
                many => {
                    let items: Vec<_> = many.iter().map(|done| &done.permission).collect();
                    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
                    output::value(format, &list, String::new)?;
                }
            },
        }
        Ok(())
    }
}

/// One permission that was written, with a sentence about it.
struct Done {
    permission: ClusterPermission,
    words: String,
}

/// Grant a role on managed clusters: writes or extends a ClusterPermission.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ grant --to user:alice --role view --namespace web --cluster cluster1\n  writ grant --to account:robot --role edit --cluster cluster1 --cluster cluster2 --wait\n  writ grant --to group:team-a --role view --cluster cluster1 --dry-run"
)]
pub struct Grant {
    #[command(flatten)]
    what: What,
    /// The ClusterPermission; default: one per subject, such as user-alice.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Wait until the clusters have it.
    #[arg(long)]
    wait: bool,
}

/// Fails if the hub has no such cluster. Without the right to read clusters, the write reports it.
async fn check_cluster_exists(client: &Client, cluster: &str) -> Result<()> {
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    if let Ok(None) = clusters.get_metadata_opt(cluster).await {
        bail!("this hub has no cluster {cluster}; `writ get clusters` lists those it has");
    }
    Ok(())
}

/// Warns about a missing account: it may be created after its grant, but its name may also be mistyped.
async fn warn_missing_account(client: &Client, cluster: &str, account: &str) {
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(client.clone(), cluster);
    if let Ok(None) = accounts.get_metadata_opt(account).await {
        eprintln!(
            "{cluster} has no account {account} yet: the grant waits for it; `writ get accounts -n {cluster}` lists those it has"
        );
    }
}

impl Grant {
    pub async fn run(self) -> Result<ExitCode> {
        let wanted = self.what.grant()?;
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| grant::permission_name(&wanted.subject));
        let client = self.what.connection.client().await?;
        // A wrong name fails before anything is granted.
        for cluster in &self.what.clusters {
            check_cluster_exists(&client, cluster).await?;
            if let Some(account) = grant::account(&wanted.subject) {
                warn_missing_account(&client, cluster, account).await;
            }
        }
        let mut done = Vec::new();
        let granted = self.grant(&client, &name, &wanted, &mut done).await;
        // Print what was granted even if a later cluster failed.
        self.what.print(&done)?;
        granted?;
        Ok(ExitCode::SUCCESS)
    }

    async fn grant(&self, client: &Client, name: &str, wanted: &Wanted, done: &mut Vec<Done>) -> Result<()> {
        for cluster in &self.what.clusters {
            let api: Api<ClusterPermission> = Api::namespaced(client.clone(), cluster);
            done.push(self.write(&api, cluster, name, wanted).await?);
        }
        if self.wait && !self.what.dry_run {
            for cluster in &self.what.clusters {
                let missing = wait(&Api::namespaced(client.clone(), cluster), cluster, name).await?;
                if let Some(missing) = missing {
                    bail!(
                        "ClusterPermission {cluster}/{name} does not take effect: {missing}\ncreate it on {cluster}, or take it back with `writ revoke` and name another role"
                    );
                }
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        api: &Api<ClusterPermission>,
        cluster: &str,
        name: &str,
        wanted: &Wanted,
    ) -> Result<Done> {
        let what = format!("write ClusterPermission {cluster}/{name}");
        for _ in 0..TRIES {
            let found = api.get_opt(name).await.map_err(|e| explain(&what, &e))?;
            let new = found.is_none();
            let mut permission = found.unwrap_or_else(|| {
                // With `validate`, a role that is missing on the cluster is reported.
                let spec = ClusterPermissionSpec {
                    validate: Some(true),
                    ..ClusterPermissionSpec::default()
                };
                let mut permission = ClusterPermission::new(name, spec);
                permission.metadata.namespace = Some(cluster.into());
                permission
            });
            let changed = wanted.add(name, &mut permission.spec)?;
            let words = |verb: &str| {
                format!(
                    "ClusterPermission {cluster}/{name} {verb}: it gives {} {} on {cluster}",
                    self.what.to,
                    wanted.words()
                )
            };
            if self.what.dry_run {
                permission.metadata.managed_fields = None;
                permission.status = None;
                return Ok(Done {
                    permission,
                    words: words("would be written"),
                });
            }
            if !changed {
                return Ok(Done {
                    permission,
                    words: words("unchanged"),
                });
            }
            let params = PostParams::default();
            let (answer, verb) = if new {
                (api.create(&params, &permission).await, "created")
            } else {
                (api.replace(name, &params, &permission).await, "extended")
            };
            match answer {
                // The permission changed since it was read: retry.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status))
                    if status.code == 404
                        && status
                            .details
                            .as_ref()
                            .is_some_and(|details| details.kind == "namespaces") =>
                {
                    bail!(
                        "{what}: {cluster} has no namespace on this hub: it is not accepted yet; `writ accept {cluster}` accepts it"
                    )
                }
                answer => {
                    return Ok(Done {
                        permission: answer.map_err(|e| explain(&what, &e))?,
                        words: words(verb),
                    });
                }
            }
        }
        bail!("{what}: the permission changed {TRIES} times meanwhile; try again")
    }
}

/// The progress of a permission at its current generation.
enum Progress {
    /// It is in place.
    Ready,
    /// The cluster lacks a role: its bindings grant nothing.
    Missing(String),
    /// Not yet, for this reason.
    Waiting(String),
}

fn progress(permission: &ClusterPermission) -> Progress {
    let conditions = permission
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let current = |name: &str| {
        condition::find(conditions, name)
            .filter(|condition| condition.observed_generation == permission.metadata.generation)
    };
    let checks = ["ValidateClusterRolesExist", "ValidateRolesExist"].map(current);
    if let Some(missing) = checks.into_iter().flatten().find(|check| check.status == "False") {
        return Progress::Missing(missing.message.clone());
    }
    match current("Ready") {
        None => Progress::Waiting("the hub has not processed it yet".into()),
        Some(ready) if ready.status != "True" => {
            // The further lines are a kubectl command; `writ describe` says more.
            Progress::Waiting(ready.message.lines().next().unwrap_or_default().to_owned())
        }
        Some(_) => Progress::Ready,
    }
}

/// Waits until the agent has reported on the current generation. Returns a message if the cluster lacks roles.
async fn wait(api: &Api<ClusterPermission>, cluster: &str, name: &str) -> Result<Option<String>> {
    let last = Mutex::new(Progress::Waiting(String::new()));
    let bar = terminal::spinner(format!("waiting for {cluster}"));
    let is_settled = |permission: Option<&ClusterPermission>| {
        let now = permission.map_or(Progress::Waiting("it is gone".into()), progress);
        // Shown while waiting, not only after the timeout: a namespace may be mistyped.
        if let Progress::Waiting(reason) = &now {
            bar.set_message(clean(&format!("waiting for {cluster}: {reason}")).into_owned());
        }
        let settled = !matches!(now, Progress::Waiting(_));
        *last.lock().unwrap_or_else(PoisonError::into_inner) = now;
        settled
    };
    let waited = wait_until(api, cluster, name, is_settled).await;
    bar.finish_and_clear();
    match last.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Progress::Waiting(last) => {
            waited.with_context(|| format!("{cluster} does not have it: {last}"))?;
            Ok(None)
        }
        Progress::Missing(message) => Ok(Some(message)),
        Progress::Ready => Ok(None),
    }
}

/// Waits until a permission meets a condition.
async fn wait_until(
    api: &Api<ClusterPermission>,
    cluster: &str,
    name: &str,
    is: impl Condition<ClusterPermission>,
) -> Result<()> {
    let answer = tokio::time::timeout(Duration::from_mins(1), await_condition(api.clone(), name, is)).await;
    match answer {
        Ok(answer) => answer
            .map(drop)
            .with_context(|| format!("watch ClusterPermission {cluster}/{name}")),
        Err(_) => {
            bail!("a minute is over; `writ describe permission {name} -n {cluster}` says more")
        }
    }
}

/// Take a role on managed clusters away: from every ClusterPermission that grants it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ revoke --from user:alice --role view --namespace web --cluster cluster1 --wait\n\nExit code: 0 if it was taken away, 1 if nothing grants it, 2 on an error."
)]
pub struct Revoke {
    #[command(flatten)]
    what: What,
    /// Wait until the clusters no longer have it.
    #[arg(long)]
    wait: bool,
}

impl Revoke {
    pub async fn run(self) -> Result<ExitCode> {
        let wanted = self.what.grant()?;
        let client = self.what.connection.client().await?;
        let (mut done, mut missing) = (Vec::new(), Vec::new());
        let revoked = self.revoke(&client, &wanted, &mut done, &mut missing).await;
        // Print what was revoked even if a later cluster failed.
        self.what.print(&done)?;
        revoked?;
        for cluster in &missing {
            eprintln!(
                "no ClusterPermission grants {} {} on {cluster}; `writ why` shows where a right comes from",
                self.what.to,
                wanted.words()
            );
        }
        Ok(if missing.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn revoke<'s>(
        &'s self,
        client: &Client,
        wanted: &Wanted,
        done: &mut Vec<Done>,
        missing: &mut Vec<&'s str>,
    ) -> Result<()> {
        for cluster in &self.what.clusters {
            let api: Api<ClusterPermission> = Api::namespaced(client.clone(), cluster);
            let found = api
                .list(&ListParams::default())
                .await
                .map_err(|e| explain(&format!("read the ClusterPermissions of {cluster}"), &e))?;
            let before = done.len();
            for permission in found {
                done.extend(self.take(&api, cluster, permission, wanted).await?);
            }
            if done.len() == before {
                // Checked last: permissions of a cluster that is gone can still be revoked.
                check_cluster_exists(client, cluster).await?;
                missing.push(cluster);
            }
        }
        if self.wait && !self.what.dry_run {
            for one in done.iter() {
                let (name, cluster) = (
                    one.permission.name_any(),
                    one.permission.namespace().unwrap_or_default(),
                );
                let api: Api<ClusterPermission> = Api::namespaced(client.clone(), &cluster);
                if grant::is_empty(&one.permission.spec) {
                    let uid = one.permission.uid().unwrap_or_default();
                    let bar = terminal::spinner(format!("waiting for {cluster}"));
                    let gone = wait_until(&api, &cluster, &name, conditions::is_deleted(&uid)).await;
                    bar.finish_and_clear();
                    gone.with_context(|| format!("{cluster} still has it"))?;
                } else {
                    // Missing roles of the other bindings are not the concern of this revocation.
                    let _lacks = wait(&api, &cluster, &name).await?;
                }
            }
        }
        Ok(())
    }

    async fn take(
        &self,
        api: &Api<ClusterPermission>,
        cluster: &str,
        mut permission: ClusterPermission,
        wanted: &Wanted,
    ) -> Result<Option<Done>> {
        let name = permission.name_any();
        let what = format!("change ClusterPermission {cluster}/{name}");
        for _ in 0..TRIES {
            if !wanted.remove(&mut permission.spec) {
                return Ok(None);
            }
            let done = |permission: ClusterPermission, verb: &str| {
                let words = format!(
                    "ClusterPermission {cluster}/{name} {verb}: {} no longer has {} through it",
                    self.what.to,
                    wanted.words()
                );
                Ok(Some(Done { permission, words }))
            };
            if self.what.dry_run {
                permission.metadata.managed_fields = None;
                permission.status = None;
                return done(permission, "would be changed");
            }
            let (answer, verb) = if grant::is_empty(&permission.spec) {
                // Only the version that was read: a grant added meanwhile must not be deleted with it.
                let params = DeleteParams {
                    preconditions: Some(kube::api::Preconditions {
                        resource_version: permission.resource_version(),
                        uid: permission.uid(),
                    }),
                    ..DeleteParams::default()
                };
                let deleted = api.delete(&name, &params).await;
                (deleted.map(|_| permission.clone()), "deleted")
            } else {
                let replaced = api.replace(&name, &PostParams::default(), &permission).await;
                (replaced, "changed")
            };
            match answer {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    permission = api.get(&name).await.map_err(|e| explain(&what, &e))?;
                }
                answer => return done(answer.map_err(|e| explain(&what, &e))?, verb),
            }
        }
        bail!("{what}: the permission changed {TRIES} times meanwhile; try again")
    }
}
