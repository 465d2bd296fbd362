//! Who may write which role and which binding: a subject may grant only what it holds, or what it may `escalate` or
//! `bind`. This comes on top of the plain right to create or update the object.

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};

use crate::attributes::ResourceAttributes;
use crate::budget::Budget;
use crate::covers::{Shortfall, TOLD, compact, compare, describe, quoted};
use crate::decide::is_superuser;
use crate::index::Index;
use crate::object::{Key, Kind, Object};

const GROUP: &str = "rbac.authorization.k8s.io";

/// How many characters of a missing rule are reported: the author of the rule decides how long its texts are.
const MAX_LINE: usize = 300;

/// What it costs to find one rule that is held, in comparisons.
const COST_OF_FINDING: usize = 32;

/// How the object is written. A create has no name in its request, so `escalate` limited by `resourceNames` does not
/// help there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// By POST.
    Create,
    /// By PUT or PATCH (server-side apply too, even where it creates).
    Update,
}

/// Why a write is refused. It prints the words of the API server.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Escalation {
    /// The writer does not hold these rules.
    #[error(
        "user {user:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(groups),
        lines(missing)
    )]
    NotHeld {
        /// The writer.
        user: String,
        /// The groups of the writer.
        groups: Vec<String>,
        /// What is not held.
        missing: Shortfall,
    },
    /// There is more to compare than the budget allows, so that it is unknown whether it is held.
    #[error("there are too many permissions to compare with those of user {user:?}: split the rules")]
    TooMany {
        /// The writer.
        user: String,
    },
    /// An aggregated ClusterRole can become anything, so only those who hold everything may write it.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// The role of a binding does not exist, so that it is unknown whether it is held.
    #[error("{kind} {name:?} not found")]
    NoRole {
        /// Role or ClusterRole, as far as the binding names a known kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

fn lines(missing: &Shortfall) -> String {
    let mut lines: Vec<_> = compact(&missing.first)
        .iter()
        .map(|rule| clipped(describe(rule)))
        .collect();
    lines.sort();
    lines.dedup();
    if missing.cut_short {
        lines.push("and more".to_owned());
    } else if let Some(more) = missing
        .count
        .checked_sub(missing.first.len())
        .filter(|&more| more > 0)
    {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn clipped(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_LINE) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

impl Index {
    /// May this user write that role or binding, as far as the check against escalation goes? The index holds the
    /// state before the write.
    pub fn may_write<'a, G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        write: Write,
        object: impl Into<Object<'a>>,
    ) -> Result<(), Escalation> {
        if is_superuser(groups) {
            return Ok(());
        }
        let object = object.into();
        let key = Key::from(object);
        match object {
            Object::Role(role) => {
                if self.may_escalate(user, groups, write, &key) {
                    return Ok(());
                }
                self.holds(
                    user,
                    groups,
                    key.namespace,
                    role.rules.as_deref().unwrap_or_default(),
                )
            }
            Object::ClusterRole(role) => {
                if self.may_escalate(user, groups, write, &key) {
                    return Ok(());
                }
                self.holds(user, groups, "", role.rules.as_deref().unwrap_or_default())?;
                let selectors = role
                    .aggregation_rule
                    .as_ref()
                    .and_then(|rule| rule.cluster_role_selectors.as_ref());
                let before = write == Write::Update
                    && self
                        .role(self.find_id(&key))
                        .is_some_and(|role| role.has_selectors);
                // Here the API server asks for a rule that allows everything. Such a rule allows `escalate` too, so
                // its holders were allowed above.
                if before || selectors.is_some_and(|selectors| !selectors.is_empty()) {
                    return Err(Escalation::Aggregation);
                }
                Ok(())
            }
            Object::RoleBinding(binding) => self.may_bind(user, groups, key.namespace, &binding.role_ref),
            Object::ClusterRoleBinding(binding) => self.may_bind(user, groups, "", &binding.role_ref),
        }
    }

    /// May this user bind that role in the namespace (everywhere, where it is empty)?
    pub fn may_bind<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        namespace: &str,
        role: &RoleRef,
    ) -> Result<(), Escalation> {
        let no_role = || Escalation::NoRole {
            kind: role.kind.clone(),
            name: role.name.clone(),
        };
        if is_superuser(groups) {
            return Ok(());
        }
        let (kind, resource) = match role.kind.as_str() {
            "ClusterRole" => (Kind::ClusterRole, "clusterroles"),
            "Role" => (Kind::Role, "roles"),
            _ => return Err(no_role()),
        };
        let group = role
            .api_group
            .as_deref()
            .filter(|group| !group.is_empty())
            .unwrap_or(GROUP);
        let bind = ResourceAttributes::new("bind", group, resource)
            .in_namespace(namespace)
            .named(&role.name);
        if self.allows(user, groups, &bind.into()).allowed() {
            return Ok(());
        }
        let rules = self
            .role_rules(Key::new(kind, namespace, &role.name))
            .ok_or_else(no_role)?;
        self.holds(user, groups, namespace, &rules)
    }

    /// Whether the user holds all these rules in the namespace.
    pub fn holds<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        namespace: &str,
        wanted: &[PolicyRule],
    ) -> Result<(), Escalation> {
        self.holds_within(user, groups, namespace, wanted, &mut Budget::default())
    }

    /// The same out of a budget that several questions share.
    pub fn holds_within<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        namespace: &str,
        wanted: &[PolicyRule],
        budget: &mut Budget,
    ) -> Result<(), Escalation> {
        let too_many = || Escalation::TooMany {
            user: user.to_owned(),
        };
        if wanted.is_empty() {
            return Ok(());
        }
        if budget.is_spent() {
            return Err(too_many());
        }
        let held = self.all_held(user, groups, namespace);
        budget.spend(held.len().saturating_mul(COST_OF_FINDING));
        let owner: Vec<_> = held.iter().map(|held| held.rule).collect();
        let missing = compare(&self.names, &owner, wanted, TOLD, budget);
        if missing.is_empty() {
            return Ok(());
        }
        if missing.count == 0 {
            return Err(too_many());
        }
        Err(Escalation::NotHeld {
            user: user.to_owned(),
            groups: groups.iter().map(|group| group.as_ref().to_owned()).collect(),
            missing,
        })
    }

    fn may_escalate<G: AsRef<str>>(&self, user: &str, groups: &[G], write: Write, key: &Key<'_>) -> bool {
        let (resource, namespace) = match key.kind {
            Kind::Role => ("roles", key.namespace),
            _ => ("clusterroles", ""),
        };
        let name = match write {
            Write::Create => "",
            Write::Update => key.name,
        };
        let escalate = ResourceAttributes::new("escalate", GROUP, resource)
            .in_namespace(namespace)
            .named(name);
        self.allows(user, groups, &escalate.into()).allowed()
    }
}
