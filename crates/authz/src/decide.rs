//! `allows`: the question that every request asks, and the walk over rules that the other questions share.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::attributes::{Attributes, SUPERUSERS, halves};
use crate::index::{Binding, Class, Id, Index, Party, Role};
use crate::names::Name;
use crate::object::Kind;
use crate::report::{Chain, ObjectName, Subject, SubjectKind};
use crate::rule::{Question, Rule};

/// The answer of [`Index::allows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The user is in `system:masters`: RBAC is not consulted.
    Superuser,
    /// A rule allows it; [`Index::chain`] says which.
    Allow(Grant),
    /// No rule allows it.
    Deny,
}

impl Decision {
    /// Whether the request may go on.
    pub fn allowed(&self) -> bool {
        *self != Self::Deny
    }
}

/// The rule that allowed a request: a few numbers, good until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    binding: Id,
    party: Party,
    /// The role that has the rule: the one bound, or a source of it.
    owner: Id,
    rule: usize,
}

/// One rule that an asker holds.
pub(crate) struct Held<'i> {
    pub(crate) binding: &'i Binding,
    pub(crate) party: Party,
    pub(crate) owner: Id,
    pub(crate) position: usize,
    pub(crate) rule: &'i Rule,
}

impl Held<'_> {
    pub(crate) fn grant(&self) -> Grant {
        Grant {
            binding: self.binding.id,
            party: self.party,
            owner: self.owner,
            rule: self.position,
        }
    }
}

impl Index {
    /// May this user, being in these groups, do that? Implicit groups must be among `groups`;
    /// [`Identity`](crate::Identity) adds them.
    pub fn allows<G: AsRef<str>>(&self, user: &str, groups: &[G], attributes: &Attributes<'_>) -> Decision {
        if is_superuser(groups) {
            return Decision::Superuser;
        }
        let question = Question::new(&self.names, attributes);
        let found = self.walk(user, groups, attributes.namespace(), |held| {
            if question.allowed_by(&self.names, held.rule) {
                ControlFlow::Break(held.grant())
            } else {
                ControlFlow::Continue(())
            }
        });
        found.map_or(Decision::Deny, |grant| {
            Decision::Allow(self.by_first_subject(user, groups, grant))
        })
    }

    /// The chain of a grant; nothing where the index has changed since and the rule is gone.
    pub fn chain(&self, grant: &Grant) -> Option<Chain> {
        let binding = self.binding(grant.binding)?;
        let bound = binding.role?;
        let (kind, name) = binding.subject_of(grant.party)?;
        let owner = self.role(grant.owner)?;
        let rule = owner.rules.get(grant.rule)?;
        let source = if grant.owner == bound {
            self.source_of(bound, rule)
        } else {
            Some(grant.owner)
        };
        Some(Chain {
            subject: self.subject(kind, name),
            binding: self.binding_name(binding.id),
            role: self.role_name(bound),
            aggregated_from: source.map(|source| self.role_name(source)),
            rule: rule.to_policy(&self.names),
        })
    }

    /// Visits every rule that holds for the asker in the namespace (in the whole cluster, where it is empty). A
    /// rule may come twice where a binding names the asker twice.
    pub(crate) fn walk<'i, B, G: AsRef<str>>(
        &'i self,
        user: &str,
        groups: &[G],
        namespace: &str,
        mut visit: impl FnMut(Held<'i>) -> ControlFlow<B>,
    ) -> Option<B> {
        let local = if namespace.is_empty() {
            Name::NONE
        } else {
            self.names.find(namespace)
        };
        let scopes = [Some(Name::NONE), Some(local).filter(|&local| local != Name::NONE)];
        for party in self.parties(user, groups) {
            for scope in scopes.into_iter().flatten() {
                for binding in self.seated(party, scope) {
                    if let ControlFlow::Break(found) = self.walk_binding(binding, party, &mut visit) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Visits every rule of one binding.
    pub(crate) fn walk_binding<'i, B>(
        &'i self,
        binding: &'i Binding,
        party: Party,
        visit: &mut impl FnMut(Held<'i>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(role) = binding.role else {
            return ControlFlow::Continue(());
        };
        for (owner, part) in self.parts(role) {
            for (position, rule) in part.rules.iter().enumerate() {
                visit(Held {
                    binding,
                    party,
                    owner,
                    position,
                    rule,
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Every rule that holds for the asker in the namespace, each binding's once.
    pub(crate) fn all_held<G: AsRef<str>>(&self, user: &str, groups: &[G], namespace: &str) -> Vec<Held<'_>> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        self.walk(user, groups, namespace, |held| {
            if seen.insert((held.binding.id, held.owner, held.position)) {
                let party = self.first_party(user, groups, held.binding).unwrap_or(held.party);
                all.push(Held { party, ..held });
            }
            ControlFlow::<()>::Continue(())
        });
        all
    }

    /// If a binding names the user more than once, its first such subject is reported.
    fn by_first_subject<G: AsRef<str>>(&self, user: &str, groups: &[G], grant: Grant) -> Grant {
        let binding = self.binding(grant.binding);
        let first = binding.and_then(|binding| self.first_party(user, groups, binding));
        Grant {
            party: first.unwrap_or(grant.party),
            ..grant
        }
    }

    pub(crate) fn first_party<G: AsRef<str>>(
        &self,
        user: &str,
        groups: &[G],
        binding: &Binding,
    ) -> Option<Party> {
        binding.all_parties().find(|party| {
            let text = self.names.text(party.name);
            match party.class {
                Class::User => text == user,
                Class::Group => groups.iter().any(|group| group.as_ref() == text),
            }
        })
    }

    /// The asker's user and groups, as far as any binding names them.
    pub(crate) fn parties<'a, G: AsRef<str>>(
        &'a self,
        user: &'a str,
        groups: &'a [G],
    ) -> impl Iterator<Item = Party> + 'a {
        let user = std::iter::once((Class::User, user));
        let groups = groups.iter().map(|group| (Class::Group, group.as_ref()));
        user.chain(groups)
            .map(|(class, text)| Party {
                class,
                name: self.names.find(text),
            })
            .filter(|party| party.name != Name::NONE)
    }

    /// Whether any rule of the role allows what is asked.
    pub(crate) fn role_allows(&self, role: Id, question: &Question<'_>) -> bool {
        let allows = |part: &Role| {
            part.rules
                .iter()
                .any(|rule| question.allowed_by(&self.names, rule))
        };
        self.parts(role).any(|(_, part)| allows(part))
    }

    pub(crate) fn subject(&self, kind: SubjectKind, name: Name) -> Subject {
        let text = self.names.text(name);
        let (namespace, name) = match kind {
            SubjectKind::User | SubjectKind::Group => (None, text),
            SubjectKind::ServiceAccount => match halves(text) {
                Some((namespace, name)) => (Some(namespace.to_owned()), name),
                None => (None, text),
            },
        };
        Subject {
            kind,
            namespace,
            name: name.to_owned(),
        }
    }

    pub(crate) fn role_name(&self, id: Id) -> ObjectName {
        self.object_name(id, Kind::Role, Kind::ClusterRole)
    }

    pub(crate) fn binding_name(&self, id: Id) -> ObjectName {
        self.object_name(id, Kind::RoleBinding, Kind::ClusterRoleBinding)
    }

    fn object_name(&self, id: Id, namespaced: Kind, cluster: Kind) -> ObjectName {
        let in_cluster = id.scope == Name::NONE;
        ObjectName {
            kind: if in_cluster { cluster } else { namespaced },
            namespace: (!in_cluster).then(|| self.names.text(id.scope).to_owned()),
            name: self.names.text(id.name).to_owned(),
        }
    }
}

/// Whether the API server lets the asker do everything without asking RBAC.
pub(crate) fn is_superuser<G: AsRef<str>>(groups: &[G]) -> bool {
    groups.iter().any(|group| group.as_ref() == SUPERUSERS)
}
