//! Where the files of a sync come from.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kinds of source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceType {
    /// A Git repository.
    #[default]
    Git,
    /// An OCI image.
    Oci,
    /// A Helm chart.
    Helm,
}

impl SourceType {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Oci => "oci",
            Self::Helm => "helm",
        }
    }
}

/// How the repository is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitAuth {
    /// With the key `ssh` of the Secret.
    Ssh,
    /// With the key `cookie_file` of the Secret.
    CookieFile,
    /// With the identity of the node.
    GceNode,
    /// With a cloud identity.
    GcpServiceAccount,
    /// With the keys `username` and `token` of the Secret.
    Token,
    /// As a GitHub App.
    GithubApp,
    /// Without credentials.
    #[default]
    None,
}

impl GitAuth {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::CookieFile => "cookiefile",
            Self::GceNode => "gcenode",
            Self::GcpServiceAccount => "gcpserviceaccount",
            Self::Token => "token",
            Self::GithubApp => "githubapp",
            Self::None => "none",
        }
    }
}

/// A Secret in the namespace of the sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The Secret's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A Git repository, and which files of which commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Git {
    /// The repository's address: `https://`, `ssh://`, `user@host:path`, `file://` or an absolute path.
    pub repo: String,
    /// The branch; `master` when neither a branch nor a revision is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// A tag, a commit or `HEAD`; wins over the branch unless it is empty or `HEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The folder of the repository to read; the whole repository when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// How often to look for a new commit, such as `15s` (the default) or `1m30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// How to authenticate.
    pub auth: GitAuth,
    /// The cloud identity for `gcpserviceaccount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp_service_account_email: Option<String>,
    /// A proxy for HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The Secret with the credentials, for `ssh`, `cookiefile`, `token` and `githubapp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Whether to skip the check of the server's certificate.
    #[serde(default, rename = "noSSLVerify", skip_serializing_if = "Option::is_none")]
    pub no_ssl_verify: Option<bool>,
    /// The Secret with the certificate authority of the server, in its key `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretReference>,
}

/// How a registry is asked for an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OciAuth {
    /// With the identity of the node.
    GceNode,
    /// With a cloud identity.
    GcpServiceAccount,
    /// With the reconciler's own account.
    K8sServiceAccount,
    /// Without credentials.
    #[default]
    None,
}

/// An OCI image that holds the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oci {
    /// The image, with a tag or a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The folder of the image to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// How often to look for a new image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// How to authenticate.
    pub auth: OciAuth,
    /// The cloud identity for `gcpserviceaccount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp_service_account_email: Option<String>,
    /// The Secret with the certificate authority of the registry, in its key `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretReference>,
}

/// How a chart repository is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HelmAuth {
    /// Without credentials.
    #[default]
    None,
    /// With a cloud identity.
    GcpServiceAccount,
    /// With the reconciler's own account.
    K8sServiceAccount,
    /// With the keys `username` and `password` of the Secret.
    Token,
    /// With the identity of the node.
    GceNode,
}

/// A Helm chart that renders to the objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Helm {
    /// The chart repository.
    pub repo: String,
    /// The chart's name.
    pub chart: String,
    /// The chart's version or a range of versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// The namespace that the chart renders for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The namespace that every object is put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_namespace: Option<String>,
    /// Values, which win over those from files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_json")]
    pub values: Option<Value>,
    /// ConfigMaps with values; later ones win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values_file_refs: Option<Vec<ValuesFileRef>>,
    /// Whether the chart's CRDs are rendered too.
    #[serde(default, rename = "includeCRDs", skip_serializing_if = "Option::is_none")]
    pub include_crds: Option<bool>,
    /// How often to look for a new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// How to authenticate.
    pub auth: HelmAuth,
    /// The cloud identity for `gcpserviceaccount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp_service_account_email: Option<String>,
    /// The Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The Secret with the certificate authority of the repository, in its key `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretReference>,
}

/// A ConfigMap with the values of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesFileRef {
    /// The ConfigMap's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its key; `values.yaml` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_key: Option<String>,
}

fn any_json(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
