//! The answer to the `exec` of a kubeconfig.

use serde_json::{Value, json};

use crate::Token;

/// The version of the protocol.
pub const API_VERSION: &str = "client.authentication.k8s.io/v1";

/// An ExecCredential: what `kubectl` reads from the program that a kubeconfig's `exec` names. It carries the expiry,
/// so that the token is asked for again before it ends and not after a refusal.
pub fn exec_credential(token: &Token) -> Value {
    let mut status = json!({ "token": token.secret() });
    if let (Some(expires), Some(status)) = (token.expires, status.as_object_mut()) {
        status.insert("expirationTimestamp".into(), Value::String(expires.to_string()));
    }
    json!({ "apiVersion": API_VERSION, "kind": "ExecCredential", "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_shown_only_in_the_credential() {
        let token = Token {
            cluster: "c1".into(),
            name: "robot".into(),
            ca: Vec::new(),
            expires: jiff::Timestamp::from_second(60).ok(),
            refreshed: None,
            secret: "hush".into(),
        };
        assert!(!format!("{token:?}").contains("hush"));
        assert_eq!(
            exec_credential(&token),
            json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "kind": "ExecCredential",
                "status": { "token": "hush", "expirationTimestamp": "1970-01-01T00:01:00Z" },
            })
        );
    }
}
