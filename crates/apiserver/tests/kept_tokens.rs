//! Tokens that are kept in Secrets do not end by themselves: whoever has the Secret says until when they are good.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use futures::StreamExt as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use writ_apiserver::Server;

/// A new kept token of the account `robot`.
async fn kept(secrets: &Api<Secret>, name: &str) -> String {
    let secret = json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    let this = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = made.resource_version().unwrap();
    let mut changes = secrets.watch(&this, &version).await.unwrap().boxed();
    while let Some(change) = changes.next().await {
        if let WatchEvent::Modified(secret) = change.unwrap()
            && let Some(token) = secret.data.and_then(|mut data| data.remove("token"))
        {
            return String::from_utf8(token.0).unwrap();
        }
    }
    unreachable!("the watch ended before there was a token");
}

/// Who the server takes the bearer for: a name, or the code of its refusal.
async fn bearer(server: &Server, token: &str) -> Result<String, u16> {
    let reviews: Api<SelfSubjectReview> = Api::all(server.client_with_token(token).unwrap());
    match reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
    {
        Ok(review) => Ok(review.status.unwrap().user_info.unwrap().username.unwrap()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn a_kept_token_is_good_until_its_secret_says_no() {
    let server = Server::builder().start().await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let robot = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &robot).await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let robot = "system:serviceaccount:default:robot".to_owned();
    for (name, change) in [
        (
            "labelled",
            json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}),
        ),
        ("replaced", json!({"stringData": {"token": "another"}})),
        ("emptied", json!({"data": null})),
    ] {
        let token = kept(&secrets, name).await;
        assert_eq!(bearer(&server, &token).await, Ok(robot.clone()), "{name}, before");
        let patch = Patch::Strategic(change);
        secrets
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        assert_eq!(bearer(&server, &token).await, Err(401), "{name}, after");
    }
    let token = kept(&secrets, "deleted").await;
    assert_eq!(bearer(&server, &token).await, Ok(robot));
    secrets.delete("deleted", &DeleteParams::default()).await.unwrap();
    assert_eq!(bearer(&server, &token).await, Err(401));
}
