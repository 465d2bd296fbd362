//! Which users may change a sync. With `--require-bind`, the editor of a sync needs the rights that the sync uses.
//!
//! The editor of a RootSync decides what its reconciler does with the roles that the sync has. So every change of the
//! spec requires `bind` on every role in force afterwards: the roles that the spec names, or cluster-admin if it names
//! none and that is the default. Neither emptying the list nor pointing a privileged sync at another repository avoids
//! this. The reconciler also sends the Secrets of its source to a server that the editor chooses, so `get` on these is
//! required as well. That holds for a RepoSync too, which has no roles to choose.

use std::{future::ready, sync::Arc};

use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, Client};
use serde_json::{Value, json};
use writ_api::configsync::{RepoSyncSpec, RoleRef, RoleRefKind, RootSyncSpec};
use writ_controller::{Error, write};
use writ_process::{
    admission::{
        Access, Authorizer, Decision, Operation, Request, Requirement, Rule, SubjectAccessReviews, Webhook,
        configurations, router, spec_of,
    },
    webhook::{self, Source, Target, Timing},
};

use crate::{
    Context, DefaultRole, Options,
    model::{SYSTEM_NAMESPACE, SyncKind},
    spec::{roles_in_force, secrets},
};

/// The name of the webhook configuration.
const CONFIGURATION: &str = "writ-sync";

/// The webhook. Its handlers are given the role that a RootSync without roles has.
const WEBHOOKS: &[Webhook<DefaultRole>] = &[Webhook {
    name: "syncs.sync.writ.dev",
    configuration: CONFIGURATION,
    path: "/validate-sync",
    mutating: false,
    rule: Rule {
        group: "configsync.gke.io",
        version: "*",
        resources: &["rootsyncs", "reposyncs"],
        operations: &[Operation::Create, Operation::Update],
        scope: "Namespaced",
    },
    only_if: None,
    handler: |default, request| ready(Ok(decide(&request, default))).boxed(),
}];

/// Serves the webhook until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let options = webhook::Options {
        listen: context.options.webhook_listen,
        target: target(&context.options),
        source: match &context.options.webhook_certs {
            Some(folder) => Source::Folder(folder.clone()),
            None => Source::Secret {
                namespace: SYSTEM_NAMESPACE.into(),
                name: "writ-sync-webhook".into(),
            },
        },
        timing: Timing::default(),
    };
    let authorizer: Arc<dyn Authorizer> = Arc::new(SubjectAccessReviews(context.client.clone()));
    webhook::run(
        context.client,
        options,
        configurations(WEBHOOKS),
        router(WEBHOOKS, &context.options.default_role, &authorizer),
        &context.health,
        context.shutdown,
    )
    .await
}

/// Removes the webhook configuration of an earlier process with `--require-bind`: it would deny every change, as no server
/// answers it.
pub async fn retire(client: &Client) {
    let configurations = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    if let Err(error) = write::delete(&configurations, CONFIGURATION, None).await {
        tracing::warn!(
            %error,
            "a ValidatingWebhookConfiguration {CONFIGURATION} of an earlier --require-bind would refuse every change of a sync: delete it, if there is one"
        );
    }
}

fn target(options: &Options) -> Target {
    match &options.webhook_url {
        Some(url) => Target::Url(Some(url.clone())),
        // A port that the system picks is in no Service.
        None if options.webhook_listen.port() == 0 => Target::Url(None),
        None => Target::Service {
            namespace: SYSTEM_NAMESPACE.into(),
            name: "writ-sync".into(),
        },
    }
}

fn decide(request: &Request, default: DefaultRole) -> Decision {
    let Some(kind) = SyncKind::parse(&request.kind.kind) else {
        return Decision::invalid(format!("{} is not a kind of sync", request.kind.kind));
    };
    let rights = rights_in_use(
        kind,
        spec_of(request.old_object.as_ref()),
        spec_of(request.object.as_ref()),
        default,
        request.namespace.as_deref().unwrap_or_default(),
    );
    let user = request.user_info.username.as_deref().unwrap_or_default();
    match rights {
        Ok(rights) => Decision::require(rights.iter().map(|right| right.requirement(user, kind)).collect()),
        Err(reason) => Decision::invalid(reason),
    }
}

/// A right that a sync uses.
#[derive(Debug, PartialEq, Eq)]
enum Right {
    /// The rights of a role.
    Role(RoleRef),
    /// To read a Secret.
    Secret { namespace: String, secret: String },
}

impl Right {
    /// What an editor needs to let a sync use this right.
    fn requirement(&self, user: &str, kind: SyncKind) -> Requirement {
        let kind = kind.as_str();
        match self {
            Self::Role(role) => {
                let scope = match &role.namespace {
                    Some(namespace) => format!("in namespace {namespace}"),
                    None => "in the whole cluster".into(),
                };
                Requirement::one(
                    Access {
                        verb: "bind",
                        group: "rbac.authorization.k8s.io",
                        resource: match role.kind {
                            RoleRefKind::ClusterRole => "clusterroles",
                            RoleRefKind::Role => "roles",
                        },
                        namespace: role.namespace.clone(),
                        name: Some(role.name.clone()),
                    },
                    format!(
                        "{user} may not bind {} {} {scope}, which this {kind} would run with; ask an administrator, or \
                         name other roles in spec.override.roleRefs",
                        role.kind.as_str(),
                        role.name
                    ),
                )
            }
            Self::Secret { namespace, secret } => Requirement::one(
                Access {
                    verb: "get",
                    resource: "secrets",
                    namespace: Some(namespace.clone()),
                    name: Some(secret.clone()),
                    ..Access::default()
                },
                format!(
                    "{user} may not get Secret {namespace}/{secret}, which this {kind} would send to its repository; ask \
                     an administrator, or name another Secret in spec.git"
                ),
            ),
        }
    }
}

/// The rights that a sync with this spec uses; none if the spec did not change.
fn rights_in_use(
    kind: SyncKind,
    old: Option<&Value>,
    new: Option<&Value>,
    default: DefaultRole,
    namespace: &str,
) -> Result<Vec<Right>, String> {
    if old.is_some() && old == new {
        return Ok(Vec::new());
    }
    let new = new.cloned().unwrap_or_else(|| json!({}));
    let spec: RootSyncSpec = match kind {
        SyncKind::Root => serde_json::from_value(new),
        SyncKind::Repo => serde_json::from_value::<RepoSyncSpec>(new).map(Into::into),
    }
    .map_err(|error| format!("the spec cannot be read: {error}"))?;
    let secrets = secrets(&spec).into_iter().map(|secret| Right::Secret {
        namespace: namespace.to_owned(),
        secret,
    });
    let roles = match kind {
        SyncKind::Root => roles(&spec, default),
        // The API server checks the users who bind roles to the account of a RepoSync.
        SyncKind::Repo => Vec::new(),
    };
    Ok(roles.into_iter().map(Right::Role).chain(secrets).collect())
}

/// The roles that a RootSync would have.
fn roles(spec: &RootSyncSpec, default: DefaultRole) -> Vec<RoleRef> {
    // If the two spellings differ, only their common part is bound, but either may become the list: both are required.
    let mut roles: Vec<RoleRef> = Vec::new();
    for only in [
        RootSyncSpec {
            overrides: None,
            ..spec.clone()
        },
        RootSyncSpec {
            override_: None,
            ..spec.clone()
        },
    ] {
        let (asked, _) = crate::spec::roles_asked(&only);
        roles.extend(asked);
    }
    let (in_force, _, _) = roles_in_force(SyncKind::Root, spec, default);
    roles.extend(in_force);
    roles.sort();
    roles.dedup();
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_spec_requires_its_roles_and_secrets() {
        let names = |old: Option<Value>, new: Value, default| -> Vec<String> {
            rights_in_use(SyncKind::Root, old.as_ref(), Some(&new), default, "system")
                .unwrap()
                .into_iter()
                .map(|right| match right {
                    Right::Role(role) => role.name,
                    Right::Secret { namespace, secret } => format!("{namespace}/{secret}"),
                })
                .collect()
        };
        let git = |repo: &str| json!({ "repo": repo, "auth": "none" });
        let narrow =
            json!({ "git": git("a"), "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "view" }]}});
        let admin = DefaultRole::ClusterAdmin;
        assert_eq!(names(None, narrow.clone(), admin), ["view"]);
        assert_eq!(
            names(Some(narrow.clone()), narrow.clone(), admin),
            Vec::<String>::new()
        );
        // Emptying the list, and another repository.
        assert_eq!(
            names(Some(narrow.clone()), json!({ "git": git("a") }), admin),
            ["cluster-admin"]
        );
        assert_eq!(
            names(
                Some(json!({ "git": git("a") })),
                json!({ "git": git("b") }),
                admin
            ),
            ["cluster-admin"]
        );
        assert_eq!(
            names(None, json!({ "git": git("a") }), DefaultRole::None),
            Vec::<String>::new()
        );
        let both = json!({
            "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "view" }]},
            "overrides": { "roleRefs": [{ "kind": "ClusterRole", "name": "edit" }]},
        });
        assert_eq!(names(None, both, admin), ["edit", "view"]);
        // The same Secret, and another server that it would be sent to.
        let secret = |repo: &str| {
            json!({ "git": {
                "repo": repo, "auth": "token", "secretRef": { "name": "t" }, "caCertSecretRef": { "name": "c" },
            }})
        };
        let none = DefaultRole::None;
        assert_eq!(names(None, secret("a"), none), ["system/c", "system/t"]);
        assert_eq!(
            names(Some(secret("a")), secret("b"), none),
            ["system/c", "system/t"]
        );
        assert_eq!(names(Some(secret("a")), secret("a"), none), Vec::<String>::new());
        for kind in [SyncKind::Root, SyncKind::Repo] {
            assert!(rights_in_use(kind, None, Some(&json!({ "git": 3 })), admin, "system").is_err());
        }
        // A RepoSync has no roles, but it has Secrets.
        let read = |secret: &str| Right::Secret {
            namespace: "team".into(),
            secret: secret.into(),
        };
        assert_eq!(
            rights_in_use(SyncKind::Repo, None, Some(&secret("a")), admin, "team").unwrap(),
            [read("c"), read("t")]
        );
    }
}
