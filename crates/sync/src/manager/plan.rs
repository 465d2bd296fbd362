//! What a sync must have. Pure.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef as RbacRoleRef, Subject},
};
use kube::api::ObjectMeta;
use writ_api::{
    configsync::{RoleRef, RoleRefKind, RoleRefState, RoleRefStatus},
    kpt::{ResourceGroup, ResourceGroupSpec},
};

use crate::{
    DefaultRole,
    model::{SYSTEM_NAMESPACE, Sync, SyncId, SyncKind},
    names,
    spec::{invalid, roles_in_force, secrets},
};

/// What a plan must know of the cluster.
pub trait World {
    /// Whether a namespace exists and is not terminating.
    fn has_namespace(&self, name: &str) -> bool;
    /// Whether a role exists.
    fn has_role(&self, kind: RoleRefKind, namespace: Option<&str>, name: &str) -> bool;
    /// The oldest sync whose account has this name.
    fn owner(&self, account: &str) -> Option<SyncId>;
}

/// What a sync must have.
#[derive(Debug)]
pub struct Plan {
    /// The account of the reconciler.
    pub account: ServiceAccount,
    /// The rights that every reconciler has, on its own sync only.
    pub base_role: Role,
    /// The binding of the base rights.
    pub base_binding: RoleBinding,
    /// The inventory, which is created empty.
    pub inventory: ResourceGroup,
    /// The roles in force.
    pub roles: Vec<PlannedRole>,
    /// Why the sync is invalid.
    pub problem: Option<String>,
    /// Whether nothing may be made for it, because the objects would have to be shared with another sync, or cannot exist.
    pub refused: bool,
    /// Whether cluster-admin is in force because the spec names no role.
    pub default_in_force: bool,
}

/// One role in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRole {
    /// The role.
    pub role: RoleRef,
    /// The name of its binding.
    pub binding: String,
    /// Whether it is bound, or the reason why not.
    pub state: RoleRefState,
}

impl PlannedRole {
    /// Whether the binding must exist. A missing role is bound as well, and takes effect when it appears.
    pub fn is_wanted(&self) -> bool {
        matches!(self.state, RoleRefState::Bound | RoleRefState::RoleMissing)
    }

    /// The state for the status, given why it could not be bound.
    pub fn report(&self, failure: Option<String>) -> RoleRefStatus {
        let state = if failure.is_some() {
            RoleRefState::Failed
        } else {
            self.state
        };
        let RoleRef {
            kind,
            name,
            namespace,
        } = &self.role;
        let message = failure.or_else(|| match state {
            RoleRefState::WaitingForNamespace => Some(format!(
                "the namespace {:?} does not exist; the role is bound once it does",
                namespace.as_deref().unwrap_or_default()
            )),
            RoleRefState::RoleMissing => Some(format!(
                "the {} {name:?} does not exist; it takes effect once it does",
                kind.as_str()
            )),
            RoleRefState::Invalid => {
                Some("KNV1061: a roleRef has a name, and one of kind Role has a namespace".into())
            }
            RoleRefState::Bound | RoleRefState::Failed => None,
        });
        RoleRefStatus {
            kind: *kind,
            name: name.clone(),
            namespace: namespace.clone(),
            binding: self.is_wanted().then(|| self.binding.clone()),
            state,
            message,
        }
    }
}

/// Plans what the sync must have.
pub fn plan(sync: &Sync, default: DefaultRole, world: &impl World) -> Plan {
    let id = &sync.id;
    let (roles, contradiction, default_in_force) = match &sync.spec {
        Ok(spec) => roles_in_force(id.kind, spec, default),
        // A spec that does not parse asks for nothing.
        Err(_) => (Vec::new(), None, false),
    };
    let roles = roles
        .into_iter()
        .map(|role| PlannedRole {
            binding: names::binding(id, &role),
            state: role_state(&role, world),
            role,
        })
        .collect();
    let refusal = misplaced(id)
        .or_else(|| too_long(id))
        .or_else(|| shared_account(id, world));
    let refused = refusal.is_some();
    let problem = refusal
        .map(|problem| format!("KNV1061: {problem}"))
        .or(match &sync.spec {
            Err(error) => Some(error.clone()),
            Ok(spec) => invalid(sync, spec)
                .map(|problem| format!("KNV1061: {problem}"))
                .or(contradiction),
        });
    let secrets = sync.spec.as_ref().map(secrets).unwrap_or_default();
    Plan {
        account: ServiceAccount {
            metadata: metadata(id, SYSTEM_NAMESPACE, names::reconciler(id)),
            ..ServiceAccount::default()
        },
        base_role: Role {
            metadata: metadata(id, &id.namespace, names::base(id)),
            rules: Some(base_rules(id, secrets)),
        },
        base_binding: RoleBinding {
            metadata: metadata(id, &id.namespace, names::base(id)),
            role_ref: role_ref("Role", names::base(id)),
            subjects: Some(vec![subject(id)]),
        },
        inventory: inventory(id),
        roles,
        problem,
        refused,
        default_in_force,
    }
}

/// Why nothing may be made for a sync in its namespace.
fn misplaced(id: &SyncId) -> Option<String> {
    match id.kind {
        SyncKind::Root if &*id.namespace != SYSTEM_NAMESPACE => {
            Some(format!("a RootSync must be in the namespace {SYSTEM_NAMESPACE}"))
        }
        SyncKind::Repo if &*id.namespace == SYSTEM_NAMESPACE => Some(format!(
            "a RepoSync must not be in the namespace {SYSTEM_NAMESPACE}"
        )),
        _ => None,
    }
}

/// Why nothing can be made for a sync of this name: its inventory has a label with namespace and name.
fn too_long(id: &SyncId) -> Option<String> {
    match id.kind {
        SyncKind::Root if id.name.len() > 38 => {
            Some("the name of a RootSync has at most 38 characters".into())
        }
        SyncKind::Repo if id.name.len() + id.namespace.len() > 45 => {
            Some("the name and the namespace of a RepoSync have at most 45 characters together".into())
        }
        _ => None,
    }
}

/// Why a sync cannot have its account: another sync has it. Config Sync's names of accounts are not unique, and each of the
/// two syncs would act with the rights of the other.
fn shared_account(id: &SyncId, world: &impl World) -> Option<String> {
    let account = names::reconciler(id);
    let owner = world.owner(&account).filter(|owner| owner != id)?;
    Some(format!(
        "its ServiceAccount would be {account}, which belongs to {owner}: choose another name"
    ))
}

fn role_state(role: &RoleRef, world: &impl World) -> RoleRefState {
    let namespace = role.namespace.as_deref();
    if role.name.is_empty() || (role.kind == RoleRefKind::Role && namespace.is_none()) {
        return RoleRefState::Invalid;
    }
    if namespace.is_some_and(|namespace| !world.has_namespace(namespace)) {
        return RoleRefState::WaitingForNamespace;
    }
    if world.has_role(role.kind, namespace, &role.name) {
        RoleRefState::Bound
    } else {
        RoleRefState::RoleMissing
    }
}

fn base_rules(id: &SyncId, secrets: Vec<String>) -> Vec<PolicyRule> {
    let rule = |group: &str, resource: &str, verbs: &[&str], names: Vec<String>| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        non_resource_urls: None,
    };
    let own = || vec![id.name.to_string()];
    let syncs = id.kind.plural();
    let mut rules = vec![
        rule("configsync.gke.io", syncs, &["get", "list", "watch"], own()),
        rule(
            "configsync.gke.io",
            &format!("{syncs}/status"),
            &["get", "patch", "update"],
            own(),
        ),
        rule(
            "kpt.dev",
            "resourcegroups",
            &["get", "list", "patch", "update", "watch"],
            own(),
        ),
        rule(
            "kpt.dev",
            "resourcegroups/status",
            &["get", "patch", "update"],
            own(),
        ),
    ];
    if !secrets.is_empty() {
        rules.push(rule("", "secrets", &["get"], secrets));
    }
    rules
}

fn inventory(id: &SyncId) -> ResourceGroup {
    let mut metadata = metadata(id, &id.namespace, id.name.to_string());
    if let Some(labels) = &mut metadata.labels {
        labels.insert(
            "cli-utils.sigs.k8s.io/inventory-id".into(),
            names::inventory_id(id),
        );
    }
    ResourceGroup {
        metadata,
        spec: ResourceGroupSpec::default(),
        status: None,
    }
}

/// The account of the reconciler, as the subject of a binding.
pub fn subject(id: &SyncId) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: names::reconciler(id),
        namespace: Some(SYSTEM_NAMESPACE.into()),
        api_group: None,
    }
}

/// A role, as the roleRef of a binding.
pub fn role_ref(kind: &str, name: String) -> RbacRoleRef {
    RbacRoleRef {
        api_group: Some("rbac.authorization.k8s.io".into()),
        kind: kind.into(),
        name,
    }
}

/// The metadata of an object made for a sync.
pub fn metadata(id: &SyncId, namespace: &str, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        labels: Some(names::labels(id)),
        ..ObjectMeta::default()
    }
}
