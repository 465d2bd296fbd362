//! `who_can` and `rules_for`: the index asked from the other sides.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::attributes::Attributes;
use crate::decide::Held;
use crate::index::{Id, Index, Party};
use crate::names::Name;
use crate::object::Key;
use crate::report::{Chain, Holder, Subject};
use crate::rule::{Question, Rule};

impl Index {
    /// Who may do that? Every subject of a binding whose role allows it, with all chains, sorted. Members of
    /// `system:masters` may do anything; they are listed only where a binding says so too.
    pub fn who_can(&self, attributes: &Attributes<'_>) -> Vec<Holder> {
        let question = Question::new(&self.names, attributes);
        let namespace = match attributes.namespace() {
            "" => Name::NONE,
            namespace => self.names.find(namespace),
        };
        let mut answers: HashMap<Id, bool> = HashMap::new();
        let mut holders: BTreeMap<Subject, Vec<Chain>> = BTreeMap::new();
        for binding in self.bindings() {
            if binding.id.scope != Name::NONE && binding.id.scope != namespace {
                continue;
            }
            let Some(role) = binding.role else { continue };
            if !*answers
                .entry(role)
                .or_insert_with(|| self.role_allows(role, &question))
            {
                continue;
            }
            for party in binding.parties() {
                let _: std::ops::ControlFlow<()> = self.walk_binding(binding, party, &mut |held| {
                    if question.allowed_by(&self.names, held.rule)
                        && let Some(chain) = self.chain(&held.grant())
                    {
                        holders.entry(chain.subject.clone()).or_default().push(chain);
                    }
                    std::ops::ControlFlow::Continue(())
                });
            }
        }
        let sorted = |mut chains: Vec<Chain>| {
            chains.sort_by(|a, b| (&a.binding, &a.aggregated_from).cmp(&(&b.binding, &b.aggregated_from)));
            chains
        };
        holders
            .into_iter()
            .map(|(subject, chains)| Holder {
                subject,
                chains: sorted(chains),
            })
            .collect()
    }

    /// Every rule that holds for the asker in the namespace, with where it comes from; an empty namespace asks for
    /// the whole cluster.
    pub fn grants_for<G: AsRef<str>>(&self, user: &str, groups: &[G], namespace: &str) -> Vec<Chain> {
        let held = self.all_held(user, groups, namespace);
        held.iter().filter_map(|held| self.chain(&held.grant())).collect()
    }

    /// Every rule that holds for the asker in the namespace, without repetition.
    pub fn rules_for<G: AsRef<str>>(&self, user: &str, groups: &[G], namespace: &str) -> Vec<PolicyRule> {
        let held = self.all_held(user, groups, namespace);
        self.distinct(held.into_iter().map(|Held { rule, .. }| rule))
    }

    /// Whether this role exists.
    pub fn has_role<'a>(&self, role: impl Into<Key<'a>>) -> bool {
        self.role(self.find_id(&role.into())).is_some()
    }

    /// The rules of a role, aggregation done; nothing where it does not exist.
    pub fn role_rules<'a>(&self, role: impl Into<Key<'a>>) -> Option<Vec<PolicyRule>> {
        let id = self.find_id(&role.into());
        self.role(id)?;
        Some(self.distinct(self.parts(id).flat_map(|(_, part)| part.rules.iter())))
    }

    /// The rules in the form of the API, each once.
    fn distinct<'a>(&self, rules: impl Iterator<Item = &'a Rule>) -> Vec<PolicyRule> {
        let mut seen = HashSet::new();
        rules
            .filter(|rule| seen.insert(*rule))
            .map(|rule| rule.to_policy(&self.names))
            .collect()
    }

    /// The bindings of the asker in any namespace, with the party by which each applies.
    pub(crate) fn bindings_of<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
    ) -> Vec<(&crate::index::Binding, Party)> {
        let applies = |binding: &crate::index::Binding| self.first_party(user, groups, binding);
        self.bindings()
            .filter_map(|binding| Some((binding.as_ref(), applies(binding)?)))
            .collect()
    }
}
