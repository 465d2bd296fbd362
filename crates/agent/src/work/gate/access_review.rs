//! Asks the API server what an executor may do, by SubjectAccessReview.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;
use writ_api::work::{ExecutorServiceAccount, UpdateStrategyType};
use writ_controller::{Error, error::Context as _};

use super::model::AccessQuestion;
use crate::work::model::TargetObject;

/// How many requests of one evaluation are under way at once.
pub const CONCURRENCY: usize = 16;

/// What the API server said, and when it was asked.
#[derive(Clone, Copy, Debug)]
pub struct AccessAnswer {
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// When the question was sent.
    pub asked: Instant,
}

/// The verbs that an executor needs to hold an object through its whole life.
pub fn needed_verbs(target: &TargetObject) -> Vec<&'static str> {
    let mut verbs = match target.config.strategy.type_ {
        UpdateStrategyType::ReadOnly => return vec!["get"],
        UpdateStrategyType::CreateOnly => vec!["create", "get"],
        UpdateStrategyType::Update | UpdateStrategyType::ServerSideApply => {
            vec!["create", "update", "patch", "get"]
        }
    };
    if target.owned {
        verbs.push("delete");
    }
    verbs
}

/// The answers to all of these questions.
pub async fn ask(
    client: &Client,
    account: &ExecutorServiceAccount,
    questions: BTreeSet<AccessQuestion>,
) -> Result<Vec<(AccessQuestion, AccessAnswer)>, Error> {
    let (user, groups) = (account.user(), account.groups());
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let requests: Vec<_> = questions
        .into_iter()
        .map(|question| {
            let (api, review) = (api.clone(), review(&question, &user, &groups));
            async move {
                let asked = Instant::now();
                let answer = api
                    .create(&PostParams::default(), &review)
                    .await
                    .context(|| "ask by SubjectAccessReview".into())?;
                let is_allowed = answer
                    .status
                    .is_some_and(|status| status.allowed && status.denied != Some(true));
                Ok::<_, Error>((question, AccessAnswer { is_allowed, asked }))
            }
        })
        .collect();
    stream::iter(requests)
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

fn review(question: &AccessQuestion, user: &str, groups: &[String]) -> SubjectAccessReview {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.into()),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(ResourceAttributes {
                verb: text(question.verb),
                group: text(&question.group),
                version: text(&question.version),
                resource: text(&question.resource),
                namespace: text(&question.namespace),
                name: text(&question.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
