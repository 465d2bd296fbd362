//! `explain`: why it is allowed, or what is missing.

use std::ops::ControlFlow;

use crate::attributes::Attributes;
use crate::decide::is_superuser;
use crate::index::Index;
use crate::names::Name;
use crate::report::{Dangling, Explanation, Missing, NearMiss};
use crate::rule::{Miss, Question};

/// How many near misses, and how many roles that would allow it, an explanation names.
const LIMIT: usize = 5;

/// The greatest distance of a rule that is still told. Past it, a rule has too little to do with the request.
const FAR: u32 = 4;

/// How far a missing part puts a rule from the request: the wrong resource is further than the wrong name.
fn distance(miss: Miss) -> u32 {
    match miss {
        Miss::Name => 1,
        Miss::Verb | Miss::Group => 2,
        Miss::Resource | Miss::Url => 3,
    }
}

/// A rule that holds in another place than the one asked for.
const ELSEWHERE: u32 = 2;

impl Index {
    /// Why may, or may not, this user do that?
    pub fn explain<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        attributes: &Attributes<'_>,
    ) -> Explanation {
        let superuser = is_superuser(groups);
        let question = Question::new(&self.names, attributes);
        let held = self.all_held(user, groups, attributes.namespace());
        let allowing = held
            .iter()
            .filter(|held| question.allowed_by(&self.names, held.rule));
        let chains: Vec<_> = allowing.filter_map(|held| self.chain(&held.grant())).collect();
        if superuser || !chains.is_empty() {
            return Explanation {
                allowed: true,
                superuser,
                chains,
                ..Explanation::default()
            };
        }
        Explanation {
            nearest: self.nearest(user, groups, attributes, &question),
            dangling: self.dangling(user, groups, attributes.namespace()),
            roles: self.allowing_roles(attributes.namespace(), &question),
            ..Explanation::default()
        }
    }

    fn in_reach(&self, scope: Name, namespace: &str) -> bool {
        scope == Name::NONE || (!namespace.is_empty() && scope == self.names.find(namespace))
    }

    fn nearest<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        attributes: &Attributes<'_>,
        question: &Question<'_>,
    ) -> Vec<NearMiss> {
        let mut near = Vec::new();
        for (binding, party) in self.bindings_of(user, groups) {
            let elsewhere = !self.in_reach(binding.id.scope, attributes.namespace());
            let _: ControlFlow<()> = self.walk_binding(binding, party, &mut |held| {
                let of_this_kind = match attributes {
                    Attributes::Resource(_) => !held.rule.resources().is_empty(),
                    Attributes::NonResource { .. } => !held.rule.urls().is_empty(),
                };
                let misses = question.all_misses(&self.names, held.rule);
                let far = misses.iter().map(|&miss| distance(miss)).sum::<u32>()
                    + if elsewhere { ELSEWHERE } else { 0 };
                if of_this_kind && far <= FAR {
                    near.push((far, held.grant(), misses, elsewhere));
                }
                ControlFlow::Continue(())
            });
        }
        let mut near: Vec<_> = near
            .into_iter()
            .filter_map(|(far, grant, misses, elsewhere)| {
                let mut missing: Vec<_> = misses
                    .into_iter()
                    .map(|miss| missing_part(attributes, miss))
                    .collect();
                if elsewhere {
                    missing.push(Missing::Namespace(attributes.namespace().to_owned()));
                }
                let chain = self.chain(&grant)?;
                Some((far, NearMiss { chain, missing }))
            })
            .collect();
        near.sort_by(|(far_a, a), (far_b, b)| (far_a, &a.chain.binding).cmp(&(far_b, &b.chain.binding)));
        near.into_iter().map(|(_, near)| near).take(LIMIT).collect()
    }

    fn dangling<G: AsRef<str>>(&self, user: &str, groups: &[G], namespace: &str) -> Vec<Dangling> {
        let bindings = self.bindings_of(user, groups).into_iter();
        let mut dangling: Vec<_> = bindings
            .filter(|(binding, _)| self.in_reach(binding.id.scope, namespace))
            .filter_map(|(binding, _)| {
                let role = binding.role.filter(|&role| self.role(role).is_none())?;
                Some(Dangling {
                    binding: self.binding_name(binding.id),
                    role: self.role_name(role),
                })
            })
            .collect();
        dangling.sort();
        dangling
    }

    fn allowing_roles(&self, namespace: &str, question: &Question<'_>) -> Vec<crate::ObjectName> {
        let reachable = self.roles().filter(|(id, _)| self.in_reach(id.scope, namespace));
        let mut roles: Vec<_> = reachable
            .filter(|(id, _)| self.role_allows(*id, question))
            .map(|(id, _)| self.role_name(id))
            .collect();
        roles.sort();
        roles.truncate(LIMIT);
        roles
    }
}

fn missing_part(attributes: &Attributes<'_>, miss: Miss) -> Missing {
    let text = |part: &str| part.to_owned();
    match (miss, attributes) {
        (Miss::Verb, _) => Missing::Verb(text(attributes.verb())),
        (_, Attributes::NonResource { path, .. }) => Missing::NonResourceUrl(text(path)),
        (Miss::Group, Attributes::Resource(asked)) => Missing::ApiGroup(text(asked.group)),
        (Miss::Name, Attributes::Resource(asked)) => Missing::ResourceName(text(asked.name)),
        (Miss::Resource | Miss::Url, Attributes::Resource(asked)) => {
            Missing::Resource(if asked.subresource.is_empty() {
                text(asked.resource)
            } else {
                [asked.resource, "/", asked.subresource].concat()
            })
        }
    }
}
