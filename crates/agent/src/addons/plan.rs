//! Pure: which credential the hub wants the add-on to have, and whether a Secret holds it.

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
use writ_controller::{Error, condition};
use writ_runtime::yaml;

use super::model::{ACCOUNT, ADDON, Given, LABEL, Proof, Registration, SECRET};
use crate::registration::identity::{self, Lifetime, SIGNER};

const KUBECONFIG: &str = "kubeconfig";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

const TOKEN: &str = "token";

/// The registration that the add-on's status asks for; `None` if it needs none.
pub fn registration(addon: Option<&ManagedClusterAddOn>) -> Option<Registration> {
    let addon = addon?;
    let status = addon.status.as_ref()?;
    let wanted = status.registrations.iter().find(|r| r.signer_name == SIGNER)?;
    let subject = wanted
        .subject
        .as_ref()
        .filter(|subject| !subject.user.is_empty())?;
    let namespace = status.namespace.as_deref().filter(|name| !name.is_empty());
    let proof = if status.kube_client_driver.as_deref() == Some("token") {
        // Only the account of this add-on, and only once the hub says that it exists.
        let account = format!(
            "system:serviceaccount:{}:{ACCOUNT}",
            addon.namespace().unwrap_or_default()
        );
        let uid = condition::find(&status.conditions, "TokenInfrastructureReady")
            .filter(|said| said.status == "True" && subject.user == account)
            .and_then(|said| said.message.split_once("(UID: ")?.1.split_once(')'))
            .map(|(uid, _)| uid.to_owned())
            .filter(|uid| !uid.is_empty())?;
        Proof::Token { uid }
    } else {
        Proof::Certificate {
            groups: subject.groups.clone(),
        }
    };
    Some(Registration {
        namespace: namespace.unwrap_or_else(|| addon.wished_namespace()).to_owned(),
        user: subject.user.clone(),
        proof,
    })
}

impl Registration {
    /// The certificate request, named and labelled as upstream's agents do.
    pub fn request(
        &self,
        cluster: &str,
        groups: &[String],
        key: &str,
    ) -> Result<CertificateSigningRequest, Error> {
        let labels = [(CLUSTER_NAME_LABEL, cluster), (LABEL_ADDON, ADDON)];
        let meta = ObjectMeta {
            generate_name: Some(format!("addon-{cluster}-{ADDON}-")),
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            ..ObjectMeta::default()
        };
        identity::request_for(meta, &self.user, groups, key)
    }

    /// The Secret with what the hub gave.
    pub fn secret(&self, hub: &Cluster, given: &Given) -> Result<Secret, Error> {
        let config = serde_json::to_vec_pretty(&kubeconfig(hub, &self.proof))
            .map_err(|e| Error::Invalid(format!("the kubeconfig cannot be written: {e}")))?;
        let mut data = vec![(KUBECONFIG, config)];
        match given {
            Given::Certificate { certificate, key } => data.extend([
                (CERTIFICATE, certificate.as_bytes().to_vec()),
                (KEY, key.as_bytes().to_vec()),
            ]),
            Given::Token(token) => data.push((TOKEN, token.as_bytes().to_vec())),
        }
        let data = data
            .into_iter()
            .map(|(key, value)| (key.into(), ByteString(value)));
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.into()),
                namespace: Some(self.namespace.clone()),
                labels: Some([(LABEL.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            type_: Some("Opaque".into()),
            ..Secret::default()
        })
    }

    /// The life of the credential in a Secret, if that Secret is all that the add-on needs.
    pub fn life(&self, hub: &Cluster, secret: Option<&Secret>) -> Option<Lifetime> {
        let data = secret?.data.as_ref()?;
        let text = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
        let config: Kubeconfig = yaml::from_str(text(KUBECONFIG)?).ok()?;
        if !are_equal(&config, &kubeconfig(hub, &self.proof)) {
            return None;
        }
        match &self.proof {
            Proof::Certificate { groups } => {
                let (certificate, key) = (text(CERTIFICATE)?, text(KEY)?);
                let (life, subject) = identity::certificate(certificate)?;
                let (mut has, mut wanted) = (subject.groups, groups.clone());
                has.sort_unstable();
                wanted.sort_unstable();
                let is_right =
                    subject.user == self.user && has == wanted && identity::belong_together(certificate, key);
                is_right.then_some(life)
            }
            Proof::Token { uid } => {
                let token = text(TOKEN)?;
                let is_right = identity::token_subject(token).as_ref() == Some(&self.user)
                    && identity::token_account_uid(token).as_ref() == Some(uid);
                identity::token(token).filter(|_| is_right)
            }
        }
    }
}

/// Returns true if this controller wrote the Secret.
pub fn is_ours(secret: &Secret) -> bool {
    secret.labels().get(LABEL).is_some_and(|value| value == "true")
}

/// Returns true if two kubeconfigs are equal. The type hides secrets and cannot be compared.
fn are_equal(one: &Kubeconfig, other: &Kubeconfig) -> bool {
    let value = |config: &Kubeconfig| serde_json::to_value(config).ok();
    value(one) == value(other)
}

/// The kubeconfig of the add-on. The credential lies in files beside it, as upstream's agents write it.
fn kubeconfig(hub: &Cluster, proof: &Proof) -> Kubeconfig {
    let auth = match proof {
        Proof::Certificate { .. } => AuthInfo {
            client_certificate: Some(CERTIFICATE.into()),
            client_key: Some(KEY.into()),
            ..AuthInfo::default()
        },
        Proof::Token { .. } => AuthInfo {
            token_file: Some(TOKEN.into()),
            ..AuthInfo::default()
        },
    };
    identity::kubeconfig_of(hub.clone(), auth)
}
