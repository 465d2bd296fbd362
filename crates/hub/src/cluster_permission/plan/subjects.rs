//! The subjects of bindings, as the managed cluster knows them. A ManagedServiceAccount becomes the ServiceAccount that its
//! agent keeps; one that is not there, or whose ServiceAccount is somebody else's, is granted nothing.

use k8s_openapi::api::rbac::v1::Subject;
use kube::ResourceExt as _;
use writ_api::{
    authentication::ManagedServiceAccount,
    rbac::cluster_permission::{MANAGED_SERVICE_ACCOUNT_KIND, RBAC_GROUP},
};
use writ_controller::condition::clip;

use super::{build::Builder, plan::AddOn, validate};

/// Whose the ServiceAccount of a ManagedServiceAccount is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Its own, or nobody has said anything else: a new account does not wait for its agent.
    Own,
    /// Somebody else's, as the agent says in these words.
    NotOwn(String),
}

impl Account {
    /// Of a ManagedServiceAccount; `None` if it goes.
    pub fn of(account: &ManagedServiceAccount) -> Option<Self> {
        if account.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = account.status.as_ref();
        let refused = status.and_then(|status| status.not_own());
        Some(refused.map_or(Self::Own, |said| {
            Self::NotOwn(format!("{}: {}", said.reason, clip(&said.message, 500)))
        }))
    }
}

impl Builder<'_> {
    /// The subjects of a binding; the ones that are not there are left out.
    pub(super) fn subjects(
        &mut self,
        field: &str,
        single: Option<&Subject>,
        list: Option<&[Subject]>,
        namespaced: bool,
    ) -> Vec<Subject> {
        let entries = validate::subject_entries(field, single, list);
        if entries.is_empty() {
            self.out
                .problems
                .extend(validate::subjects(field, single, list, namespaced));
        }
        let mut subjects = Vec::new();
        for (field, subject) in entries {
            self.out
                .subjects
                .push(format!("{} {}", subject.kind, subject.name));
            let problems = validate::subject(&field, subject, namespaced);
            if !problems.is_empty() {
                self.out.problems.extend(problems);
                continue;
            }
            if subject.kind != MANAGED_SERVICE_ACCOUNT_KIND {
                let mut subject = subject.clone();
                subject.api_group = (subject.kind != "ServiceAccount").then(|| RBAC_GROUP.into());
                subject.namespace = subject.namespace.filter(|ns| !ns.is_empty());
                subjects.push(subject);
                continue;
            }
            if self.seen.unread.accounts {
                self.out
                    .unread
                    .insert("ManagedServiceAccounts and ManagedClusterAddOns");
                // Whoever makes an object of it looks what it was.
                subjects.push(subject.clone());
                continue;
            }
            match self.account(&subject.name) {
                Ok(namespace) => subjects.push(Subject {
                    kind: "ServiceAccount".into(),
                    name: subject.name.clone(),
                    namespace: Some(namespace),
                    api_group: None,
                }),
                Err(words) if self.out.missing.contains(&words) => {}
                Err(words) => self.out.missing.push(words),
            }
        }
        subjects
    }

    /// The namespace on the managed cluster of a ManagedServiceAccount's ServiceAccount.
    fn account(&self, name: &str) -> Result<String, String> {
        let cluster = self.permission().namespace().unwrap_or_default();
        match self.seen.accounts.get(name) {
            None => return Err(format!("ManagedServiceAccount {cluster}/{name} does not exist")),
            Some(Account::NotOwn(why)) => {
                return Err(format!(
                    "ManagedServiceAccount {cluster}/{name} has no ServiceAccount of its own: {why}"
                ));
            }
            Some(Account::Own) => {}
        }
        match self.seen.add_on {
            AddOn::Namespace(namespace) => Ok(namespace.to_owned()),
            AddOn::Missing => Err(format!(
                "ManagedClusterAddOn {cluster}/managed-serviceaccount does not exist, so the ServiceAccount of ManagedServiceAccount {name} has no namespace yet"
            )),
            AddOn::NoNamespace => Err(format!(
                "ManagedClusterAddOn {cluster}/managed-serviceaccount tells no namespace yet (status.namespace, spec.installNamespace), so the ServiceAccount of ManagedServiceAccount {name} has none"
            )),
        }
    }
}
