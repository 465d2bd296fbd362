//! Which rights are used: told to whoever wants to know that no right is given for nothing.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use writ_authz::{Attributes, Chain, Decision, Key, Kind, Object, ResourceAttributes, Write};

use super::{Authorizer, User};

/// Told of each right that made something possible, with the rule that gives it: of requests, of answers to reviews
/// that somebody without all rights asked for, and of what a writer of roles and bindings had to hold. Members of
/// `system:masters` need no rule and are not told of.
pub type Recorder = dyn Fn(&User, &Attributes<'_>, &Chain) + Send + Sync;

const RBAC: &str = "rbac.authorization.k8s.io";

impl Authorizer {
    /// Starts to tell.
    pub fn record(&self, recorder: Arc<Recorder>) {
        drop(self.recorder.set(recorder));
    }

    /// The right was used, if the user has it; says whether.
    pub fn used(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        let Some(recorder) = self.recorder.get() else {
            return false;
        };
        let index = self.index();
        let Decision::Allow(grant) = index.allows(&user.name, &user.groups, attributes) else {
            return false;
        };
        let Some(chain) = index.chain(&grant) else {
            return false;
        };
        drop(index);
        recorder(user, attributes, &chain);
        true
    }

    /// A role or binding was written: by the right to escalate or bind, or by holding what it gives.
    pub fn granted<'a>(&self, user: &User, write: Write, object: impl Into<Object<'a>>) {
        if self.recorder.get().is_none() {
            return;
        }
        let object = object.into();
        let key = Key::from(object);
        match object {
            Object::Role(role) => self.wrote_role(user, write, &key, role.rules.as_deref()),
            Object::ClusterRole(role) => self.wrote_role(user, write, &key, role.rules.as_deref()),
            Object::RoleBinding(binding) => self.bound(user, key.namespace, &binding.role_ref),
            Object::ClusterRoleBinding(binding) => self.bound(user, "", &binding.role_ref),
        }
    }

    fn wrote_role(&self, user: &User, write: Write, key: &Key<'_>, rules: Option<&[PolicyRule]>) {
        let resource = if key.kind == Kind::Role {
            "roles"
        } else {
            "clusterroles"
        };
        let name = if write == Write::Create { "" } else { key.name };
        let escalate = ResourceAttributes::new("escalate", RBAC, resource)
            .in_namespace(key.namespace)
            .named(name);
        if !self.used(user, &escalate.into()) {
            self.held(user, key.namespace, rules.unwrap_or_default());
        }
    }

    fn bound(&self, user: &User, namespace: &str, role: &RoleRef) {
        let (kind, resource) = match role.kind.as_str() {
            "Role" => (Kind::Role, "roles"),
            _ => (Kind::ClusterRole, "clusterroles"),
        };
        let bind = ResourceAttributes::new("bind", RBAC, resource)
            .in_namespace(namespace)
            .named(&role.name);
        if self.used(user, &bind.into()) {
            return;
        }
        let rules = self.index().role_rules(Key::new(kind, namespace, &role.name));
        self.held(user, namespace, &rules.unwrap_or_default());
    }

    /// Each right that the rules give was held by the user.
    fn held(&self, user: &User, namespace: &str, rules: &[PolicyRule]) {
        for rule in rules {
            for right in rights(rule) {
                self.used(user, &right.in_namespace(namespace).into());
            }
        }
    }
}

/// The rights on resources that a rule gives, one by one.
fn rights(rule: &PolicyRule) -> Vec<ResourceAttributes<'_>> {
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            for verb in &rule.verbs {
                let right = ResourceAttributes::new(verb, group, resource).subresource(subresource);
                match rule.resource_names.as_deref() {
                    None | Some([]) => rights.push(right),
                    Some(names) => rights.extend(names.iter().map(|name| right.named(name))),
                }
            }
        }
    }
    rights
}
