//! `covers`: does one set of rules hold all that another grants? The escalation check of Kubernetes.

use std::collections::HashMap;
use std::fmt::Write as _;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::budget::Budget;
use crate::names::{Name, Names};
use crate::rule::{Rule, url_matches};

/// How many of the missing atoms are told; the others are counted.
pub(crate) const TOLD: usize = 10;

/// What of the wanted rules is not held. An atom is one verb on one resource of one group, with at most one name; or one
/// verb on one URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shortfall {
    /// The first atoms that are missing, in the order that Kubernetes reports them.
    pub first: Vec<PolicyRule>,
    /// How many are missing, those included.
    pub count: usize,
    /// The budget was spent before all was compared: what was not counts as missing, too.
    pub cut_short: bool,
}

impl Shortfall {
    /// Whether all is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.cut_short
    }
}

/// What of `wanted` is not held by `owner`: nothing, if it is all held.
///
/// Each wanted rule is broken down to atoms, and each atom must be covered by a single owner rule. So two owner rules
/// never add up to a wildcard, and a rule with names never covers one without.
pub fn covers(owner: &[PolicyRule], wanted: &[PolicyRule]) -> Shortfall {
    uncovered(owner, wanted, TOLD, &mut Budget::default())
}

/// The same, with more or fewer of the missing atoms and another budget.
pub(crate) fn uncovered(
    owner: &[PolicyRule],
    wanted: &[PolicyRule],
    told: usize,
    budget: &mut Budget,
) -> Shortfall {
    let mut names = Names::new();
    let owner: Vec<Rule> = owner.iter().map(|rule| Rule::compile(&mut names, rule)).collect();
    let owner: Vec<&Rule> = owner.iter().collect();
    compare(&names, &owner, wanted, told, budget)
}

/// What of `wanted` none of these owner rules holds; so many of the missing atoms are told.
pub(crate) fn compare(
    names: &Names,
    owner: &[&Rule],
    wanted: &[PolicyRule],
    told: usize,
    budget: &mut Budget,
) -> Shortfall {
    let mut comparison = Comparison {
        names,
        budget,
        told,
        found: Shortfall::default(),
    };
    for rule in wanted {
        if comparison.stops() {
            break;
        }
        comparison.rule(owner, &Wanted::new(names, rule));
    }
    comparison.found
}

/// A word of a wanted rule, as the names of the owner have it.
#[derive(Clone, Copy)]
struct Word<'w> {
    text: &'w String,
    name: Name,
    /// `*/subresource`, for a resource that has one.
    any: Name,
}

impl Word<'_> {
    fn is(self, cell: Name) -> bool {
        cell == Name::STAR || self.is_exactly(cell)
    }

    /// NONE is never a cell: a text that the owner does not know matches nothing, and neither does a missing `any`.
    fn is_exactly(self, cell: Name) -> bool {
        cell == self.name || cell == self.any
    }
}

/// A wanted rule.
struct Wanted<'w> {
    verbs: Vec<Word<'w>>,
    groups: Vec<Word<'w>>,
    resources: Vec<Word<'w>>,
    names: Vec<Word<'w>>,
    urls: &'w [String],
}

impl<'w> Wanted<'w> {
    fn new(names: &Names, rule: &'w PolicyRule) -> Self {
        let texts = |part: &'w [String]| {
            let word = |text| Word {
                text,
                name: names.find(text),
                any: Name::NONE,
            };
            part.iter().map(word).collect::<Vec<_>>()
        };
        let mut resources = texts(part(rule.resources.as_ref()));
        for resource in &mut resources {
            if let Some((_, subresource)) = resource.text.split_once('/') {
                resource.any = names.find(&["*/", subresource].concat());
            }
        }
        Self {
            verbs: texts(&rule.verbs),
            groups: texts(part(rule.api_groups.as_ref())),
            resources,
            names: texts(part(rule.resource_names.as_ref())),
            urls: part(rule.non_resource_urls.as_ref()),
        }
    }
}

/// One comparison under way.
struct Comparison<'a> {
    names: &'a Names,
    budget: &'a mut Budget,
    told: usize,
    found: Shortfall,
}

impl Comparison<'_> {
    /// Whether the budget is spent: then nothing can be said any more, neither that a rule is held nor that it is not.
    fn stops(&mut self) -> bool {
        self.found.cut_short |= self.budget.is_spent();
        self.found.cut_short
    }

    /// Takes up atoms that are not held, unless that is only how it looks without a budget.
    fn lacks(&mut self, count: usize, atoms: impl Iterator<Item = PolicyRule>) {
        if self.stops() {
            return;
        }
        self.found.count = self.found.count.saturating_add(count);
        let room = self.told.saturating_sub(self.found.first.len());
        self.found.first.extend(atoms.take(room));
    }

    fn rule(&mut self, owner: &[&Rule], wanted: &Wanted<'_>) {
        // One owner rule that has every part covers every atom: no need to count them out.
        // Not so where a rule has both names and URLs: the names of an owner rule stand in the way of its URLs.
        let mixed = !wanted.names.is_empty() && !wanted.urls.is_empty();
        if !mixed && owner.iter().any(|own| self.covers_whole(own, wanted)) {
            return;
        }
        self.resources(owner, wanted);
        self.urls(owner, wanted);
    }

    /// Whether every part of the rule is in the one owner rule.
    fn covers_whole(&mut self, own: &Rule, wanted: &Wanted<'_>) -> bool {
        let mut has_all =
            |cells: &[Name], texts: &[Word<'_>]| texts.iter().all(|&text| self.has(cells, text));
        has_all(own.verbs(), &wanted.verbs)
            && has_all(own.groups(), &wanted.groups)
            && has_all(own.resources(), &wanted.resources)
            && (own.resource_names().is_empty()
                || (!wanted.names.is_empty() && wanted.names.iter().all(|&name| self.names_it(own, name))))
            && wanted.urls.iter().all(|url| self.has_url(own, url))
    }

    fn has(&mut self, cells: &[Name], text: Word<'_>) -> bool {
        self.budget.any(cells, |cell| text.is(cell))
    }

    /// In resourceNames `*` is a name like any other.
    fn names_it(&mut self, own: &Rule, name: Word<'_>) -> bool {
        self.budget
            .any(own.resource_names(), |cell| name.is_exactly(cell))
    }

    fn has_url(&mut self, own: &Rule, url: &str) -> bool {
        self.budget
            .any(own.urls(), |cell| url_matches(self.names.text(cell), url))
    }

    /// The atoms of resources that no owner rule covers. Part by part only those owner rules are kept that have it: where none
    /// is left, all atoms with these parts are missing, and need not be looked at one by one.
    fn resources(&mut self, owner: &[&Rule], wanted: &Wanted<'_>) {
        let Wanted {
            verbs,
            groups,
            resources,
            names,
            ..
        } = wanted;
        for group in groups {
            if self.stops() {
                return;
            }
            let with_group = self.keep(owner, |this, own| this.has(own.groups(), *group));
            if with_group.is_empty() {
                let group = std::slice::from_ref(group);
                let count = size(&[resources.len(), verbs.len(), names.len().max(1)]);
                self.lacks(count, atoms(group, resources, verbs, names));
                continue;
            }
            for resource in resources {
                if self.stops() {
                    return;
                }
                let with_resource = self.keep(&with_group, |this, own| this.has(own.resources(), *resource));
                let (group, resource) = (std::slice::from_ref(group), std::slice::from_ref(resource));
                if with_resource.is_empty() {
                    let count = size(&[verbs.len(), names.len().max(1)]);
                    self.lacks(count, atoms(group, resource, verbs, names));
                    continue;
                }
                for verb in verbs {
                    let with_verb = self.keep(&with_resource, |this, own| this.has(own.verbs(), *verb));
                    let verb = std::slice::from_ref(verb);
                    let any_name = with_verb.iter().any(|own| own.resource_names().is_empty());
                    if any_name {
                        continue;
                    }
                    if names.is_empty() {
                        self.lacks(1, atoms(group, resource, verb, &[]));
                    }
                    for name in names {
                        if self.stops() {
                            return;
                        }
                        if !with_verb.iter().any(|own| self.names_it(own, *name)) {
                            let name = std::slice::from_ref(name);
                            self.lacks(1, atoms(group, resource, verb, name));
                        }
                    }
                }
            }
        }
    }

    /// The atoms of URLs that no owner rule covers. Rules with names do not reach them.
    fn urls(&mut self, owner: &[&Rule], wanted: &Wanted<'_>) {
        for url in wanted.urls {
            if self.stops() {
                return;
            }
            let with_url = self.keep(owner, |this, own| {
                own.resource_names().is_empty() && this.has_url(own, url)
            });
            for verb in &wanted.verbs {
                if !with_url.iter().any(|own| self.has(own.verbs(), *verb)) {
                    let atom = PolicyRule {
                        non_resource_urls: Some(vec![url.clone()]),
                        verbs: vec![verb.text.clone()],
                        ..PolicyRule::default()
                    };
                    self.lacks(1, std::iter::once(atom));
                }
            }
        }
    }

    fn keep<'r>(
        &mut self,
        owner: &[&'r Rule],
        mut wanted: impl FnMut(&mut Self, &Rule) -> bool,
    ) -> Vec<&'r Rule> {
        let owner = owner.iter().copied();
        owner.filter(|own| wanted(self, own)).collect()
    }
}

fn part(list: Option<&Vec<String>>) -> &[String] {
    list.map(Vec::as_slice).unwrap_or_default()
}

fn size(parts: &[usize]) -> usize {
    parts.iter().fold(1, |size, part| size.saturating_mul(*part))
}

/// The atoms of these parts, one after the other, in the order that Kubernetes reports them.
fn atoms<'a>(
    groups: &'a [Word<'a>],
    resources: &'a [Word<'a>],
    verbs: &'a [Word<'a>],
    names: &'a [Word<'a>],
) -> impl Iterator<Item = PolicyRule> + 'a {
    let targets = groups
        .iter()
        .flat_map(move |group| resources.iter().map(move |resource| (group, resource)));
    let acts = targets.flat_map(move |target| verbs.iter().map(move |verb| (target, verb)));
    acts.flat_map(move |((group, resource), verb)| {
        let unnamed = names.is_empty().then_some(None);
        let single = names.iter().map(|name| Some(vec![name.text.clone()]));
        single.chain(unnamed).map(|resource_names| PolicyRule {
            api_groups: Some(vec![group.text.clone()]),
            resources: Some(vec![resource.text.clone()]),
            verbs: vec![verb.text.clone()],
            resource_names,
            non_resource_urls: None,
        })
    })
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
