//! Random policies and questions. The vocabulary is small, so that rules and questions meet often; every name starts
//! with a prefix, so that many policies can live in one cluster without touching each other.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use writ_authz::Identity;

use super::model::{Asked, Policy};

const VERBS: &[&str] = &["get", "list", "create", "delete"];
const GROUPS: &[&str] = &["", "apps", "example.com"];
const RESOURCES: &[&str] = &["pods", "secrets", "deployments"];
const SUBRESOURCES: &[&str] = &["log", "scale", "status"];
const NAMES: &[&str] = &["one", "two", "three"];
const PATHS: &[&str] = &[
    "/healthz",
    "/metrics",
    "/metrics/cpu",
    "/metrics/cpu/0",
    "/version",
    "/openapi/v3",
];

const RULE_VERBS: &[&str] = &["get", "list", "create", "delete", "get", "list", "*"];
const RULE_GROUPS: &[&str] = &["", "apps", "example.com", "", "apps", "*"];
const RULE_RESOURCES: &[&str] = &[
    "pods",
    "secrets",
    "deployments",
    "pods",
    "secrets",
    "pods/log",
    "pods/status",
    "deployments/scale",
    "*/scale",
    "*/log",
    "*",
];
const RULE_URLS: &[&str] = &[
    "/healthz",
    "/metrics",
    "/metrics/*",
    "/metrics/c*",
    "/version",
    "/openapi/*",
    "*",
];

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn words(pool: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
    vec(select(pool), 1..=most).prop_map(|words| words.into_iter().map(str::to_owned).collect())
}

pub(crate) fn resource_rule() -> impl Strategy<Value = PolicyRule> {
    let names = prop_oneof![2 => Just(None), 1 => words(NAMES, 2).prop_map(Some)];
    (
        words(RULE_VERBS, 2),
        words(RULE_GROUPS, 2),
        words(RULE_RESOURCES, 2),
        names,
    )
        .prop_map(|(verbs, groups, resources, names)| PolicyRule {
            verbs,
            api_groups: Some(groups),
            resources: Some(resources),
            resource_names: names,
            non_resource_urls: None,
        })
}

pub(crate) fn url_rule() -> impl Strategy<Value = PolicyRule> {
    (words(RULE_VERBS, 2), words(RULE_URLS, 2)).prop_map(|(verbs, urls)| PolicyRule {
        verbs,
        non_resource_urls: Some(urls),
        ..PolicyRule::default()
    })
}

pub(crate) fn cluster_rule() -> impl Strategy<Value = PolicyRule> {
    prop_oneof![2 => resource_rule().boxed(), 1 => url_rule().boxed()]
}

/// The namespaces of a policy.
pub(crate) fn namespaces(prefix: &str) -> [String; 2] {
    [format!("{prefix}-a"), format!("{prefix}-b")]
}

fn users(prefix: &str) -> Vec<String> {
    ["alice", "bob", "carol"]
        .map(|name| format!("{prefix}-{name}"))
        .to_vec()
}

fn groups(prefix: &str) -> Vec<String> {
    ["dev", "ops"].map(|name| format!("{prefix}-{name}")).to_vec()
}

/// Subjects, as JSON. Groups that everybody is in are bound in namespaces only, or they would reach other policies.
fn subject(prefix: &str, namespaced: bool) -> impl Strategy<Value = Value> + use<> {
    let api_group = "rbac.authorization.k8s.io";
    let user = select(users(prefix))
        .prop_map(move |name| json!({"kind": "User", "apiGroup": api_group, "name": name}));
    let mut pool = groups(prefix);
    pool.extend(namespaces(prefix).map(|namespace| format!("system:serviceaccounts:{namespace}")));
    if namespaced {
        pool.push("system:serviceaccounts".to_owned());
        pool.push("system:authenticated".to_owned());
    }
    let group =
        select(pool).prop_map(move |name| json!({"kind": "Group", "apiGroup": api_group, "name": name}));
    let account = (
        select(vec!["robot", "build"]),
        select(namespaces(prefix).to_vec()),
        any::<bool>(),
    )
        .prop_map(move |(name, namespace, defaulted)| {
            if defaulted && namespaced {
                json!({"kind": "ServiceAccount", "name": name})
            } else {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        });
    prop_oneof![3 => user.boxed(), 2 => group.boxed(), 3 => account.boxed()]
}

fn selector(prefix: &str) -> impl Strategy<Value = Value> + use<> {
    let expression = prop_oneof![
        vec(select(vec!["red", "blue"]), 1..=2)
            .prop_map(|values| json!({"key": "team", "operator": "In", "values": values})),
        select(vec!["red", "blue"])
            .prop_map(|value| json!({"key": "team", "operator": "NotIn", "values": [value]})),
        Just(json!({"key": "tier", "operator": "Exists"})),
        Just(json!({"key": "tier", "operator": "DoesNotExist"})),
    ];
    let prefix = prefix.to_owned();
    (
        vec(expression, 0..=2),
        select(vec![None, Some("red"), Some("blue")]),
    )
        .prop_map(move |(expressions, team)| {
            let mut labels = json!({"policy": prefix});
            if let Some(team) = team {
                labels["team"] = json!(team);
            }
            json!({"matchLabels": labels, "matchExpressions": expressions})
        })
}

fn cluster_role(prefix: &str, name: String, aggregated: bool) -> impl Strategy<Value = ClusterRole> + use<> {
    let labels = (select(vec![None, Some("red"), Some("blue")]), any::<bool>());
    let prefix = prefix.to_owned();
    let body = if aggregated {
        let selectors = vec(selector(&prefix), 1..=2);
        selectors
            .prop_map(|selectors| json!({"aggregationRule": {"clusterRoleSelectors": selectors}}))
            .boxed()
    } else {
        vec(cluster_rule(), 0..=3)
            .prop_map(|rules| json!({"rules": rules}))
            .boxed()
    };
    (labels, body).prop_map(move |((team, tier), mut body)| {
        let mut labels = json!({"policy": prefix});
        if let Some(team) = team {
            labels["team"] = json!(team);
        }
        if tier {
            labels["tier"] = json!("1");
        }
        body["metadata"] = json!({"name": name, "labels": labels});
        from(body)
    })
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

/// A policy: per namespace two Roles, four plain and two aggregated ClusterRoles, and bindings of all of them, some
/// of which point nowhere.
pub(crate) fn policy(prefix: &str) -> impl Strategy<Value = Policy> + use<> {
    let prefix = prefix.to_owned();
    let [a, b] = namespaces(&prefix);
    let role = |namespace: &str, name: &str| {
        let metadata = json!({"name": format!("{prefix}-{name}"), "namespace": namespace});
        vec(resource_rule(), 1..=3)
            .prop_map(move |rules| from::<Role>(json!({"metadata": metadata, "rules": rules})))
    };
    let roles = (role(&a, "r0"), role(&a, "r1"), role(&b, "r0")).prop_map(|(x, y, z)| vec![x, y, z]);
    let plain = (0..4)
        .map(|n| cluster_role(&prefix, format!("{prefix}-c{n}"), false))
        .collect::<Vec<_>>();
    let sums = (0..2)
        .map(|n| cluster_role(&prefix, format!("{prefix}-sum{n}"), true))
        .collect::<Vec<_>>();
    let cluster_roles = (plain, sums).prop_map(|(plain, sums)| [plain, sums].concat());
    // Two of every kind exist; `r1` does not exist in the second namespace, `gone` nowhere.
    let cluster_refs = ["c0", "c1", "c2", "c3", "sum0", "sum1", "sum0", "sum1", "gone"];
    let cluster_refs = cluster_refs
        .map(|name| role_ref("ClusterRole", &format!("{prefix}-{name}")))
        .to_vec();
    let local_refs = ["r0", "r1", "r0", "r1"].map(|name| role_ref("Role", &format!("{prefix}-{name}")));
    let all_refs = [local_refs.to_vec(), cluster_refs.clone()].concat();
    let namespaces = select(vec![a, b]);
    let local = vec(
        (namespaces, select(all_refs), vec(subject(&prefix, true), 0..=2)),
        3..=6,
    );
    let wide = vec((select(cluster_refs), vec(subject(&prefix, false), 0..=2)), 2..=4);
    (roles, cluster_roles, local, wide).prop_map(move |(roles, cluster_roles, local, wide)| Policy {
        roles,
        cluster_roles,
        role_bindings: (0..)
            .zip(local)
            .map(|(n, (namespace, role, subjects))| {
                let metadata = json!({"name": format!("{prefix}-b{n}"), "namespace": namespace});
                from::<RoleBinding>(json!({"metadata": metadata, "roleRef": role, "subjects": subjects}))
            })
            .collect(),
        cluster_role_bindings: (0..)
            .zip(wide)
            .map(|(n, (role, subjects))| {
                let metadata = json!({"name": format!("{prefix}-b{n}")});
                from::<ClusterRoleBinding>(
                    json!({"metadata": metadata, "roleRef": role, "subjects": subjects}),
                )
            })
            .collect(),
    })
}

/// Random numbers that make up a question about a policy.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Vec<Index>);

pub(crate) fn dice() -> impl Strategy<Value = Dice> {
    vec(any::<Index>(), 24).prop_map(Dice)
}

/// Draws numbers one after the other.
struct Hand<'a>(std::slice::Iter<'a, Index>);

impl Hand<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next().unwrap().index(limit)
    }

    fn pick<'b, T>(&mut self, pool: &'b [T]) -> &'b T {
        &pool[self.below(pool.len())]
    }

    fn text(&mut self, pool: &[&str]) -> String {
        (*self.pick(pool)).to_owned()
    }
}

/// A question about a policy. Most are aimed at a rule that somebody holds, and more than half of those are then bent in
/// one place, so that the answer hangs on that place.
pub(crate) fn question(policy: &Policy, prefix: &str, dice: &Dice) -> Asked {
    let mut hand = Hand(dice.0.iter());
    let mut asked = random(prefix, &mut hand);
    if hand.below(10) < 9 {
        aim(policy, prefix, &mut asked, &mut hand);
        if hand.below(9) < 5 {
            bend(prefix, &mut asked, &mut hand);
        }
    }
    asked
}

fn identity(prefix: &str, hand: &mut Hand<'_>) -> Identity {
    if hand.below(3) == 0 {
        let name = hand.text(&["robot", "build"]);
        return Identity::service_account(hand.pick(&namespaces(prefix)).as_str(), &name);
    }
    let user = Identity::user(hand.pick(&users(prefix)).as_str());
    match hand.below(2) {
        0 => user,
        _ => user.with_group(hand.pick(&groups(prefix)).as_str()),
    }
}

fn random(prefix: &str, hand: &mut Hand<'_>) -> Asked {
    let Identity { user, groups } = identity(prefix, hand);
    let namespaces = namespaces(prefix);
    Asked {
        user,
        groups,
        verb: hand.text(VERBS),
        group: hand.text(GROUPS),
        resource: hand.text(RESOURCES),
        subresource: hand.text(&["", "", "log", "scale", "status"]),
        namespace: hand.text(&[&namespaces[0], &namespaces[1], ""]),
        name: hand.text(&["", "one", "two", "three"]),
        path: None,
    }
}

/// Makes the question one that a random binding allows, if its role has a rule.
fn aim(policy: &Policy, prefix: &str, asked: &mut Asked, hand: &mut Hand<'_>) {
    let local = policy
        .role_bindings
        .iter()
        .map(|one| (&one.metadata, &one.subjects, &one.role_ref));
    let wide = policy
        .cluster_role_bindings
        .iter()
        .map(|one| (&one.metadata, &one.subjects, &one.role_ref));
    let useful: Vec<_> = local
        .chain(wide)
        .map(|(metadata, subjects, role)| {
            let namespace = metadata.namespace.clone().unwrap_or_default();
            let rules = policy.rules_of(role, &namespace, None);
            (namespace, subjects.clone().unwrap_or_default(), rules)
        })
        .filter(|(_, subjects, rules)| !subjects.is_empty() && !rules.is_empty())
        .collect();
    if useful.is_empty() {
        return;
    }
    let (namespace, subjects, rules) = hand.pick(&useful);
    let subject = hand.pick(subjects);
    let account_namespace = subject.namespace.as_deref().unwrap_or(namespace);
    let identity = match subject.kind.as_str() {
        "User" => Identity::user(&subject.name),
        "ServiceAccount" => Identity::service_account(account_namespace, &subject.name),
        _ => match subject.name.strip_prefix("system:serviceaccounts") {
            Some("") => Identity::service_account(hand.pick(&namespaces(prefix)).as_str(), "other"),
            Some(of) => Identity::service_account(of.trim_start_matches(':'), "other"),
            None => Identity::user(hand.pick(&users(prefix)).as_str()).with_group(&subject.name),
        },
    };
    (asked.user, asked.groups) = (identity.user, identity.groups);
    if !namespace.is_empty() {
        asked.namespace.clone_from(namespace);
    }
    let rule = hand.pick(rules);
    let concrete = |text: &String, otherwise: &str| match text.as_str() {
        "*" => otherwise.to_owned(),
        text => text.to_owned(),
    };
    asked.verb = concrete(hand.pick(&rule.verbs), &asked.verb);
    if let Some(urls) = &rule.non_resource_urls {
        let url = hand.pick(urls);
        let end = if url.ends_with('*') {
            hand.text(&["", "x", "cpu"])
        } else {
            String::new()
        };
        let url = url.trim_end_matches('*');
        let path = format!("{}{end}", if url.is_empty() { "/" } else { url });
        *asked = about_path(asked, path);
        return;
    }
    asked.group = concrete(hand.pick(rule.api_groups.as_ref().unwrap()), &asked.group);
    let resource = hand.pick(rule.resources.as_ref().unwrap());
    match resource.split_once('/') {
        Some((of, subresource)) => {
            asked.resource = concrete(&of.to_owned(), &asked.resource);
            subresource.clone_into(&mut asked.subresource);
        }
        None if resource == "*" => {}
        None => {
            asked.resource.clone_from(resource);
            asked.subresource.clear();
        }
    }
    if let Some(names) = &rule.resource_names {
        asked.name.clone_from(hand.pick(names));
    }
}

fn about_path(asked: &Asked, path: String) -> Asked {
    Asked {
        user: asked.user.clone(),
        groups: asked.groups.clone(),
        verb: asked.verb.clone(),
        path: Some(path),
        ..Asked::default()
    }
}

/// Changes one thing.
fn bend(prefix: &str, asked: &mut Asked, hand: &mut Hand<'_>) {
    if asked.path.is_some() {
        match hand.below(3) {
            0 => asked.verb = hand.text(VERBS),
            1 => (asked.user, asked.groups) = (format!("{prefix}-mallory"), Identity::user("x").groups),
            _ => asked.path = Some(hand.text(PATHS)),
        }
        return;
    }
    let namespaces = namespaces(prefix);
    match hand.below(9) {
        0 => asked.verb = hand.text(VERBS),
        1 => asked.group = hand.text(GROUPS),
        2 => asked.resource = hand.text(RESOURCES),
        3 => asked.subresource = hand.text(SUBRESOURCES),
        4 => asked.subresource.clear(),
        5 => asked.name = hand.text(NAMES),
        6 => asked.name.clear(),
        7 => asked.namespace = hand.text(&[&namespaces[0], &namespaces[1], ""]),
        _ => {
            asked.groups.pop();
        }
    }
}
