//! Kubeconfigs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// A kubeconfig for one user with a client certificate. JSON is YAML, and every client reads it.
pub(crate) fn kubeconfig(url: &str, ca: &str, user: &str, certificate: &str, key: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "writ",
            "cluster": { "server": url, "certificate-authority-data": STANDARD.encode(ca) },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            },
        }],
        "contexts": [{ "name": "writ", "context": { "cluster": "writ", "user": user } }],
        "current-context": "writ",
    });
    serde_json::to_string_pretty(&config).unwrap_or_default()
}
