//! Users with random rights, and what they try to write.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index as Die, select};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use writ_authz::{Identity, Object, Write};

use crate::cluster::{self, from};
use crate::generate;
use crate::model::Policy;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// One write by one actor.
pub(crate) struct Case {
    pub(crate) actor: Identity,
    pub(crate) write: Write,
    pub(crate) object: Written,
}

#[derive(Clone, Debug)]
pub(crate) enum Written {
    Role(Role),
    ClusterRole(ClusterRole),
    RoleBinding(RoleBinding),
    ClusterRoleBinding(ClusterRoleBinding),
}

impl Written {
    pub(crate) fn as_object(&self) -> Object<'_> {
        match self {
            Self::Role(object) => object.into(),
            Self::ClusterRole(object) => object.into(),
            Self::RoleBinding(object) => object.into(),
            Self::ClusterRoleBinding(object) => object.into(),
        }
    }

    pub(crate) fn to_json(&self) -> Result<Value> {
        Ok(match self {
            Self::Role(object) => serde_json::to_value(object)?,
            Self::ClusterRole(object) => serde_json::to_value(object)?,
            Self::RoleBinding(object) => serde_json::to_value(object)?,
            Self::ClusterRoleBinding(object) => serde_json::to_value(object)?,
        })
    }

    pub(crate) fn heading(&self) -> &'static str {
        match self {
            Self::Role(_) => "Role",
            Self::ClusterRole(role) if role.aggregation_rule.is_some() => "aggregated ClusterRole",
            Self::ClusterRole(_) => "ClusterRole",
            Self::RoleBinding(_) => "RoleBinding",
            Self::ClusterRoleBinding(_) => "ClusterRoleBinding",
        }
    }
}

pub(crate) fn namespace(actor: usize) -> String {
    format!("e{actor}")
}

/// What all actors may do: write the objects, as far as the plain verbs go.
pub(crate) fn creators() -> Policy {
    let resources = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let rule = json!({"verbs": ["create", "update"], "apiGroups": [GROUP], "resources": resources});
    Policy {
        cluster_roles: vec![from(json!({"metadata": {"name": "creator"}, "rules": [rule]}))],
        cluster_role_bindings: vec![from(json!({
            "metadata": {"name": "creator"},
            "roleRef": {"kind": "ClusterRole", "apiGroup": GROUP, "name": "creator"},
            "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": "creators"}],
        }))],
        ..Policy::default()
    }
}

pub(crate) struct Actor {
    identity: Identity,
    namespace: String,
    pub(crate) policy: Policy,
    /// What the actor holds in the cluster, and what in the namespace only.
    wide: Vec<PolicyRule>,
    local: Vec<PolicyRule>,
}

impl Actor {
    pub(crate) fn random(runner: &mut TestRunner, number: usize) -> Result<Self> {
        let namespace = namespace(number);
        let identity = Identity {
            user: format!("{namespace}-actor"),
            groups: vec!["creators".to_owned(), "system:authenticated".to_owned()],
        };
        let mut wide = cluster::sample(runner, &vec(generate::cluster_rule(), 0..=3))?;
        let local = cluster::sample(runner, &vec(generate::resource_rule(), 0..=3))?;
        if number.is_multiple_of(12) {
            wide.push(from(
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            ));
            wide.push(from(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})));
        }
        if number % 12 == 6 {
            let resources = ["pods/*", "*/log"];
            wide.push(from(
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": resources}),
            ));
        }
        let special = [
            json!({"verbs": ["escalate"], "resources": ["roles"]}),
            json!({"verbs": ["escalate"], "resources": ["clusterroles"]}),
            json!({"verbs": ["escalate"], "resources": ["roles", "clusterroles"], "resourceNames": ["target0"]}),
            json!({"verbs": ["bind"], "resources": ["clusterroles"], "resourceNames": [format!("{namespace}-target0")]}),
            json!({"verbs": ["bind"], "resources": ["roles"]}),
            json!({"verbs": ["bind", "escalate"], "resources": ["*"]}),
        ];
        let special = |at: usize| {
            let mut rule = special.get(at).cloned()?;
            rule["apiGroups"] = json!([GROUP]);
            Some(from::<PolicyRule>(rule))
        };
        let (special_wide, special_local) = cluster::sample(runner, &(0..20usize, 0..14usize))?;
        let actor = Self {
            identity,
            policy: Policy::default(),
            wide,
            local,
            namespace,
        };
        actor.with_policy(runner, special(special_wide), special(special_local))
    }

    fn with_policy(
        mut self,
        runner: &mut TestRunner,
        special_wide: Option<PolicyRule>,
        special_local: Option<PolicyRule>,
    ) -> Result<Self> {
        let prefix = &self.namespace;
        let wide_rules = [self.wide.clone(), special_wide.into_iter().collect()].concat();
        let local_rules = [self.local.clone(), special_local.into_iter().collect()].concat();
        let subjects = json!([{"kind": "User", "apiGroup": GROUP, "name": self.identity.user}]);
        let own = format!("{prefix}-own");
        let mut policy = Policy::default();
        policy
            .cluster_roles
            .push(from(json!({"metadata": {"name": own}, "rules": wide_rules})));
        policy.roles.push(from(
            json!({"metadata": {"name": "own", "namespace": prefix}, "rules": local_rules}),
        ));
        policy.cluster_role_bindings.push(from(json!({
            "metadata": {"name": own},
            "roleRef": {"kind": "ClusterRole", "apiGroup": GROUP, "name": own},
            "subjects": subjects,
        })));
        policy.role_bindings.push(from(json!({
            "metadata": {"name": "own", "namespace": prefix},
            "roleRef": {"kind": "Role", "apiGroup": GROUP, "name": "own"},
            "subjects": subjects,
        })));
        let friend = json!([{"kind": "User", "apiGroup": GROUP, "name": "friend"}]);
        let refer = |kind: &str, name: String| json!({"kind": kind, "apiGroup": GROUP, "name": name});
        for number in 0..2 {
            // To be updated.
            for (name, role) in [
                ("bound", refer("Role", format!("target{number}"))),
                (
                    "wide-bound",
                    refer("ClusterRole", format!("{prefix}-target{number}")),
                ),
            ] {
                let metadata = json!({"name": format!("{name}{number}"), "namespace": prefix});
                policy.role_bindings.push(from(
                    json!({"metadata": metadata, "roleRef": role, "subjects": friend}),
                ));
            }
            policy.cluster_role_bindings.push(from(json!({
                "metadata": {"name": format!("{prefix}-bound{number}")},
                "roleRef": refer("ClusterRole", format!("{prefix}-target{number}")),
                "subjects": friend,
            })));
            let labels = json!({"of": format!("{prefix}-{number}")});
            let metadata = json!({"name": format!("{prefix}-target{number}"), "labels": labels});
            let rules = self.wanted(runner, false)?;
            policy
                .cluster_roles
                .push(from(json!({"metadata": metadata, "rules": rules})));
            let metadata = json!({"name": format!("target{number}"), "namespace": prefix});
            let rules = self.wanted(runner, true)?;
            policy
                .roles
                .push(from(json!({"metadata": metadata, "rules": rules})));
        }
        let selectors = json!([{"matchLabels": {"of": format!("{prefix}-0")}}]);
        policy.cluster_roles.push(from(json!({
            "metadata": {"name": format!("{prefix}-sum")},
            "aggregationRule": {"clusterRoleSelectors": selectors},
        })));
        self.policy = policy;
        Ok(self)
    }

    /// Rules that the actor would like to give: mostly a part of what the actor holds, sometimes with a change.
    fn wanted(&self, runner: &mut TestRunner, namespaced: bool) -> Result<Vec<PolicyRule>> {
        let held = if namespaced {
            [self.wide.clone(), self.local.clone()].concat()
        } else {
            self.wide.clone()
        };
        let held: Vec<_> = held
            .into_iter()
            .filter(|rule| !namespaced || rule.non_resource_urls.is_none())
            .collect();
        let mut rules = Vec::new();
        for _ in 0..cluster::sample(runner, &(1..=2usize))? {
            let dice = cluster::sample(runner, &vec(any::<Die>(), 12))?;
            let random = if namespaced {
                cluster::sample(runner, &generate::resource_rule())?
            } else {
                cluster::sample(runner, &generate::cluster_rule())?
            };
            let aim = !held.is_empty() && dice[0].index(6) > 0;
            rules.push(if aim {
                part_of(&held[dice[1].index(held.len())], &dice[2..])
            } else {
                random
            });
        }
        Ok(rules)
    }

    pub(crate) fn case(&self, runner: &mut TestRunner) -> Result<Case> {
        let prefix = &self.namespace;
        let kind = cluster::sample(runner, &(0..12usize))?;
        let target = cluster::sample(runner, &select(vec!["target0", "target1", "gone"]))?;
        let cluster_target =
            cluster::sample(runner, &select(vec!["target0", "target1", "sum", "own", "gone"]))?;
        let cluster_target = format!("{prefix}-{cluster_target}");
        let existing = cluster::sample(runner, &(0..2usize))?;
        let refer = |kind: &str, name: &str| json!({"kind": kind, "apiGroup": GROUP, "name": name});
        let subjects = json!([{"kind": "User", "apiGroup": GROUP, "name": "friend"}]);
        // The annotation makes every update a change: an update without one is not checked at all.
        let metadata = |name: &str| json!({"name": name, "annotations": {"test": "changed"}});
        let local =
            |name: &str| json!({"name": name, "namespace": prefix, "annotations": {"test": "changed"}});
        let create = Write::Create;
        let (write, object) = match kind {
            0 | 1 => {
                let rules = self.wanted(runner, true)?;
                let (write, name) = match kind {
                    0 => (create, "new".to_owned()),
                    _ => (Write::Update, format!("target{existing}")),
                };
                (
                    write,
                    Written::Role(from(json!({"metadata": local(&name), "rules": rules}))),
                )
            }
            2 | 3 => {
                let mut rules = self.wanted(runner, false)?;
                if cluster::sample(runner, &(0..4usize))? == 0 {
                    // No server stores that, and what is refused before is refused all the same.
                    for rule in rules.iter_mut().filter(|rule| rule.non_resource_urls.is_some()) {
                        rule.resource_names = Some(vec!["four".to_owned()]);
                    }
                }
                let (write, name) = match kind {
                    2 => (create, format!("{prefix}-new")),
                    _ => (Write::Update, format!("{prefix}-target{existing}")),
                };
                (
                    write,
                    Written::ClusterRole(from(json!({"metadata": metadata(&name), "rules": rules}))),
                )
            }
            4 => {
                // Created with selectors, or updated from having some to having none.
                let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"of": "nothing"}}]});
                let role = match existing {
                    0 => {
                        json!({"metadata": metadata(&format!("{prefix}-new")), "aggregationRule": selectors})
                    }
                    _ => json!({"metadata": metadata(&format!("{prefix}-sum")), "rules": []}),
                };
                (
                    if existing == 0 { create } else { Write::Update },
                    Written::ClusterRole(from(role)),
                )
            }
            5 => {
                let binding =
                    json!({"metadata": local("new"), "roleRef": refer("Role", target), "subjects": subjects});
                (create, Written::RoleBinding(from(binding)))
            }
            6 | 7 => {
                let role = refer("ClusterRole", &cluster_target);
                let binding = json!({"metadata": local("new"), "roleRef": role, "subjects": subjects});
                (create, Written::RoleBinding(from(binding)))
            }
            // The role of a binding cannot be changed: all else is, and is checked as if it were new.
            8 | 9 => {
                let (name, role) = match kind {
                    8 => ("bound", refer("Role", &format!("target{existing}"))),
                    _ => (
                        "wide-bound",
                        refer("ClusterRole", &format!("{prefix}-target{existing}")),
                    ),
                };
                let metadata = local(&format!("{name}{existing}"));
                let binding = json!({"metadata": metadata, "roleRef": role, "subjects": subjects});
                (Write::Update, Written::RoleBinding(from(binding)))
            }
            10 => {
                let role = refer("ClusterRole", &format!("{prefix}-target{existing}"));
                let metadata = metadata(&format!("{prefix}-bound{existing}"));
                let binding = json!({"metadata": metadata, "roleRef": role, "subjects": subjects});
                (Write::Update, Written::ClusterRoleBinding(from(binding)))
            }
            _ => {
                let role = refer("ClusterRole", &cluster_target);
                let name = format!("{prefix}-new");
                let binding = json!({"metadata": metadata(&name), "roleRef": role, "subjects": subjects});
                (create, Written::ClusterRoleBinding(from(binding)))
            }
        };
        Ok(Case {
            actor: self.identity.clone(),
            write,
            object,
        })
    }
}

/// A part of a rule: one or two of each list, wildcards often made concrete, a name sometimes added; sometimes one
/// thing more than was held.
fn part_of(rule: &PolicyRule, dice: &[Die]) -> PolicyRule {
    let some = |list: &[String], die: usize, concrete: &str| {
        let first = &list[dice[die].index(list.len())];
        let first = if first == "*" && dice[die + 1].index(3) > 0 {
            concrete.to_owned()
        } else {
            first.clone()
        };
        vec![first]
    };
    let mut part = rule.clone();
    part.verbs = some(&rule.verbs, 0, "patch");
    part.api_groups = rule.api_groups.as_ref().map(|groups| some(groups, 2, "batch"));
    part.resources = rule
        .resources
        .as_ref()
        .map(|resources| some(resources, 4, "jobs/status"));
    let star = |resource: &String| resource.replace("*/", "jobs/");
    part.resources = part.resources.map(|resources| match dice[6].index(2) {
        0 => resources.iter().map(star).collect(),
        _ => resources,
    });
    part.non_resource_urls = rule.non_resource_urls.as_ref().map(|urls| some(urls, 4, "/x/*"));
    if part.resources.is_some() && part.resource_names.is_none() && dice[7].index(3) == 0 {
        part.resource_names = Some(vec!["four".to_owned()]);
    }
    match dice[8].index(9) {
        0 => part.verbs.push("watch".to_owned()),
        1 if part.api_groups.is_some() => part.api_groups = Some(vec!["policy".to_owned()]),
        2 => part.resource_names = None,
        // No wildcard: it names a subresource of that very name.
        3 if part.resources.is_some() && dice[9].index(3) == 0 => {
            part.resources = Some(vec!["pods/*".to_owned()]);
        }
        _ => {}
    }
    part
}
