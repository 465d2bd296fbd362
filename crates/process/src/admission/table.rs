//! From a table of webhooks to the configurations of the API server and the routes of the server.

use std::sync::Arc;

use axum::{Json, Router, routing::post};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    authentication::v1::UserInfo,
};
use kube::{
    api::ObjectMeta,
    core::{
        DynamicObject,
        admission::{AdmissionResponse, AdmissionReview},
    },
};
use writ_controller::Error;

use super::{
    authorizer::Authorizer,
    model::{Decision, Request, Requirement, Webhook},
};
use crate::webhook::Configurations;

/// How long the API server waits for an answer.
const TIMEOUT_SECONDS: i32 = 10;

/// The configuration objects of all webhooks, in the order of the table.
pub fn configurations<C>(table: &[Webhook<C>]) -> Configurations {
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.into()),
        ..ObjectMeta::default()
    };
    let mutating = by_configuration(table, true).into_iter();
    let validating = by_configuration(table, false).into_iter();
    Configurations {
        mutating: mutating
            .map(|(name, webhooks)| MutatingWebhookConfiguration {
                metadata: metadata(name),
                webhooks: Some(webhooks.into_iter().map(mutating_webhook).collect()),
            })
            .collect(),
        validating: validating
            .map(|(name, webhooks)| ValidatingWebhookConfiguration {
                metadata: metadata(name),
                webhooks: Some(webhooks.into_iter().map(validating_webhook).collect()),
            })
            .collect(),
    }
}

fn by_configuration<C>(table: &[Webhook<C>], mutating: bool) -> Vec<(&'static str, Vec<&Webhook<C>>)> {
    let mut found: Vec<(&str, Vec<&Webhook<C>>)> = Vec::new();
    for webhook in table.iter().filter(|webhook| webhook.mutating == mutating) {
        match found.iter_mut().find(|(name, _)| *name == webhook.configuration) {
            Some((_, webhooks)) => webhooks.push(webhook),
            None => found.push((webhook.configuration, vec![webhook])),
        }
    }
    found
}

fn mutating_webhook<C>(webhook: &Webhook<C>) -> MutatingWebhook {
    MutatingWebhook {
        name: webhook.name.into(),
        client_config: client_config(webhook),
        rules: Some(rules(webhook)),
        match_conditions: match_conditions(webhook),
        admission_review_versions: vec!["v1".into()],
        side_effects: "None".into(),
        failure_policy: Some("Fail".into()),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        reinvocation_policy: Some("IfNeeded".into()),
        ..MutatingWebhook::default()
    }
}

fn validating_webhook<C>(webhook: &Webhook<C>) -> ValidatingWebhook {
    ValidatingWebhook {
        name: webhook.name.into(),
        client_config: client_config(webhook),
        rules: Some(rules(webhook)),
        match_conditions: match_conditions(webhook),
        admission_review_versions: vec!["v1".into()],
        side_effects: "None".into(),
        failure_policy: Some("Fail".into()),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..ValidatingWebhook::default()
    }
}

fn rules<C>(webhook: &Webhook<C>) -> Vec<RuleWithOperations> {
    vec![RuleWithOperations::from(&webhook.rule)]
}

fn match_conditions<C>(webhook: &Webhook<C>) -> Option<Vec<MatchCondition>> {
    let (name, expression) = webhook.only_if?;
    Some(vec![MatchCondition {
        name: name.into(),
        expression: expression.into(),
    }])
}

/// The path alone: the server fills in how it is reached.
fn client_config<C>(webhook: &Webhook<C>) -> WebhookClientConfig {
    WebhookClientConfig {
        service: Some(ServiceReference {
            path: Some(webhook.path.into()),
            ..ServiceReference::default()
        }),
        ..WebhookClientConfig::default()
    }
}

/// The routes of all webhooks. `context` is what handlers are given, `authorizer` checks their requirements.
pub fn router<C: Clone + Send + Sync + 'static>(
    table: &'static [Webhook<C>],
    context: &C,
    authorizer: &Arc<dyn Authorizer>,
) -> Router {
    table.iter().fold(Router::new(), |router, webhook| {
        let (context, authorizer) = (context.clone(), authorizer.clone());
        router.route(
            webhook.path,
            post(move |Json(review): Json<AdmissionReview<DynamicObject>>| {
                let (context, authorizer) = (context.clone(), authorizer.clone());
                async move { Json(answer(webhook, context, &*authorizer, review).await) }
            }),
        )
    })
}

async fn answer<C>(
    webhook: &Webhook<C>,
    context: C,
    authorizer: &dyn Authorizer,
    review: AdmissionReview<DynamicObject>,
) -> AdmissionReview<DynamicObject> {
    let request: Request = match review.try_into() {
        Ok(request) => request,
        Err(error) => return AdmissionResponse::invalid(error).into_review(),
    };
    let response = AdmissionResponse::from(&request);
    let user = request.user_info.clone();
    let decided = match (webhook.handler)(context, request).await {
        Ok(decision) => check_requirements(authorizer, &user, decision).await,
        Err(error) => Err(error),
    };
    respond(response, decided).into_review()
}

/// Asks for the rights that the decision depends on; the first requirement that is not met denies the request.
async fn check_requirements(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    decision: Decision,
) -> Result<Decision, Error> {
    if let Decision::Allow { requirements, .. } = &decision {
        for requirement in requirements {
            if !is_met(authorizer, user, requirement).await? {
                return Ok(Decision::forbidden(&requirement.refusal));
            }
        }
    }
    Ok(decision)
}

async fn is_met(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    requirement: &Requirement,
) -> Result<bool, Error> {
    for access in &requirement.any_of {
        if authorizer.is_allowed(user, access).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn respond(response: AdmissionResponse, decided: Result<Decision, Error>) -> AdmissionResponse {
    match decided {
        Ok(Decision::Allow { warnings, patch, .. }) => {
            let mut allowed = response.clone();
            allowed.warnings = (!warnings.is_empty()).then_some(warnings);
            match patch.filter(|patch| !patch.0.is_empty()) {
                None => allowed,
                Some(patch) => allowed.with_patch(patch).unwrap_or_else(|error| {
                    deny(response, 500, format!("the patch cannot be written: {error}"))
                }),
            }
        }
        Ok(Decision::Deny { code, message }) => deny(response, code, message),
        Err(Error::Invalid(message)) => deny(response, 400, message),
        Err(error) => deny(
            response,
            500,
            format!("the request could not be checked: {error}"),
        ),
    }
}

fn deny(response: AdmissionResponse, code: u16, message: String) -> AdmissionResponse {
    let mut denied = response.deny(message);
    denied.result.code = code;
    denied.result.reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        _ => "InternalError",
    }
    .into();
    denied
}
