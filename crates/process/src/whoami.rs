//! Who a client is, as the API server authenticates it.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::{Api, Client, api::PostParams};

use writ_controller::{Error, error::Context as _};

/// Asks the API server who this client is; `None` if it does not know the question (before Kubernetes 1.28).
pub async fn whoami(client: &Client) -> Result<Option<UserInfo>, Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => {
            let review = answer.context(|| "ask who we are by SelfSubjectReview".into())?;
            Ok(review.status.and_then(|status| status.user_info))
        }
    }
}
