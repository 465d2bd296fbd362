//! Admission on the hub: what controllers could only refuse later is refused when it is written.
//!
//! A handler is a row in [`HANDLERS`]: a path, the webhook that sends requests there, and a function from the
//! request to a [`Decision`]. What a handler needs from the API server it gets through the [`Desk`], most of all
//! whether the requesting user may do something else. An error is never an allow.

pub mod access;
pub mod account_binding;
pub mod cluster_permission;
#[cfg(test)]
mod cluster_tests;
pub mod cluster_webhooks;
mod clusters;
pub mod executor;
pub mod managed_cluster;
pub mod managed_cluster_set;
pub mod managed_cluster_set_binding;
pub mod manifest_work;
pub mod manifests;
pub mod options;
pub mod pairs;
pub mod replica_set;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::post};
use futures::future::BoxFuture;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MatchCondition, RuleWithOperations, ServiceReference, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::PostParams,
    core::{
        DynamicObject, ObjectMeta,
        admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
    },
};
use writ_controller::{Error, error::Context as _};
use writ_process::webhook;

pub use options::{AdmissionOptions, ExecutorAuthorization, NilExecutor};

use crate::{Context, advice};

/// What a handler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allow,
    /// It may not, with an HTTP status code and words for the user.
    Deny(u16, String),
}

impl Decision {
    /// Not a valid request: 400, as upstream answers.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::Deny(400, message.into())
    }

    /// Not allowed to this user: 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Deny(403, message.into())
    }
}

/// A request to review.
pub type Request = AdmissionRequest<DynamicObject>;

/// One webhook.
pub struct Handler {
    /// The path on the webhook server.
    pub path: &'static str,
    /// When the API server asks: everything but `clientConfig` is used as it is.
    pub webhook: fn() -> ValidatingWebhookConfiguration,
    /// The answer. An error denies the request.
    pub review: fn(Arc<Desk>, Request) -> BoxFuture<'static, Result<Decision, Error>>,
}

/// Every handler.
pub const HANDLERS: &[Handler] = &[
    manifest_work::HANDLER,
    replica_set::HANDLER,
    account_binding::HANDLER,
    cluster_permission::HANDLER,
];

/// Answers whether a user may do something.
pub trait Authorizer: Send + Sync {
    /// Whether the user may do this.
    fn allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<bool, Error>>;
}

/// What handlers may use.
pub struct Desk {
    /// A client of the hub.
    pub client: Client,
    /// How the hub was started.
    pub options: AdmissionOptions,
    /// Decides about users.
    pub authorizer: Arc<dyn Authorizer>,
}

/// Asks the API server, by SubjectAccessReview.
pub struct Reviews(pub Client);

impl Authorizer for Reviews {
    fn allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: user.username.clone(),
                    uid: user.uid.clone(),
                    groups: user.groups.clone(),
                    extra: user.extra.clone(),
                    resource_attributes: Some(attributes),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let answer = Api::<SubjectAccessReview>::all(self.0.clone())
                .create(&PostParams::default(), &review)
                .await
                .context(|| "ask by SubjectAccessReview".into())?;
            Ok(answer
                .status
                .is_some_and(|status| status.allowed && status.denied != Some(true)))
        })
    }
}

/// Serves the webhooks until shutdown. Every replica does, whoever leads.
pub async fn run(context: Context) -> Result<(), Error> {
    let desk = Arc::new(Desk {
        client: context.client.clone(),
        options: context.options.admission.clone(),
        authorizer: Arc::new(Reviews(context.client.clone())),
    });
    webhook::run(
        context.client.clone(),
        desk.options.server.clone(),
        configurations(),
        router(&desk).merge(cluster_webhooks::router(&context)),
        &context.health,
        context.shutdown.clone(),
    )
    .await
    .map_err(advice::with_advice)
}

/// The configurations of all handlers.
pub fn configurations() -> webhook::Configurations {
    webhook::Configurations {
        mutating: vec![cluster_webhooks::mutating()],
        validating: HANDLERS
            .iter()
            .map(|handler| (handler.webhook)())
            .chain([cluster_webhooks::validating()])
            .collect(),
    }
}

/// The routes of all handlers.
pub fn router(desk: &Arc<Desk>) -> Router {
    HANDLERS
        .iter()
        .fold(Router::new(), |router, handler| {
            let review = handler.review;
            router.route(
                handler.path,
                post(move |desk: State<Arc<Desk>>, body| answer(review, desk, body)),
            )
        })
        .with_state(desk.clone())
}

async fn answer(
    review: fn(Arc<Desk>, Request) -> BoxFuture<'static, Result<Decision, Error>>,
    State(desk): State<Arc<Desk>>,
    Json(body): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    let request: Request = match body.try_into() {
        Ok(request) => request,
        Err(error) => return Json(AdmissionResponse::invalid(error).into_review()),
    };
    let response = AdmissionResponse::from(&request);
    let decision = review(desk, request)
        .await
        .unwrap_or_else(|error| Decision::Deny(500, format!("the request could not be checked: {error}")));
    let response = match decision {
        Decision::Allow => response,
        Decision::Deny(code, message) => {
            let mut denied = response.deny(message);
            denied.result.code = code;
            denied
        }
    };
    Json(response.into_review())
}

/// A validating webhook that fails closed, for creations and changes of one resource.
///
/// `unchanged` leaves out what is not the webhook's business: a CEL expression that is true for requests to ask
/// about. An API server evaluates it itself, so such requests pass while the webhook is down.
pub fn webhook(
    name: &str,
    path: &str,
    (group, version, resource): (&str, &str, &str),
    conditions: &[(&str, &str)],
) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        webhooks: Some(vec![ValidatingWebhook {
            name: name.into(),
            admission_review_versions: vec!["v1".into()],
            client_config: WebhookClientConfig {
                service: Some(ServiceReference {
                    path: Some(path.into()),
                    ..ServiceReference::default()
                }),
                ..WebhookClientConfig::default()
            },
            failure_policy: Some("Fail".into()),
            side_effects: "None".into(),
            timeout_seconds: Some(10),
            match_conditions: Some(
                conditions
                    .iter()
                    .map(|(name, expression)| MatchCondition {
                        name: (*name).into(),
                        expression: (*expression).into(),
                    })
                    .collect(),
            ),
            rules: Some(vec![RuleWithOperations {
                api_groups: Some(vec![group.into()]),
                api_versions: Some(vec![version.into()]),
                operations: Some(vec!["CREATE".into(), "UPDATE".into()]),
                resources: Some(vec![resource.into()]),
                scope: Some("*".into()),
            }]),
            ..ValidatingWebhook::default()
        }]),
    }
}

/// The condition that leaves out requests which do not change the spec: finalizers, labels, status.
pub const SPEC_CHANGES: (&str, &str) = (
    "the-spec-changes",
    "request.operation == 'CREATE' || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec",
);
