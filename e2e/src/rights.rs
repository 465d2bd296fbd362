//! No right is shipped that is not needed: the embedded servers tell which rights the scenarios use, and in the end
//! every right in `deploy/` must be among them.
//!
//! A right is one verb on one resource (and name) of a rule. It counts as used where the role gave it, or where a
//! subject that `deploy/` binds to the role used the same right through another role: two controllers of one process
//! may need the same, and each has its own role so that it can be left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde_json::Value;
use writ_apiserver::Recorder;
use writ_authz::{Aggregation, Attributes, Index, ResourceAttributes, service_account_user};

use crate::yaml;

/// Rights that no scenario on an embedded server needs to use, by how their line starts, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "writ:hub:cluster-permission: update clusterpermissions/finalizers",
        "asked for by OwnerReferencesPermissionEnforcement, which the real control planes of the scenarios run",
    ),
    (
        "writ:agent:grants: update namespacegrants/finalizers",
        "asked for by OwnerReferencesPermissionEnforcement, which the real control planes of the scenarios run",
    ),
    (
        "open-cluster-management:managedcluster:ocm: ",
        "upstream's agents, where the hub runs with `--agent-rights=ocm`",
    ),
    (
        "open-cluster-management:managedcluster-certificates-ocm: ",
        "upstream's agents, where the hub runs with `--agent-rights=ocm`",
    ),
    ("writ-sync: get roles.rbac.authorization.k8s.io", TAKEN),
    (
        "writ-sync: get clusterrolebindings.rbac.authorization.k8s.io",
        TAKEN,
    ),
    ("writ-sync: get serviceaccounts", TAKEN),
    ("writ-sync: get deployments.apps", TAKEN),
];

/// Why an object is read that is followed by its labels.
const TAKEN: &str = "its name is taken by an object without our labels, or somebody made it a moment ago";

/// A use of a right.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    role: String,
    user: String,
    right: Right,
}

/// One verb on one resource, and one name where the rule has names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: String,
    group: String,
    resource: String,
    name: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " {:?}", self.name)?;
        }
        Ok(())
    }
}

static USED: Mutex<BTreeSet<Use>> = Mutex::new(BTreeSet::new());

/// Takes down the rights that are used on an embedded server.
pub fn recorder() -> Arc<Recorder> {
    Arc::new(|user, attributes, chain| {
        let Attributes::Resource(right) = attributes else {
            return;
        };
        let resource = match right.subresource {
            "" => right.resource.to_owned(),
            subresource => format!("{}/{subresource}", right.resource),
        };
        let one = Use {
            role: chain.role.name.clone(),
            user: user.name.clone(),
            right: Right {
                verb: right.verb.into(),
                group: right.group.into(),
                resource,
                name: right.name.into(),
            },
        };
        USED.lock().unwrap_or_else(PoisonError::into_inner).insert(one);
    })
}

/// Every right that is shipped was used, or is an exception; and every exception is about a right that is shipped.
pub fn check() -> Result<()> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut unused = Vec::new();
    let mut excepted = BTreeSet::new();
    for (role, shipped) in shipped()? {
        for right in shipped.rules.iter().flat_map(rights) {
            let line = format!("{role}: {right}");
            let exception = EXCEPTIONS.iter().find(|(text, _)| line.starts_with(text));
            excepted.extend(exception.map(|(text, _)| *text));
            if exception.is_none() && !is_used(&role, &shipped, &right, &used)? {
                unused.push(line);
            }
        }
    }
    let needless = EXCEPTIONS.iter().filter(|(text, _)| !excepted.contains(text));
    unused.extend(needless.map(|(text, _)| {
        format!("{text}: the exception in e2e/src/rights.rs is about no right that is shipped")
    }));
    if unused.is_empty() {
        println!("every right in deploy/ was used by a scenario, or is a listed exception");
        return Ok(());
    }
    bail!(
        "rights in deploy/ that no scenario uses; take them out, or write the scenario that needs them:\n  {}",
        unused.join("\n  ")
    )
}

/// A role of `deploy/`.
#[derive(Default)]
struct Shipped {
    rules: Vec<PolicyRule>,
    /// The users that `deploy/` binds to it.
    users: BTreeSet<String>,
}

fn shipped() -> Result<BTreeMap<String, Shipped>> {
    let mut all: BTreeMap<String, Shipped> = BTreeMap::new();
    for (file, text) in ["hub", "agent", "sync"].into_iter().flat_map(yaml::folder) {
        let objects: Vec<Value> = writ_runtime::yaml::documents(&text).with_context(|| file.clone())?;
        for object in objects {
            let kind = object
                .get("kind")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            match kind.as_str() {
                "ClusterRole" => {
                    let role: ClusterRole = serde_json::from_value(object)?;
                    let name = role.metadata.name.unwrap_or_default();
                    all.entry(name)
                        .or_default()
                        .rules
                        .extend(role.rules.unwrap_or_default());
                }
                "Role" => {
                    let role: Role = serde_json::from_value(object)?;
                    let name = role.metadata.name.unwrap_or_default();
                    all.entry(name)
                        .or_default()
                        .rules
                        .extend(role.rules.unwrap_or_default());
                }
                "ClusterRoleBinding" => {
                    let binding: ClusterRoleBinding = serde_json::from_value(object)?;
                    bind(&mut all, binding.role_ref, binding.subjects);
                }
                "RoleBinding" => {
                    let binding: RoleBinding = serde_json::from_value(object)?;
                    bind(&mut all, binding.role_ref, binding.subjects);
                }
                _ => {}
            }
        }
    }
    Ok(all)
}

fn bind(all: &mut BTreeMap<String, Shipped>, role: RoleRef, subjects: Option<Vec<Subject>>) {
    let accounts = subjects
        .into_iter()
        .flatten()
        .filter(|subject| subject.kind == "ServiceAccount");
    let users =
        accounts.map(|account| service_account_user(&account.namespace.unwrap_or_default(), &account.name));
    all.entry(role.name).or_default().users.extend(users);
}

fn rights(rule: &PolicyRule) -> Vec<Right> {
    let mut all = Vec::new();
    let any = [String::new()];
    let names = match rule.resource_names.as_deref() {
        None | Some([]) => &any,
        Some(names) => names,
    };
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                all.extend(names.iter().map(|name| Right {
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                }));
            }
        }
    }
    all
}

fn is_used(role: &str, shipped: &Shipped, right: &Right, used: &BTreeSet<Use>) -> Result<bool> {
    let index = index_of(right)?;
    Ok(used
        .iter()
        .filter(|one| one.role == role || shipped.users.contains(&one.user))
        .any(|one| {
            let (resource, subresource) = one
                .right
                .resource
                .split_once('/')
                .unwrap_or((&one.right.resource, ""));
            let question = ResourceAttributes::new(&one.right.verb, &one.right.group, resource)
                .subresource(subresource)
                .named(&one.right.name);
            index.allows(HOLDER, &[] as &[&str], &question.into()).allowed()
        }))
}

const HOLDER: &str = "holder";

/// An index in which one user holds one right, so that wildcards and names match as they do in RBAC.
fn index_of(right: &Right) -> Result<Index> {
    let mut index = Index::new(Aggregation::Stored);
    let gives = PolicyRule {
        verbs: vec![right.verb.clone()],
        api_groups: Some(vec![right.group.clone()]),
        resources: Some(vec![right.resource.clone()]),
        resource_names: (!right.name.is_empty()).then(|| vec![right.name.clone()]),
        ..PolicyRule::default()
    };
    let role: ClusterRole =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "role"}, "rules": [gives]}))?;
    let binding: ClusterRoleBinding = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "binding"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HOLDER}],
    }))?;
    index.apply(&role)?;
    index.apply(&binding)?;
    Ok(index)
}
