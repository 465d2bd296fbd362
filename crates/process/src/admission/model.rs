//! The types of admission: a webhook, what it decides, and the rights that a decision depends on.

use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::api::{
    admissionregistration::v1::RuleWithOperations,
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec},
};
use kube::core::{DynamicObject, admission::AdmissionRequest};
use writ_controller::Error;

/// A request to decide about.
pub type Request = AdmissionRequest<DynamicObject>;

/// One webhook. It fails closed: while it cannot be reached, the API server refuses what it would have checked.
pub struct Webhook<C> {
    /// The name that a refusal shows.
    pub name: &'static str,
    /// The configuration object that lists the webhook; several webhooks may share one.
    pub configuration: &'static str,
    /// The path on the webhook server.
    pub path: &'static str,
    /// Whether the webhook changes objects. Such a webhook is called again if a later one changes the object.
    pub mutating: bool,
    /// The requests that the API server sends.
    pub rule: Rule,
    /// A CEL expression with its name: only requests for which it is true are sent. The API server evaluates it
    /// itself, so all others pass while the webhook is down.
    pub only_if: Option<(&'static str, &'static str)>,
    /// The decision. An error denies the request.
    pub handler: fn(C, Request) -> BoxFuture<'static, Result<Decision, Error>>,
}

/// The objects and operations of a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The API group.
    pub group: &'static str,
    /// The API version, or `*`.
    pub version: &'static str,
    /// The resources, subresources not included.
    pub resources: &'static [&'static str],
    /// The operations.
    pub operations: &'static [Operation],
    /// `Namespaced`, `Cluster` or `*`.
    pub scope: &'static str,
}

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
}

/// The condition of webhooks that only check the spec: finalizers, labels and status may change without them.
pub const SPEC_CHANGES: (&str, &str) = (
    "the-spec-changes",
    "request.operation == 'CREATE' || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec",
);

/// What a handler decides about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The request is denied.
    Deny {
        /// The HTTP status: 400 if the object is invalid, 403 if the requester lacks a right.
        code: u16,
        /// The message to the requester.
        message: String,
    },
    /// The request is allowed if the requester meets every requirement.
    Allow {
        /// The requirements, in the order in which they are checked.
        requirements: Vec<Requirement>,
        /// Messages to the requester beside the answer.
        warnings: Vec<String>,
        /// The change that a mutating webhook makes to the object.
        patch: Option<json_patch::Patch>,
    },
}

/// A right of which the requester needs at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The rights, in the order in which they are checked.
    pub any_of: Vec<Access>,
    /// The message to a requester without any of them.
    pub refusal: String,
}

/// A right that can be asked for by SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource, with `/subresource` if there is one.
    pub resource: &'static str,
    /// The namespace; `None` for all namespaces, and for objects without one.
    pub namespace: Option<String>,
    /// The name of the object; `None` for all objects.
    pub name: Option<String>,
}

impl Decision {
    /// Allowed without any requirement.
    pub const ALLOW: Self = Self::Allow {
        requirements: Vec::new(),
        warnings: Vec::new(),
        patch: None,
    };

    /// Denied with 400: the object is invalid, no matter who the requester is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Deny {
            code: 400,
            message: message.into(),
        }
    }

    /// Denied with 403: the requester may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Deny {
            code: 403,
            message: message.into(),
        }
    }

    /// Allowed if every requirement is met.
    pub fn require(requirements: Vec<Requirement>) -> Self {
        Self::Allow {
            requirements,
            warnings: Vec::new(),
            patch: None,
        }
    }

    /// Allowed with this change.
    pub fn patched(patch: json_patch::Patch) -> Self {
        Self::Allow {
            requirements: Vec::new(),
            warnings: Vec::new(),
            patch: Some(patch),
        }
    }
}

impl Requirement {
    /// A single right, and the message to a requester without it.
    pub fn one(access: Access, refusal: impl Into<String>) -> Self {
        Self {
            any_of: vec![access],
            refusal: refusal.into(),
        }
    }
}

impl Access {
    /// The question whether this user has the right.
    pub fn review(&self, user: &UserInfo) -> SubjectAccessReviewSpec {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(self.verb.into()),
                group: Some(self.group.into()),
                resource: Some(resource.into()),
                subresource,
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

impl Operation {
    /// The name in a webhook configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl From<&Rule> for RuleWithOperations {
    fn from(rule: &Rule) -> Self {
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        Self {
            api_groups: texts(&[rule.group]),
            api_versions: texts(&[rule.version]),
            resources: texts(rule.resources),
            operations: Some(rule.operations.iter().map(|o| o.as_str().to_owned()).collect()),
            scope: Some(rule.scope.into()),
        }
    }
}
