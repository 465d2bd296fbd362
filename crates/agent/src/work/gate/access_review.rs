//! What is asked about an executor.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use writ_api::work::UpdateStrategyType;

use super::super::plan::Target;

/// One question: may the executor do this verb on that object, or (without a name) on all of that kind there?
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The namespace; empty for a cluster-scoped object, and for all namespaces.
    pub namespace: String,
    /// The name; empty for all names.
    pub name: String,
}

impl Question {
    /// A verb on the object of a manifest.
    pub fn about(verb: &'static str, target: &Target) -> Self {
        Self {
            verb,
            group: target.kind.resource.group.clone(),
            version: target.kind.resource.version.clone(),
            resource: target.kind.resource.plural.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        }
    }

    /// The same for all names: where RBAC decides, a yes to this is a yes to each.
    pub fn broad(&self) -> Self {
        Self {
            name: String::new(),
            ..self.clone()
        }
    }

    /// As writ-authz takes it.
    pub fn attributes(&self) -> writ_authz::ResourceAttributes<'_> {
        writ_authz::ResourceAttributes::new(self.verb, &self.group, &self.resource)
            .in_namespace(&self.namespace)
            .named(&self.name)
    }

    /// As the API server takes it.
    pub fn review(&self, user: &str, groups: &[String]) -> SubjectAccessReview {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.into()),
                groups: Some(groups.to_vec()),
                resource_attributes: Some(ResourceAttributes {
                    verb: text(self.verb),
                    group: text(&self.group),
                    version: text(&self.version),
                    resource: text(&self.resource),
                    namespace: text(&self.namespace),
                    name: text(&self.name),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}

/// What an executor must be allowed to hold an object through its whole life.
pub fn verbs(target: &Target) -> Vec<&'static str> {
    let mut verbs = match target.config.strategy.type_ {
        UpdateStrategyType::ReadOnly => return vec!["get"],
        UpdateStrategyType::CreateOnly => vec!["create", "get"],
        UpdateStrategyType::Update | UpdateStrategyType::ServerSideApply => {
            vec!["create", "update", "patch", "get"]
        }
    };
    if target.owned {
        verbs.push("delete");
    }
    verbs
}
