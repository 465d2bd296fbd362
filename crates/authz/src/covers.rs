//! `covers`: does one set of rules hold all that another grants? The escalation check of Kubernetes.

use std::collections::HashMap;
use std::fmt::Write as _;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rule::url_matches;

/// The most atoms that one call looks at. A rule of a megabyte can stand for 10^12 of them; past the limit a wanted
/// rule counts as missing as a whole: it fails closed.
const MAX_ATOMS: usize = 200_000;

/// What of `wanted` is not held by `owner`: nothing, if it is all held.
///
/// Each wanted rule is broken down to atoms of one verb, one group, one resource and at most one name (or one verb
/// and one URL), and each atom must be covered by a single owner rule. So two owner rules never add up to a wildcard,
/// and a rule with names never covers one without.
pub fn covers(owner: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    let mut budget = MAX_ATOMS;
    for rule in wanted {
        // One owner rule that has every part covers every atom: no need to count them out.
        // Not so where a rule has both names and URLs: the names of an owner rule stand in the way of its URLs.
        let mixed = !part(rule.resource_names.as_ref()).is_empty()
            && !part(rule.non_resource_urls.as_ref()).is_empty();
        if !mixed && owner.iter().any(|own| covers_whole(own, rule)) {
            continue;
        }
        let Some(rest) = atom_count(rule).and_then(|atoms| budget.checked_sub(atoms)) else {
            missing.push(rule.clone());
            continue;
        };
        budget = rest;
        missing.extend(breakdown(rule).filter(|atom| !owner.iter().any(|own| covers_whole(own, atom))));
    }
    missing
}

fn part(list: Option<&Vec<String>>) -> &[String] {
    list.map(Vec::as_slice).unwrap_or_default()
}

/// How many atoms `breakdown` yields, if it can be counted.
fn atom_count(rule: &PolicyRule) -> Option<usize> {
    let resources = part(rule.api_groups.as_ref())
        .len()
        .checked_mul(part(rule.resources.as_ref()).len())?
        .checked_mul(part(rule.resource_names.as_ref()).len().max(1))?;
    let targets = resources.checked_add(part(rule.non_resource_urls.as_ref()).len())?;
    targets.checked_mul(rule.verbs.len())
}

/// The atoms of a rule, in the order that Kubernetes reports them.
fn breakdown(rule: &PolicyRule) -> impl Iterator<Item = PolicyRule> {
    let names = part(rule.resource_names.as_ref());
    let resource_atom =
        |group: &String, resource: &String, verb: &String, name: Option<&String>| PolicyRule {
            api_groups: Some(vec![group.clone()]),
            resources: Some(vec![resource.clone()]),
            verbs: vec![verb.clone()],
            resource_names: name.map(|name| vec![name.clone()]),
            non_resource_urls: None,
        };
    let mut atoms = Vec::new();
    for group in part(rule.api_groups.as_ref()) {
        for resource in part(rule.resources.as_ref()) {
            for verb in &rule.verbs {
                if names.is_empty() {
                    atoms.push(resource_atom(group, resource, verb, None));
                }
                atoms.extend(
                    names
                        .iter()
                        .map(|name| resource_atom(group, resource, verb, Some(name))),
                );
            }
        }
    }
    for url in part(rule.non_resource_urls.as_ref()) {
        atoms.extend(rule.verbs.iter().map(|verb| PolicyRule {
            non_resource_urls: Some(vec![url.clone()]),
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        }));
    }
    atoms.into_iter()
}

/// Whether every part of the rule is in the one owner rule.
fn covers_whole(owner: &PolicyRule, rule: &PolicyRule) -> bool {
    let has = |set: &[String], wanted: &str| set.iter().any(|have| have == wanted);
    let has_all = |set: &[String], wanted: &[String]| has(set, "*") || wanted.iter().all(|one| has(set, one));
    let own_resources = part(owner.resources.as_ref());
    let resource_covered = |wanted: &String| {
        has(own_resources, wanted)
            || wanted
                .split_once('/')
                .is_some_and(|(_, subresource)| has(own_resources, &["*/", subresource].concat()))
    };
    let own_names = part(owner.resource_names.as_ref());
    let names = part(rule.resource_names.as_ref());
    let own_urls = part(owner.non_resource_urls.as_ref());
    let url_covered = |wanted: &String| own_urls.iter().any(|own| url_matches(own, wanted));

    has_all(&owner.verbs, &rule.verbs)
        && has_all(part(owner.api_groups.as_ref()), part(rule.api_groups.as_ref()))
        && (has(own_resources, "*") || part(rule.resources.as_ref()).iter().all(resource_covered))
        && (own_names.is_empty() || (!names.is_empty() && names.iter().all(|name| has(own_names, name))))
        && part(rule.non_resource_urls.as_ref()).iter().all(url_covered)
}

/// Folds atoms that differ only by verb into one rule, for people to read. The order of first appearance is kept.
pub fn compact(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut compacted: Vec<PolicyRule> = Vec::with_capacity(rules.len());
    let mut places: HashMap<(&str, &str, Option<&str>), usize> = HashMap::new();
    for rule in rules {
        let (groups, resources) = (part(rule.api_groups.as_ref()), part(rule.resources.as_ref()));
        let (names, urls) = (
            part(rule.resource_names.as_ref()),
            part(rule.non_resource_urls.as_ref()),
        );
        let place = match (groups, resources, names, urls) {
            ([group], [resource], [], []) => Some((group.as_str(), resource.as_str(), None)),
            ([group], [resource], [name], []) => {
                Some((group.as_str(), resource.as_str(), Some(name.as_str())))
            }
            _ => None,
        };
        if let Some(simple) = place {
            if let Some(have) = places.get(&simple).and_then(|&at| compacted.get_mut(at)) {
                have.verbs.extend(rule.verbs.iter().cloned());
                continue;
            }
            places.insert(simple, compacted.len());
        }
        compacted.push(rule.clone());
    }
    compacted
}

/// A rule in the words of the API server's refusals: `{APIGroups:["apps"], Resources:["*"], Verbs:["get" "list"]}`.
pub fn describe(rule: &PolicyRule) -> String {
    let parts = [
        ("APIGroups", part(rule.api_groups.as_ref())),
        ("Resources", part(rule.resources.as_ref())),
        ("NonResourceURLs", part(rule.non_resource_urls.as_ref())),
        ("ResourceNames", part(rule.resource_names.as_ref())),
        ("Verbs", rule.verbs.as_slice()),
    ];
    let mut text = String::from("{");
    for (title, values) in parts.into_iter().filter(|(_, values)| !values.is_empty()) {
        let separator = if text.len() > 1 { ", " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{title}:{}", quoted(values));
    }
    text.push('}');
    text
}

/// A list as the API server prints it: `["a" "b"]`.
pub(crate) fn quoted<T: AsRef<str>>(values: &[T]) -> String {
    let values: Vec<_> = values
        .iter()
        .map(|value| format!("{:?}", value.as_ref()))
        .collect();
    format!("[{}]", values.join(" "))
}
