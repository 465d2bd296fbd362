//! Pure: what the add-on's registration asks for, and whether a Secret holds it.

use k8s_openapi::{
    ByteString,
    api::{certificates::v1::CertificateSigningRequest, core::v1::Secret},
};
use kube::{
    ResourceExt,
    api::ObjectMeta,
    config::{AuthInfo, Cluster, Kubeconfig},
};
use writ_api::{
    addon::{LABEL_ADDON, ManagedClusterAddOn},
    cluster::CLUSTER_NAME_LABEL,
};
use writ_runtime::{Error, yaml};

use crate::registration::identity::{self, Lifetime, SIGNER};

/// The one add-on that is registered.
pub const ADDON: &str = "managed-serviceaccount";
/// Where the add-on finds its hub credential.
pub const SECRET: &str = "managed-serviceaccount-hub-kubeconfig";
/// Where the add-on is installed if nobody says otherwise.
pub const NAMESPACE: &str = "open-cluster-management-agent-addon";
/// The label of a Secret that this controller wrote, and may delete.
pub const LABEL: &str = "writ.dev/addon-credential";

const KUBECONFIG: &str = "kubeconfig";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// What the hub wants the add-on to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The namespace of the add-on on this cluster.
    pub namespace: String,
    /// Its user on the hub.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<String>,
}

/// What the add-on's status asks this agent for; nothing if the accounts are kept otherwise.
pub fn registration(addon: Option<&ManagedClusterAddOn>) -> Option<Registration> {
    let addon = addon?;
    let status = addon.status.as_ref()?;
    let wanted = status.registrations.iter().find(|r| r.signer_name == SIGNER)?;
    let subject = wanted
        .subject
        .as_ref()
        .filter(|subject| !subject.user.is_empty())?;
    let namespace = status.namespace.as_deref().filter(|name| !name.is_empty());
    Some(Registration {
        namespace: namespace.unwrap_or_else(|| addon.wished_namespace()).to_owned(),
        user: subject.user.clone(),
        groups: subject.groups.clone(),
    })
}

impl Registration {
    /// The certificate request, named and labelled as upstream's agents do.
    pub fn request(&self, cluster: &str, key: &str) -> Result<CertificateSigningRequest, Error> {
        let labels = [(CLUSTER_NAME_LABEL, cluster), (LABEL_ADDON, ADDON)];
        let meta = ObjectMeta {
            generate_name: Some(format!("addon-{cluster}-{ADDON}-")),
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            ..ObjectMeta::default()
        };
        identity::request_for(meta, &self.user, &self.groups, key)
    }

    /// The Secret with this certificate and key.
    pub fn secret(&self, hub: &Cluster, certificate: &str, key: &str) -> Result<Secret, Error> {
        let config = serde_json::to_vec_pretty(&kubeconfig(hub))
            .map_err(|e| Error::Invalid(format!("the kubeconfig cannot be written: {e}")))?;
        let data = [
            (KUBECONFIG, config),
            (CERTIFICATE, certificate.as_bytes().to_vec()),
            (KEY, key.as_bytes().to_vec()),
        ];
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.into()),
                namespace: Some(self.namespace.clone()),
                labels: Some([(LABEL.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data.map(|(key, value)| (key.into(), ByteString(value))).into()),
            type_: Some("Opaque".into()),
            ..Secret::default()
        })
    }

    /// The life of the certificate in a Secret, if that Secret is all that the add-on needs.
    pub fn life(&self, hub: &Cluster, secret: Option<&Secret>) -> Option<Lifetime> {
        let data = secret?.data.as_ref()?;
        let text = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
        let (certificate, key) = (text(CERTIFICATE)?, text(KEY)?);
        let (life, subject) = identity::certificate(certificate)?;
        let mut groups = subject.groups;
        let mut wanted = self.groups.clone();
        groups.sort_unstable();
        wanted.sort_unstable();
        let config: Kubeconfig = yaml::from_str(text(KUBECONFIG)?).ok()?;
        let is_right = subject.user == self.user
            && groups == wanted
            && identity::belong_together(certificate, key)
            && same(&config, &kubeconfig(hub));
        is_right.then_some(life)
    }
}

/// Whether this controller wrote the Secret.
pub fn is_ours(secret: &Secret) -> bool {
    secret.labels().get(LABEL).is_some_and(|value| value == "true")
}

/// Whether two kubeconfigs say the same. The type hides secrets and cannot be compared.
fn same(one: &Kubeconfig, other: &Kubeconfig) -> bool {
    let value = |config: &Kubeconfig| serde_json::to_value(config).ok();
    value(one) == value(other)
}

/// The kubeconfig of the add-on: certificate and key lie beside it, as upstream's agents write it.
fn kubeconfig(hub: &Cluster) -> Kubeconfig {
    let auth = AuthInfo {
        client_certificate: Some(CERTIFICATE.into()),
        client_key: Some(KEY.into()),
        ..AuthInfo::default()
    };
    identity::kubeconfig_of(hub.clone(), auth)
}
