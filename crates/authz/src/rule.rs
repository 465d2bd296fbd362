//! One compiled rule and what it matches. This is the heart: each function mirrors one line of Kubernetes' rules.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::attributes::Attributes;
use crate::names::{Name, Names};

/// A rule as numbers: verbs, API groups, resources, resource names and URLs one after the other in one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    cells: Box<[Name]>,
    /// Where verbs, groups, resources and resource names end; URLs go to the end of `cells`.
    ends: [u32; 4],
}

impl Rule {
    pub(crate) fn compile(names: &mut Names, rule: &PolicyRule) -> Self {
        let parts = [
            Some(&rule.verbs),
            rule.api_groups.as_ref(),
            rule.resources.as_ref(),
            rule.resource_names.as_ref(),
            rule.non_resource_urls.as_ref(),
        ];
        let mut cells = Vec::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        let mut ends = [0; 4];
        for (position, part) in parts.into_iter().enumerate() {
            cells.extend(part.into_iter().flatten().map(|text| names.take(text)));
            if let Some(end) = ends.get_mut(position) {
                *end = u32::try_from(cells.len()).unwrap_or(u32::MAX);
            }
        }
        Self {
            cells: cells.into_boxed_slice(),
            ends,
        }
    }

    pub(crate) fn release(&self, names: &mut Names) {
        for &cell in &self.cells {
            names.release(cell);
        }
    }

    fn between(&self, start: u32, end: u32) -> &[Name] {
        let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        self.cells.get(range).unwrap_or_default()
    }

    pub(crate) fn verbs(&self) -> &[Name] {
        self.between(0, self.ends[0])
    }

    pub(crate) fn groups(&self) -> &[Name] {
        self.between(self.ends[0], self.ends[1])
    }

    pub(crate) fn resources(&self) -> &[Name] {
        self.between(self.ends[1], self.ends[2])
    }

    pub(crate) fn resource_names(&self) -> &[Name] {
        self.between(self.ends[2], self.ends[3])
    }

    pub(crate) fn urls(&self) -> &[Name] {
        self.between(self.ends[3], u32::try_from(self.cells.len()).unwrap_or(u32::MAX))
    }

    /// Back to the form of the API, in the order it was written.
    pub(crate) fn to_policy(&self, names: &Names) -> PolicyRule {
        let texts = |part: &[Name]| {
            part.iter()
                .map(|&name| names.text(name).to_owned())
                .collect::<Vec<_>>()
        };
        let some = |part: &[Name]| (!part.is_empty()).then(|| texts(part));
        PolicyRule {
            verbs: texts(self.verbs()),
            api_groups: some(self.groups()),
            resources: some(self.resources()),
            resource_names: some(self.resource_names()),
            non_resource_urls: some(self.urls()),
        }
    }
}

/// A request in the numbers of one [`Names`] table. A text that no object uses is [`Name::NONE`]: only wildcards
/// can match it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    verb: Name,
    target: Target<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    Resource {
        group: Name,
        /// `resource` or `resource/subresource`.
        resource: Name,
        /// `*/subresource`, or none.
        any_with_subresource: Name,
        name: Name,
    },
    Url(&'a str),
}

impl<'a> Question<'a> {
    pub(crate) fn new(names: &Names, attributes: &Attributes<'a>) -> Self {
        let verb = names.find(attributes.verb());
        let target = match attributes {
            Attributes::NonResource { path, .. } => Target::Url(path),
            Attributes::Resource(asked) => {
                let (resource, any_with_subresource) = if asked.subresource.is_empty() {
                    (names.find(asked.resource), Name::NONE)
                } else {
                    (
                        names.find(&[asked.resource, "/", asked.subresource].concat()),
                        names.find(&["*/", asked.subresource].concat()),
                    )
                };
                Target::Resource {
                    group: names.find(asked.group),
                    resource,
                    any_with_subresource,
                    name: names.find(asked.name),
                }
            }
        };
        Self { verb, target }
    }

    /// Whether the rule allows the request.
    pub(crate) fn allowed_by(&self, names: &Names, rule: &Rule) -> bool {
        let misses = |wanted: Miss| self.misses(names, rule, wanted);
        match self.target {
            Target::Resource { .. } => {
                !misses(Miss::Verb) && !misses(Miss::Group) && !misses(Miss::Resource) && !misses(Miss::Name)
            }
            Target::Url(_) => !misses(Miss::Verb) && !misses(Miss::Url),
        }
    }

    /// Everything in which the rule misses the request; empty exactly where it allows it.
    pub(crate) fn all_misses(&self, names: &Names, rule: &Rule) -> Vec<Miss> {
        let asked: &[Miss] = match self.target {
            Target::Resource { .. } => &[Miss::Verb, Miss::Group, Miss::Resource, Miss::Name],
            Target::Url(_) => &[Miss::Verb, Miss::Url],
        };
        asked
            .iter()
            .copied()
            .filter(|&miss| self.misses(names, rule, miss))
            .collect()
    }

    fn misses(&self, names: &Names, rule: &Rule, miss: Miss) -> bool {
        let has = |part: &[Name], wanted: Name| part.iter().any(|&cell| cell == Name::STAR || cell == wanted);
        match (miss, &self.target) {
            (Miss::Verb, _) => !has(rule.verbs(), self.verb),
            (Miss::Group, Target::Resource { group, .. }) => !has(rule.groups(), *group),
            (
                Miss::Resource,
                Target::Resource {
                    resource,
                    any_with_subresource,
                    ..
                },
            ) => {
                // NONE is never a cell, so a request without a subresource cannot match by the second.
                !rule
                    .resources()
                    .iter()
                    .any(|cell| *cell == Name::STAR || cell == resource || cell == any_with_subresource)
            }
            // No wildcard here: in resourceNames `*` is a name like any other.
            (Miss::Name, Target::Resource { name, .. }) => {
                !rule.resource_names().is_empty() && !rule.resource_names().contains(name)
            }
            (Miss::Url, Target::Url(path)) => {
                !rule.urls().iter().any(|&url| url_matches(names.text(url), path))
            }
            _ => true,
        }
    }
}

/// A part of a request that a rule does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    Verb,
    Group,
    Resource,
    Name,
    Url,
}

/// Whether the URL of a rule matches (or covers) a path: the same text, or a prefix of it followed by stars.
pub(crate) fn url_matches(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}
