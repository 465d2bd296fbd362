//! `authentication.open-cluster-management.io`: accounts on managed clusters.

pub mod digest;
pub mod managed_service_account;
pub mod managed_service_account_binding;
pub mod validity;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use managed_service_account::{
    ClusterCounts, FailingCluster, ManagedServiceAccount, ManagedServiceAccountSpec,
    ManagedServiceAccountStatus, Rotation, SecretRef,
};
pub use managed_service_account_binding::{
    AccountReference, AccountSubject, ManagedServiceAccountBinding, ManagedServiceAccountBindingSpec,
};

/// The API group.
pub const GROUP: &str = "authentication.open-cluster-management.io";

/// The Role in the namespace of a cluster on the hub, and its RoleBinding, that say what its agent may do for accounts.
pub const AGENT_ROLE: &str = "managed-serviceaccount-addon-agent";

/// On the ServiceAccount and on the hub's Secret, with the value `true`: made for a ManagedServiceAccount.
pub const LABEL_MANAGED: &str = "authentication.open-cluster-management.io/is-managed-serviceaccount";

/// On a ServiceAccount: the cluster name under which the agent that made it is known to its hub.
pub const ANNOTATION_CLUSTER: &str = "authentication.writ.dev/cluster";

/// On a ServiceAccount: the uid of the ManagedServiceAccount that it was made for. One that is made anew under the
/// name gets another ServiceAccount, so that no token of before lives on.
pub const ANNOTATION_ACCOUNT: &str = "authentication.writ.dev/account";

/// On a ServiceAccount: those that the account had before the agent moved, and that are still to be deleted.
pub const ANNOTATION_FORMER: &str = "authentication.writ.dev/former";

/// On a ManagedServiceAccount, with the value `true`: take over a ServiceAccount or Secret of that name.
pub const ANNOTATION_ADOPT: &str = "authentication.writ.dev/adopt";

/// On a ManagedServiceAccount, with the value `disabled`: the token is not renewed before it expires. The hub
/// sets it on accounts that come from the group `proxy.open-cluster-management.io`.
pub const ANNOTATION_ROTATION: &str = "authentication.writ.dev/rotation";

/// On a ManagedServiceAccount: further keys for its Secret, separated by commas (`kubeconfig`, `argocd`).
pub const ANNOTATION_SECRET_KEYS: &str = "authentication.writ.dev/secret-keys";

/// On a ManagedServiceAccount: the hub saw that the Secret differs from what was reported; the value changes
/// with every such sight, and the agent looks at the Secret when it does.
pub const ANNOTATION_REPAIR: &str = "authentication.writ.dev/repair";

/// On a ManagedServiceAccount: why the hub does not let its agent write the Secret.
pub const ANNOTATION_REFUSED: &str = "authentication.writ.dev/refused";

/// On the agent's Role: the external address of the cluster's API server according to its ManagedCluster; empty if unknown.
pub const ANNOTATION_API_SERVER_URL: &str = "authentication.writ.dev/api-server-url";

/// On the agent's Role: the CA to be used with that address, in base64, as its ManagedCluster says; empty if it is the cluster's own.
pub const ANNOTATION_API_SERVER_CA: &str = "authentication.writ.dev/api-server-ca";

/// On the Secret: what was asked for when its token was requested, to notice when that changes.
pub const ANNOTATION_TOKEN_REQUEST: &str = "authentication.writ.dev/token-request";

/// On the Secret: when its token expires.
pub const ANNOTATION_EXPIRATION: &str = "expirationTimestamp";

/// On the Secret: when its token was last renewed.
pub const ANNOTATION_LAST_REFRESH: &str = "lastRefreshTimestamp";

/// On a child of an account in a cluster-set namespace: the uid of that account.
pub const LABEL_PARENT_UID: &str = "authentication.writ.dev/parent-uid";

/// On a child of an account in a cluster-set namespace: `namespace/name` of that account.
pub const ANNOTATION_PARENT: &str = "authentication.writ.dev/parent";

/// The condition by which the agent says whether the account has a ServiceAccount.
pub const CONDITION_PRESENT: &str = "AllServiceAccountPresent";

/// A reason of [`CONDITION_PRESENT`]: the ServiceAccount of that name was not made for the account.
pub const REASON_NOT_OURS: &str = "ServiceAccountNotOurs";

/// A reason of [`CONDITION_PRESENT`]: the ServiceAccount of that name is the agent's, or an add-on's.
pub const REASON_RESERVED: &str = "NameReserved";

/// The key of the token in the Secret.
pub const KEY_TOKEN: &str = "token";

/// The key of the cluster's certificate authority in the Secret.
pub const KEY_CA: &str = "ca.crt";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        ManagedServiceAccountBinding::crd(),
        managed_service_account::definition(),
    ]
}
