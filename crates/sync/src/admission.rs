//! Who may choose a role: with `--require-bind`, only who may bind it himself.
//!
//! Whoever edits a RootSync decides what its reconciler does, with the roles that it has. So every change of its spec is
//! refused unless the editor may `bind` every role in force afterwards: the ones it names, or cluster-admin where it
//! names none and that is the default. Neither emptying the list nor pointing a privileged sync at another repository
//! is a way around that. The reconciler also sends what the Secrets of its source hold to a server of the editor's
//! choice, so the editor must be allowed to `get` these. That goes for a RepoSync, too, which has no roles to choose.

use std::{fmt, sync::Arc};

use axum::{Json, Router, extract::State, routing::post};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde_json::{Value, json};
use writ_api::configsync::{RepoSyncSpec, RoleRef, RoleRefKind, RootSyncSpec};
use writ_controller::{Error, write};
use writ_process::webhook::{self, Configurations, Source, Target, Timing};

use crate::{
    Context, DefaultRole, Options,
    model::{SYSTEM_NAMESPACE, SyncKind},
    spec::{roles_in_force, secrets},
};

const PATH: &str = "/validate-sync";
/// The name of the webhook configuration.
const CONFIGURATION: &str = "writ-sync";

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
    let configurations = Configurations {
        mutating: Vec::new(),
        validating: vec![configuration()?],
    };
    let gatekeeper = Gatekeeper {
        client: context.client.clone(),
        default: context.options.default_role,
    };
    let router = Router::new()
        .route(PATH, post(review))
        .with_state(Arc::new(gatekeeper));
    webhook::run(
        context.client,
        options,
        configurations,
        router,
        &context.health,
        context.shutdown,
    )
    .await
}

/// Removes the webhook configuration of a process that ran with `--require-bind`: it refuses what nobody is there to judge.
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
        // A port that the system picks is known to nobody else.
        None if options.webhook_listen.port() == 0 => Target::Url(None),
        None => Target::Service {
            namespace: SYSTEM_NAMESPACE.into(),
            name: "writ-sync".into(),
        },
    }
}

fn configuration() -> Result<ValidatingWebhookConfiguration, Error> {
    serde_json::from_value(json!({
        "metadata": { "name": CONFIGURATION },
        "webhooks": [{
            "name": "syncs.sync.writ.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            // An editor that nobody could ask about is refused.
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": 10,
            "clientConfig": { "service": { "namespace": "", "name": "", "path": PATH }},
            "rules": [{
                "apiGroups": ["configsync.gke.io"],
                "apiVersions": ["*"],
                "resources": ["rootsyncs", "reposyncs"],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }],
        }],
    }))
    .map_err(|error| Error::Invalid(format!("the webhook configuration: {error}")))
}

struct Gatekeeper {
    client: Client,
    default: DefaultRole,
}

async fn review(
    State(gatekeeper): State<Arc<Gatekeeper>>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return Json(AdmissionResponse::invalid(error.to_string()).into_review()),
    };
    let response = AdmissionResponse::from(&request);
    let spec = |object: &Option<DynamicObject>| object.as_ref().and_then(|o| o.data.get("spec").cloned());
    let namespace = request.namespace.clone().unwrap_or_default();
    let Some(kind) = SyncKind::parse(&request.kind.kind) else {
        let text = format!("{} is no kind of sync", request.kind.kind);
        return Json(response.deny(text).into_review());
    };
    let needs = needs(
        kind,
        spec(&request.old_object).as_ref(),
        spec(&request.object).as_ref(),
        gatekeeper.default,
        &namespace,
    );
    let needs = match needs {
        Ok(needs) => needs,
        Err(reason) => return Json(response.deny(reason).into_review()),
    };
    for need in needs {
        match gatekeeper.allows(&request, &need).await {
            Ok(true) => {}
            Ok(false) => {
                let user = request.user_info.username.clone().unwrap_or_default();
                return Json(response.deny(need.refusal(&user, kind)).into_review());
            }
            Err(error) => {
                let text = format!("cannot tell whether the editor may {need}: {error}");
                return Json(response.deny(text).into_review());
            }
        }
    }
    Json(response.into_review())
}

/// What an editor must be allowed himself.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    /// To bind a role.
    Bind(RoleRef),
    /// To read a Secret.
    Read { namespace: String, secret: String },
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(role) => {
                write!(f, "bind {} {} ", role.kind.as_str(), role.name)?;
                match &role.namespace {
                    Some(namespace) => write!(f, "in namespace {namespace}"),
                    None => f.write_str("in the whole cluster"),
                }
            }
            Self::Read { namespace, secret } => write!(f, "get Secret {namespace}/{secret}"),
        }
    }
}

impl Need {
    fn refusal(&self, user: &str, kind: SyncKind) -> String {
        let kind = kind.as_str();
        match self {
            Self::Bind(_) => format!(
                "{user} may not {self}, which this {kind} would run with; ask somebody who may, or name other roles in spec.override.roleRefs"
            ),
            Self::Read { .. } => format!(
                "{user} may not {self}, which this {kind} would send to its repository; ask somebody who may, or name another Secret in spec.git"
            ),
        }
    }

    fn attributes(&self) -> ResourceAttributes {
        let text = |text: &str| Some(text.to_owned());
        match self {
            Self::Bind(role) => ResourceAttributes {
                verb: text("bind"),
                group: text("rbac.authorization.k8s.io"),
                resource: text(match role.kind {
                    RoleRefKind::ClusterRole => "clusterroles",
                    RoleRefKind::Role => "roles",
                }),
                name: text(&role.name),
                namespace: role.namespace.clone(),
                ..ResourceAttributes::default()
            },
            Self::Read { namespace, secret } => ResourceAttributes {
                verb: text("get"),
                group: text(""),
                resource: text("secrets"),
                name: text(secret),
                namespace: text(namespace),
                ..ResourceAttributes::default()
            },
        }
    }
}

/// What the editor must be allowed; nothing if the spec did not change.
fn needs(
    kind: SyncKind,
    old: Option<&Value>,
    new: Option<&Value>,
    default: DefaultRole,
    namespace: &str,
) -> Result<Vec<Need>, String> {
    if old.is_some() && old == new {
        return Ok(Vec::new());
    }
    let new = new.cloned().unwrap_or_else(|| json!({}));
    let spec: RootSyncSpec = match kind {
        SyncKind::Root => serde_json::from_value(new),
        SyncKind::Repo => serde_json::from_value::<RepoSyncSpec>(new).map(Into::into),
    }
    .map_err(|error| format!("the spec cannot be read: {error}"))?;
    let secrets = secrets(&spec).into_iter().map(|secret| Need::Read {
        namespace: namespace.to_owned(),
        secret,
    });
    let roles = match kind {
        SyncKind::Root => roles(&spec, default),
        // Whoever binds roles to its account is asked by the API server.
        SyncKind::Repo => Vec::new(),
    };
    Ok(roles.into_iter().map(Need::Bind).chain(secrets).collect())
}

/// The roles that a RootSync would have.
fn roles(spec: &RootSyncSpec, default: DefaultRole) -> Vec<RoleRef> {
    // Of two lists that differ only the common part is bound, but it may become either: ask for all of both.
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

impl Gatekeeper {
    async fn allows(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        need: &Need,
    ) -> Result<bool, kube::Error> {
        let user = &request.user_info;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                resource_attributes: Some(need.attributes()),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_the_spec_asks_for_its_roles_and_secrets() {
        let names = |old: Option<Value>, new: Value, default| -> Vec<String> {
            needs(SyncKind::Root, old.as_ref(), Some(&new), default, "system")
                .unwrap()
                .into_iter()
                .map(|need| match need {
                    Need::Bind(role) => role.name,
                    Need::Read { namespace, secret } => format!("{namespace}/{secret}"),
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
            assert!(needs(kind, None, Some(&json!({ "git": 3 })), admin, "system").is_err());
        }
        // A RepoSync has no roles, but it has Secrets.
        let read = |secret: &str| Need::Read {
            namespace: "team".into(),
            secret: secret.into(),
        };
        assert_eq!(
            needs(SyncKind::Repo, None, Some(&secret("a")), admin, "team").unwrap(),
            [read("c"), read("t")]
        );
    }
}
