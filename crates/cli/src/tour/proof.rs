//! A proof: what the cluster's authorizer says about a subject, and what happens to a real request of it.

use std::fmt;

use anyhow::Result;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::Status,
};
use writ_authz::Identity;
use writ_fleet::Cluster;

/// What is claimed about a subject.
pub struct Claim<'a> {
    /// Where.
    pub cluster: &'a Cluster,
    /// Who, in words.
    pub who: String,
    /// Who, as the server knows them.
    pub identity: Identity,
    /// What, in words.
    pub words: String,
    /// What, as the authorizer is asked.
    pub what: ResourceAttributes,
}

/// What should be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both say yes.
    Allowed,
    /// Both say no.
    Refused,
}

impl Expected {
    /// For a sentence.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Allowed => "may",
            Self::Refused => "may not",
        }
    }
}

/// What both said.
pub struct Answer {
    review: bool,
    /// `None` if the request went through, the server's words if it was refused.
    refused: Option<String>,
}

impl Answer {
    /// Whether both answered like this.
    pub fn is(&self, expected: Expected) -> bool {
        let yes = expected == Expected::Allowed;
        self.review == yes && self.refused.is_none() == yes
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let review = if self.review { "allowed" } else { "not allowed" };
        write!(out, "SubjectAccessReview: {review}; real request: ")?;
        match &self.refused {
            None => write!(out, "done"),
            Some(words) => write!(out, "{words}"),
        }
    }
}

impl<'a> Claim<'a> {
    /// A claim about a user of a cluster and objects of the core group in a namespace.
    pub fn user(cluster: &'a Cluster, user: &str, verb: &str, resource: &str, namespace: &str) -> Self {
        Self::new(
            cluster,
            format!("user {user}"),
            Identity::user(user),
            verb,
            resource,
            namespace,
        )
    }

    /// The same about a ServiceAccount.
    pub fn account(
        cluster: &'a Cluster,
        (home, name): (&str, &str),
        verb: &str,
        resource: &str,
        namespace: &str,
    ) -> Self {
        let identity = Identity::service_account(home, name);
        Self::new(
            cluster,
            format!("ServiceAccount {home}/{name}"),
            identity,
            verb,
            resource,
            namespace,
        )
    }

    fn new(
        cluster: &'a Cluster,
        who: String,
        identity: Identity,
        verb: &str,
        resource: &str,
        namespace: &str,
    ) -> Self {
        Self {
            cluster,
            who,
            identity,
            words: format!("{verb} {resource} in namespace {namespace}"),
            what: ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some(resource.into()),
                namespace: Some(namespace.into()),
                ..ResourceAttributes::default()
            },
        }
    }

    /// Asks the authorizer, then tries.
    pub async fn ask<F, Fut>(&self, request: &F) -> Result<Answer>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<(), kube::Error>>,
    {
        let groups: Vec<&str> = self.identity.groups.iter().map(AsRef::as_ref).collect();
        let review = self
            .cluster
            .allows(&self.identity.user, &groups, self.what.clone())
            .await?;
        let refused = match request().await {
            Ok(()) => None,
            Err(kube::Error::Api(status)) if is_refusal(&status) => {
                Some(format!("{} {}", status.code, status.message))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Answer { review, refused })
    }
}

/// Whether somebody who decides about rights said no, and not something else went wrong. Admission says it with 400 where
/// upstream's does.
fn is_refusal(status: &Status) -> bool {
    match status.code {
        401 | 403 => true,
        400 => {
            status.message.starts_with("admission webhook ") && status.message.contains("denied the request")
        }
        _ => false,
    }
}

/// A real request: lists objects of a kind in a namespace.
pub async fn list<K>(client: &Client, namespace: &str) -> Result<(), kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + fmt::Debug,
{
    Api::<K>::namespaced(client.clone(), namespace)
        .list(&ListParams::default())
        .await
        .map(drop)
}

/// A real request that leaves nothing behind: creates an object as a dry run.
pub async fn try_create<K>(client: &Client, namespace: &str, object: &K) -> Result<(), kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + fmt::Debug,
{
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Api::<K>::namespaced(client.clone(), namespace)
        .create(&dry_run, object)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_decision_about_rights_is_a_refusal() {
        let rows = [
            (403, "pods is forbidden", true),
            (401, "Unauthorized", true),
            (
                400,
                "admission webhook \"x\" denied the request: user bob cannot execute",
                true,
            ),
            (400, "the object is not a ManifestWork", false),
            (404, "namespaces \"tour-web\" not found", false),
            (422, "spec is invalid", false),
            (500, "admission webhook \"x\" denied the request", false),
        ];
        for (code, message, wanted) in rows {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(is_refusal(&status), wanted, "{code} {message}");
        }
    }
}
