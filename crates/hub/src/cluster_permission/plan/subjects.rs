//! The subjects of bindings, as the managed cluster knows them. A ManagedServiceAccount becomes the ServiceAccount that its
//! agent keeps; an account that does not exist, or whose ServiceAccount was not made for it, is granted nothing.

use k8s_openapi::api::rbac::v1::Subject;
use kube::ResourceExt as _;
use writ_api::rbac::cluster_permission::{MANAGED_SERVICE_ACCOUNT_KIND, RBAC_GROUP};

use crate::cluster_permission::model::{Account, AddOn, Observation};

/// A subject, as far as it is known.
pub enum Resolved {
    /// As it is written into the binding.
    Known(Subject),
    /// A ManagedServiceAccount of this name; accounts or their add-on have not been read.
    NotRead(String),
    /// A ManagedServiceAccount that is granted nothing, and why.
    Missing(String),
}

/// Resolves one valid subject of a spec.
pub fn resolve(seen: &Observation, subject: &Subject) -> Resolved {
    if subject.kind != MANAGED_SERVICE_ACCOUNT_KIND {
        return Resolved::Known(as_written(subject));
    }
    let name = subject.name.as_str();
    if seen.not_synced.accounts {
        return Resolved::NotRead(name.to_owned());
    }
    match account_namespace(seen, name) {
        Ok(namespace) => Resolved::Known(Subject {
            kind: "ServiceAccount".into(),
            name: name.to_owned(),
            namespace: Some(namespace),
            api_group: None,
        }),
        Err(why) => Resolved::Missing(why),
    }
}

/// A subject in the form in which it is delivered; a ManagedServiceAccount keeps its name only.
pub fn as_written(subject: &Subject) -> Subject {
    let is_managed = subject.kind == MANAGED_SERVICE_ACCOUNT_KIND;
    let has_group = !is_managed && subject.kind != "ServiceAccount";
    let namespace = subject.namespace.clone();
    Subject {
        api_group: has_group.then(|| RBAC_GROUP.into()),
        namespace: namespace.filter(|namespace| !namespace.is_empty() && !is_managed),
        ..subject.clone()
    }
}

/// The namespace on the managed cluster of a ManagedServiceAccount's ServiceAccount.
fn account_namespace(seen: &Observation, name: &str) -> Result<String, String> {
    let cluster = seen.permission.namespace().unwrap_or_default();
    match seen.accounts.get(name) {
        None => return Err(format!("ManagedServiceAccount {cluster}/{name} does not exist")),
        Some(Account::NotOwn(why)) => {
            return Err(format!(
                "ManagedServiceAccount {cluster}/{name} has no ServiceAccount of its own: {why}"
            ));
        }
        Some(Account::Own) => {}
    }
    match &seen.add_on {
        AddOn::Namespace(namespace) => Ok(namespace.clone()),
        AddOn::Missing => Err(format!(
            "ManagedClusterAddOn {cluster}/managed-serviceaccount does not exist, so the ServiceAccount of ManagedServiceAccount {name} has no namespace yet"
        )),
        AddOn::NoNamespace => Err(format!(
            "ManagedClusterAddOn {cluster}/managed-serviceaccount names no namespace yet (status.namespace, spec.installNamespace), so the ServiceAccount of ManagedServiceAccount {name} has none"
        )),
    }
}
