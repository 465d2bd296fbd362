//! A proof: the answer of the cluster's authorizer about a subject, and the outcome of a real request of it.

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

/// A claim about the rights of a subject.
pub struct Claim<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The subject in words.
    pub who: String,
    /// The subject as the server knows it.
    pub identity: Identity,
    /// The request in words.
    pub words: String,
    /// The request for the SubjectAccessReview.
    pub what: ResourceAttributes,
}

/// The expected outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both allow it.
    Allowed,
    /// Both refuse it.
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

/// The answers of the authorizer and to the real request.
pub struct Answer {
    review: bool,
    /// `None` if the request succeeded, the server's message if it was refused.
    refused: Option<String>,
}

impl Answer {
    /// Whether both answers are as expected.
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

    /// Asks the authorizer, then sends the request.
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

/// Whether authentication, authorization or admission refused the request, rather than something else having failed.
/// Admission refuses with 400 where upstream's does.
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
    fn failure_without_a_decision_about_rights_is_no_refusal() {
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
