//! Who may choose a role: with `--require-bind`, only who may bind it himself.
//!
//! Whoever edits a RootSync decides what its reconciler does, with the roles that it has. So every change of its spec is
//! refused unless the editor may `bind` every role in force afterwards: the ones it names, or cluster-admin where it
//! names none and that is the default. Neither emptying the list nor pointing a privileged sync at another repository
//! is a way around that.

use std::sync::Arc;

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
use writ_api::configsync::{RoleRef, RoleRefKind, RootSyncSpec};
use writ_runtime::{
    Error,
    webhook::{self, Configurations, Source, Target, Timing},
};

use crate::{
    Context, DefaultRole, Options,
    manager::plan::roles_in_force,
    model::{SYSTEM_NAMESPACE, SyncKind},
};

const PATH: &str = "/validate-rootsync";

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
        "metadata": { "name": "writ-sync" },
        "webhooks": [{
            "name": "rootsync.sync.writ.dev",
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
                "resources": ["rootsyncs"],
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
    let roles = roles_to_check(
        spec(&request.old_object).as_ref(),
        spec(&request.object).as_ref(),
        gatekeeper.default,
    );
    let roles = match roles {
        Ok(roles) => roles,
        Err(reason) => return Json(response.deny(reason).into_review()),
    };
    for role in roles {
        match gatekeeper.may_bind(&request, &role).await {
            Ok(true) => {}
            Ok(false) => {
                let user = request.user_info.username.clone().unwrap_or_default();
                return Json(response.deny(refusal(&user, &role)).into_review());
            }
            Err(error) => {
                let text = format!("cannot tell whether the editor may bind {}: {error}", role.name);
                return Json(response.deny(text).into_review());
            }
        }
    }
    Json(response.into_review())
}

/// The roles whose binding the editor must be allowed; none if the spec did not change.
fn roles_to_check(
    old: Option<&Value>,
    new: Option<&Value>,
    default: DefaultRole,
) -> Result<Vec<RoleRef>, String> {
    if old.is_some() && old == new {
        return Ok(Vec::new());
    }
    let spec: RootSyncSpec = serde_json::from_value(new.cloned().unwrap_or_else(|| json!({})))
        .map_err(|error| format!("the spec cannot be read: {error}"))?;
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
        let (asked, _) = crate::manager::plan::roles_asked(&only);
        roles.extend(asked);
    }
    let (in_force, _, _) = roles_in_force(SyncKind::Root, &spec, default);
    roles.extend(in_force);
    roles.sort();
    roles.dedup();
    Ok(roles)
}

fn refusal(user: &str, role: &RoleRef) -> String {
    let place = match &role.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".into(),
    };
    format!(
        "{user} may not bind {} {} {place}, which this RootSync would run with; ask somebody who may, or name other roles in spec.override.roleRefs",
        role.kind.as_str(),
        role.name
    )
}

impl Gatekeeper {
    async fn may_bind(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        role: &RoleRef,
    ) -> Result<bool, kube::Error> {
        let user = &request.user_info;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("bind".into()),
                    group: Some("rbac.authorization.k8s.io".into()),
                    resource: Some(
                        match role.kind {
                            RoleRefKind::ClusterRole => "clusterroles",
                            RoleRefKind::Role => "roles",
                        }
                        .into(),
                    ),
                    name: Some(role.name.clone()),
                    namespace: role.namespace.clone(),
                    ..ResourceAttributes::default()
                }),
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
    fn every_change_of_the_spec_asks_for_the_roles_in_force() {
        let names = |old: Option<Value>, new: Value, default| -> Vec<String> {
            roles_to_check(old.as_ref(), Some(&new), default)
                .unwrap()
                .into_iter()
                .map(|role| role.name)
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
        assert!(roles_to_check(None, Some(&json!({ "git": 3 })), admin).is_err());
    }
}
