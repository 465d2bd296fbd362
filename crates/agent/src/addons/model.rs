//! The types of add-on registration: what the hub wants, and what it gives.

/// The one add-on that is registered.
pub const ADDON: &str = "managed-serviceaccount";
/// The account of the add-on in the cluster's namespace on the hub, where the hub hands out tokens.
pub const ACCOUNT: &str = "managed-serviceaccount-agent";
/// The Secret with the add-on's hub credential.
pub const SECRET: &str = "managed-serviceaccount-hub-kubeconfig";
/// The default namespace of the add-on.
pub const NAMESPACE: &str = "open-cluster-management-agent-addon";
/// The label of a Secret that this controller wrote, and may delete.
pub const LABEL: &str = "writ.dev/addon-credential";

/// The identity that the hub wants the add-on to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The namespace of the add-on on this cluster.
    pub namespace: String,
    /// Its user on the hub.
    pub user: String,
    /// How it proves that identity.
    pub proof: Proof,
}

/// How the add-on proves its identity to the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By a certificate, with these groups.
    Certificate {
        /// The groups.
        groups: Vec<String>,
    },
    /// By a token of the add-on's account on the hub.
    Token {
        /// The uid of the account: tokens of another one of that name are of no use.
        uid: String,
    },
}

/// A credential that the hub gave.
pub enum Given {
    /// A certificate for a key, both in PEM.
    Certificate {
        /// The certificate.
        certificate: String,
        /// The key.
        key: String,
    },
    /// A token.
    Token(String),
}
