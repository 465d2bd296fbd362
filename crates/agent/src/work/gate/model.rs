//! The types of the gate.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::Subject;
use writ_authz::ResourceAttributes;

use crate::work::model::{RbacId, TargetObject};

/// One question: may the executor use this verb on that object, or (without a name) on all of its kind there?
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccessQuestion {
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

impl AccessQuestion {
    /// A verb on the object of a manifest.
    pub fn about(verb: &'static str, target: &TargetObject) -> Self {
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
    pub fn for_all_names(&self) -> Self {
        Self {
            name: String::new(),
            ..self.clone()
        }
    }

    /// The question as `writ-authz` takes it.
    pub fn attributes(&self) -> ResourceAttributes<'_> {
        ResourceAttributes::new(self.verb, &self.group, &self.resource)
            .in_namespace(&self.namespace)
            .named(&self.name)
    }
}

/// The identity of the agent, and where it lives: executors may not touch what is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// Its user name.
    pub user: String,
    /// Its groups, without those that include other accounts.
    pub groups: Vec<String>,
    /// The namespace that an option names as its own, and that of its ServiceAccount.
    pub namespaces: BTreeSet<String>,
}

impl AgentIdentity {
    /// From what the API server says about the agent's credentials.
    pub fn new(namespace: &str, user: &str, groups: &[String]) -> Self {
        let mut namespaces = BTreeSet::from([namespace.to_owned()]);
        if let Some((namespace, _)) = writ_authz::split_service_account(user) {
            namespaces.insert(namespace.to_owned());
        }
        let shared = ["system:authenticated", "system:serviceaccounts"];
        let own = groups.iter().filter(|group| !shared.contains(&group.as_str()));
        Self {
            user: user.to_owned(),
            groups: own.cloned().collect(),
            namespaces,
        }
    }

    /// Whether subjects of this binding name the agent.
    pub fn is_named(&self, binding: &RbacId, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| match subject.kind.as_str() {
            "ServiceAccount" => {
                let namespace = subject_namespace(subject, binding);
                writ_authz::service_account_user(namespace, &subject.name) == self.user
            }
            "User" => subject.name == self.user,
            "Group" => self.groups.contains(&subject.name),
            _ => false,
        })
    }
}

/// The namespace of a subject; by default that of its binding.
pub fn subject_namespace<'a>(subject: &'a Subject, binding: &'a RbacId) -> &'a str {
    let namespace = subject.namespace.as_deref();
    namespace.filter(|name| !name.is_empty()).unwrap_or(&binding.1)
}
