//! Whether a requester has a right: a SubjectAccessReview with the requester's name, uid, groups and extras.

use futures::future::BoxFuture;
use k8s_openapi::api::{authentication::v1::UserInfo, authorization::v1::SubjectAccessReview};
use kube::{Api, Client, api::PostParams};
use writ_controller::{Error, error::Context as _};

use super::model::Access;

/// Answers whether a user has a right.
pub trait Authorizer: Send + Sync {
    /// Whether the user has this right.
    fn is_allowed<'a>(&'a self, user: &'a UserInfo, access: &'a Access)
    -> BoxFuture<'a, Result<bool, Error>>;
}

/// The authorizer of the API server.
pub struct SubjectAccessReviews(pub Client);

impl Authorizer for SubjectAccessReviews {
    fn is_allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: access.review(user),
                ..SubjectAccessReview::default()
            };
            let answer = Api::<SubjectAccessReview>::all(self.0.clone())
                .create(&PostParams::default(), &review)
                .await
                .context(|| {
                    let user = user.username.as_deref().unwrap_or_default();
                    format!("ask by SubjectAccessReview whether {user:?} may {access}")
                })?;
            Ok(answer
                .status
                .is_some_and(|status| status.allowed && status.denied != Some(true)))
        })
    }
}
