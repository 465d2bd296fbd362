//! Who must be allowed to hold the objects of a work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity whose permissions on the managed cluster bound what a work may deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Executor {
    /// The identity. The schema lets it be absent, as upstream does; such an executor is always an error, and
    /// never the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<ExecutorSubject>,
}

/// One identity on the managed cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorSubject {
    /// Which of the fields below names the identity.
    #[serde(rename = "type")]
    pub type_: ExecutorSubjectType,
    /// The ServiceAccount, if the type is `ServiceAccount`. It need not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ExecutorServiceAccount>,
}

/// The kinds of identity that can execute a work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExecutorSubjectType {
    /// A ServiceAccount of the managed cluster.
    ServiceAccount,
}

/// A ServiceAccount of the managed cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ExecutorServiceAccount {
    /// Its namespace.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$")
    )]
    pub namespace: String,
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$")
    )]
    pub name: String,
}

impl ExecutorServiceAccount {
    /// The user name that Kubernetes gives to this account.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that Kubernetes puts this account into.
    pub fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".into(),
            "system:authenticated".into(),
            format!("system:serviceaccounts:{}", self.namespace),
        ]
    }
}

impl Executor {
    /// The account that is named, or what is wrong with this executor.
    pub fn service_account(&self) -> Result<&ExecutorServiceAccount, &'static str> {
        let subject = self
            .subject
            .as_ref()
            .ok_or("spec.executor.subject is missing: name a ServiceAccount, or leave spec.executor out")?;
        let ExecutorSubjectType::ServiceAccount = subject.type_;
        subject
            .service_account
            .as_ref()
            .ok_or("executor service account can not be nil: set spec.executor.subject.serviceAccount")
    }
}
