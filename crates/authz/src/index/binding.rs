//! A compiled binding.

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};

use super::Id;
use crate::attributes::service_account_user;
use crate::names::{Name, Names};
use crate::report::SubjectKind;

/// What a subject is matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    User,
    Group,
}

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Party {
    pub(crate) class: Class,
    pub(crate) name: Name,
}

#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) id: Id,
    /// The role referred to; `None` if the reference can never resolve.
    pub(crate) role: Option<Id>,
    /// Kind as written, and the user or group name that it stands for. Subjects that match no user are left out.
    pub(crate) subjects: Box<[(SubjectKind, Name)]>,
}

impl Binding {
    pub(super) fn compile(
        names: &mut Names,
        id: Id,
        namespace: &str,
        role_ref: &RoleRef,
        subjects: Option<&[Subject]>,
    ) -> Self {
        let role = match role_ref.kind.as_str() {
            "ClusterRole" => Some(Id {
                scope: Name::NONE,
                name: names.take(&role_ref.name),
            }),
            // A Role is looked up in the namespace of the binding; a ClusterRoleBinding has none.
            "Role" if !namespace.is_empty() => Some(Id {
                scope: names.take(namespace),
                name: names.take(&role_ref.name),
            }),
            _ => None,
        };
        let compile_subject = |subject: &Subject| match subject.kind.as_str() {
            "User" => Some((SubjectKind::User, names.take(&subject.name))),
            "Group" => Some((SubjectKind::Group, names.take(&subject.name))),
            "ServiceAccount" => {
                let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
                let namespace = own.unwrap_or(namespace);
                let user = service_account_user(namespace, &subject.name);
                (!namespace.is_empty()).then(|| (SubjectKind::ServiceAccount, names.take(&user)))
            }
            _ => None,
        };
        Self {
            id,
            role,
            subjects: subjects
                .into_iter()
                .flatten()
                .filter_map(compile_subject)
                .collect(),
        }
    }

    pub(super) fn release(&self, names: &mut Names) {
        for id in std::iter::once(self.id).chain(self.role) {
            names.release(id.scope);
            names.release(id.name);
        }
        for &(_, name) in &self.subjects {
            names.release(name);
        }
    }

    /// The distinct users and groups bound.
    pub(crate) fn parties(&self) -> impl Iterator<Item = Party> {
        let mut parties: Vec<_> = self.all_parties().collect();
        parties.sort_unstable();
        parties.dedup();
        parties.into_iter()
    }

    /// The user or group of each subject.
    pub(crate) fn all_parties(&self) -> impl Iterator<Item = Party> {
        self.subjects.iter().map(|&subject| party(subject))
    }

    /// The first subject that stands for the party.
    pub(crate) fn subject_of(&self, wanted: Party) -> Option<(SubjectKind, Name)> {
        self.subjects
            .iter()
            .copied()
            .find(|&subject| party(subject) == wanted)
    }
}

fn party((kind, name): (SubjectKind, Name)) -> Party {
    let class = match kind {
        SubjectKind::Group => Class::Group,
        SubjectKind::User | SubjectKind::ServiceAccount => Class::User,
    };
    Party { class, name }
}
