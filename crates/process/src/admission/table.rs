//! The webhooks of clusters, sets and bindings: reads the request, asks the handler, asks the authorizer, answers.
//!
//! Each kind has a file of pure decisions: given the request and what was read, either a refusal, or what the
//! requester must be allowed, in [`super::access`]'s words. Some of these webhooks also complete objects.

use axum::{Json, Router, routing::post};
use futures::{
    FutureExt,
    future::{self, BoxFuture},
};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    authentication::v1::UserInfo,
    authorization::v1::ResourceAttributes,
};
use kube::{
    Client,
    api::ObjectMeta,
    core::{
        DynamicObject,
        admission::{AdmissionResponse, AdmissionReview},
    },
};
use writ_controller::Error;

use super::{
    Authorizer, Request, Reviews,
    access::{Access, Decision, Requester},
    clusters,
};
use crate::Context;

/// The name of both configurations.
pub const CONFIGURATION: &str = "clusters.admission.writ.dev";

/// Decides about one request.
pub type Handler = fn(Context, Request) -> BoxFuture<'static, Result<Answer, Error>>;

/// What a handler says.
#[derive(Debug)]
pub struct Answer {
    /// Whether the request goes on.
    pub decision: Decision,
    /// How the object changes on the way; mutating webhooks only.
    pub patch: Option<json_patch::Patch>,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            patch: None,
        }
    }
}

/// One webhook.
pub struct Webhook {
    /// The name that people see in a refusal.
    pub name: &'static str,
    /// The path on the server.
    pub path: &'static str,
    /// Whether it may change objects.
    pub mutating: bool,
    /// The API group.
    pub group: &'static str,
    /// The resource, in all of its versions.
    pub resource: &'static str,
    /// The operations.
    pub operations: &'static [&'static str],
    /// Decides.
    pub handler: Handler,
}

const CLUSTER: &str = "cluster.open-cluster-management.io";

/// Every webhook.
pub const WEBHOOKS: &[Webhook] = &[
    Webhook {
        name: "managedclustermutators.admission.cluster.open-cluster-management.io",
        path: "/mutate-cluster-open-cluster-management-io-v1-managedcluster",
        mutating: true,
        group: CLUSTER,
        resource: "managedclusters",
        operations: &["CREATE", "UPDATE"],
        handler: |context, request| clusters::mutate_cluster(context, request).boxed(),
    },
    Webhook {
        name: "managedclustervalidators.admission.cluster.open-cluster-management.io",
        path: "/validate-cluster-open-cluster-management-io-v1-managedcluster",
        mutating: false,
        group: CLUSTER,
        resource: "managedclusters",
        operations: &["CREATE", "UPDATE", "DELETE"],
        handler: |context, request| clusters::validate_cluster(context, request).boxed(),
    },
    Webhook {
        name: "managedclustersetmutators.admission.cluster.open-cluster-management.io",
        path: "/mutate-cluster-open-cluster-management-io-managedclusterset",
        mutating: true,
        group: CLUSTER,
        resource: "managedclustersets",
        operations: &["CREATE", "UPDATE"],
        handler: |context, request| clusters::mutate_set(context, request).boxed(),
    },
    Webhook {
        name: "managedclustersetvalidators.admission.cluster.open-cluster-management.io",
        path: "/validate-cluster-open-cluster-management-io-managedclusterset",
        mutating: false,
        group: CLUSTER,
        resource: "managedclustersets",
        operations: &["CREATE", "UPDATE", "DELETE"],
        handler: |context, request| clusters::validate_set(context, request).boxed(),
    },
    Webhook {
        name: "managedclustersetbindingvalidators.admission.cluster.open-cluster-management.io",
        path: "/validate-cluster-open-cluster-management-io-v1beta2-managedclustersetbinding",
        mutating: false,
        group: CLUSTER,
        resource: "managedclustersetbindings",
        operations: &["CREATE", "UPDATE"],
        handler: |_, request| future::ready(clusters::validate_binding(&request)).boxed(),
    },
];

/// The routes of all webhooks of this file.
pub fn router(context: &Context) -> Router {
    WEBHOOKS.iter().fold(Router::new(), |router, webhook| {
        let context = context.clone();
        router.route(
            webhook.path,
            post(move |Json(review): Json<AdmissionReview<DynamicObject>>| {
                let context = context.clone();
                async move { Json(answer(context, webhook, review).await) }
            }),
        )
    })
}

async fn answer(
    context: Context,
    webhook: &'static Webhook,
    review: AdmissionReview<DynamicObject>,
) -> AdmissionReview<DynamicObject> {
    let request: Request = match review.try_into() {
        Ok(request) => request,
        Err(error) => return AdmissionResponse::invalid(error).into_review(),
    };
    let response = AdmissionResponse::from(&request);
    let user = request.user_info.clone();
    let client = context.client.clone();
    match (webhook.handler)(context, request).await {
        Ok(answer) => conclude(&client, &user, response, answer)
            .await
            .unwrap_or_else(|(response, error)| refuse(response, 500, error.to_string())),
        Err(error) => {
            let code = if matches!(error, Error::Invalid(_)) {
                400
            } else {
                500
            };
            refuse(response, code, error.to_string())
        }
    }
    .into_review()
}

/// Asks for every need of the decision, and answers.
async fn conclude(
    client: &Client,
    user: &UserInfo,
    mut response: AdmissionResponse,
    answer: Answer,
) -> Result<AdmissionResponse, (AdmissionResponse, Error)> {
    let (needs, warnings) = match answer.decision {
        Decision::Refuse { code, message } => return Ok(refuse(response, code, message)),
        Decision::AllowIf { needs, warnings } => (needs, warnings),
    };
    for need in needs {
        let mut met = false;
        for access in &need.any_of {
            match allows(client, user, access).await {
                Ok(true) => {
                    met = true;
                    break;
                }
                Ok(false) => {}
                Err(error) => return Err((response, error)),
            }
        }
        if !met {
            return Ok(refuse(response, 403, need.refusal));
        }
    }
    if !warnings.is_empty() {
        response.warnings = Some(warnings);
    }
    match answer.patch {
        Some(patch) if !patch.0.is_empty() => {
            let unpatched = response.clone();
            response.with_patch(patch).map_err(|e| {
                (
                    unpatched,
                    Error::Invalid(format!("the patch cannot be written: {e}")),
                )
            })
        }
        _ => Ok(response),
    }
}

fn refuse(response: AdmissionResponse, code: u16, message: String) -> AdmissionResponse {
    let mut response = response.deny(message);
    response.result.code = code;
    response.result.reason = match code {
        403 => "Forbidden",
        400 => "BadRequest",
        _ => "InternalError",
    }
    .into();
    response
}

/// Whether the hub's authorizer lets this user do this.
pub async fn allows(client: &Client, user: &UserInfo, access: &Access) -> Result<bool, Error> {
    let (resource, subresource) = match access.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (access.resource, None),
    };
    let attributes = ResourceAttributes {
        verb: Some(access.verb.into()),
        group: Some(access.group.into()),
        resource: Some(resource.into()),
        subresource,
        name: access.name.clone(),
        ..ResourceAttributes::default()
    };
    Reviews(client.clone()).allowed(user, attributes).await
}

/// The requester in the words of the decisions.
pub fn requester(user: &UserInfo) -> Requester {
    Requester {
        name: user.username.clone().unwrap_or_default(),
        groups: user.groups.clone().unwrap_or_default(),
    }
}

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some(CONFIGURATION.into()),
        ..ObjectMeta::default()
    }
}

fn rules(webhook: &Webhook) -> Vec<RuleWithOperations> {
    vec![RuleWithOperations {
        api_groups: Some(vec![webhook.group.into()]),
        api_versions: Some(vec!["*".into()]),
        resources: Some(vec![webhook.resource.into()]),
        operations: Some(webhook.operations.iter().map(|o| (*o).to_owned()).collect()),
        scope: Some("*".into()),
    }]
}

fn client_config(webhook: &Webhook) -> WebhookClientConfig {
    WebhookClientConfig {
        service: Some(ServiceReference {
            path: Some(webhook.path.into()),
            ..ServiceReference::default()
        }),
        ..WebhookClientConfig::default()
    }
}

/// The webhooks that may change objects. They fail closed.
pub fn mutating() -> MutatingWebhookConfiguration {
    let webhooks = WEBHOOKS
        .iter()
        .filter(|webhook| webhook.mutating)
        .map(|webhook| MutatingWebhook {
            name: webhook.name.into(),
            client_config: client_config(webhook),
            rules: Some(rules(webhook)),
            admission_review_versions: vec!["v1".into()],
            side_effects: "None".into(),
            failure_policy: Some("Fail".into()),
            timeout_seconds: Some(10),
            // What another webhook changes is looked at again.
            reinvocation_policy: Some("IfNeeded".into()),
            ..MutatingWebhook::default()
        })
        .collect();
    MutatingWebhookConfiguration {
        metadata: metadata(),
        webhooks: Some(webhooks),
    }
}

/// The webhooks that may refuse objects. They fail closed.
pub fn validating() -> ValidatingWebhookConfiguration {
    let webhooks = WEBHOOKS
        .iter()
        .filter(|webhook| !webhook.mutating)
        .map(|webhook| ValidatingWebhook {
            name: webhook.name.into(),
            client_config: client_config(webhook),
            rules: Some(rules(webhook)),
            admission_review_versions: vec!["v1".into()],
            side_effects: "None".into(),
            failure_policy: Some("Fail".into()),
            timeout_seconds: Some(10),
            ..ValidatingWebhook::default()
        })
        .collect();
    ValidatingWebhookConfiguration {
        metadata: metadata(),
        webhooks: Some(webhooks),
    }
}
