//! Tokens of ServiceAccounts, by TokenRequest.

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};

use writ_controller::{Error, error::Context as _};

/// A token that the API server issued.
pub struct Token {
    /// The token itself.
    pub text: String,
    /// When it expires.
    pub ends: Timestamp,
}

/// A token of this ServiceAccount for the API server itself; `None` leaves its lifetime to the server.
pub async fn request(
    client: &Client,
    namespace: &str,
    account: &str,
    seconds: Option<i64>,
) -> Result<Token, Error> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: seconds,
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let what = || format!("ask for a token of ServiceAccount {namespace}/{account}");
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .context(what)?;
    let token = answer.status.and_then(|status| {
        Some(Token {
            text: status.token.filter(|text| !text.is_empty())?,
            ends: status.expiration_timestamp?.0,
        })
    });
    token.ok_or_else(|| Error::Invalid(format!("{}: the answer holds no token", what())))
}
