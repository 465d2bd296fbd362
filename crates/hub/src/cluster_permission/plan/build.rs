//! From the entries of a spec to the objects that they want. Each entry is built on its own: what cannot be built is a problem,
//! and the rest is delivered.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::ResourceExt as _;
use writ_api::writ::{
    ADOPT_ANNOTATION, BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE,
};

use super::{
    manifest,
    namespaces::Namespaces,
    not_synced, role_stubs,
    subjects::{self, Resolved},
    unbuildable_roles,
};
use crate::cluster_permission::{
    model::{
        Body, Built, Content, GRANT_KIND, Grant, Item, ObjectId, Observation, Problem, SelectedBy,
        TypedManifest, UnbuildableRole, object_id,
    },
    naming::GrantNames,
    spec::{Entry, NamedSubject, Says, references::is_built_in},
};

/// Builds everything that the spec wants, with selectors evaluated in this mode.
pub fn build(seen: &Observation, entries: &[Entry<'_>], by: SelectedBy) -> Built {
    let permission = &seen.permission;
    let selecting = entries
        .iter()
        .filter_map(|entry| Some((entry.kind, entry.name, entry.selector?)));
    let carried_grants = || seen.manifests().filter_map(manifest::read_named_grant).collect();
    let mut builder = Builder {
        seen,
        entries,
        by,
        adopt: permission
            .annotations()
            .get(ADOPT_ANNOTATION)
            .is_some_and(|value| value == "true"),
        validate: permission.spec.validate == Some(true),
        grants: GrantNames::assign(permission, selecting, carried_grants),
        claimed: BTreeMap::new(),
        unbuildable: Vec::new(),
        out: Built::default(),
    };
    for entry in entries {
        builder.build_entry(entry);
    }
    let Builder {
        mut out,
        claimed,
        unbuildable,
        validate,
        ..
    } = builder;
    let withheld = unbuildable_roles::withhold(&mut out.items, &unbuildable);
    out.problems.extend(withheld);
    if validate {
        role_stubs::add(seen, entries, by, &claimed, &mut out);
    }
    out
}

struct Builder<'a> {
    seen: &'a Observation,
    entries: &'a [Entry<'a>],
    by: SelectedBy,
    adopt: bool,
    validate: bool,
    grants: GrantNames,
    /// The entry that makes an object.
    claimed: BTreeMap<ObjectId, String>,
    unbuildable: Vec<UnbuildableRole>,
    out: Built,
}

/// What the objects of an entry are to say, before it is known which these are.
enum Wanted<'a> {
    Content(Content),
    /// A binding, some of whose subjects are accounts that have not been read.
    PartlyRead {
        role: &'a RoleRef,
        known: Vec<Subject>,
        accounts: Vec<String>,
    },
}

impl<'a> Builder<'a> {
    fn build_entry(&mut self, entry: &Entry<'a>) {
        self.out.problems.extend(entry.problems.iter().cloned());
        self.unbuildable.extend(unbuildable_roles::of_entry(entry));
        let wanted = match &entry.says {
            Says::Rules(rules) => Some(Wanted::Content(Content::Rules(rules.to_vec()))),
            Says::HubRole if !entry.problems.is_empty() => None,
            Says::HubRole => self.hub_role(entry),
            Says::Binding { role, subjects, .. } => Some(self.binding(entry, role, subjects)),
        };
        let Some(wanted) = wanted.filter(|_| entry.problems.is_empty()) else {
            return;
        };
        let seen = self.seen;
        let namespaces = match Namespaces::of(entry, seen, self.by) {
            Namespaces::ByAgent(labels) => return self.grant(entry, labels, &wanted),
            Namespaces::Named(namespace) => return self.object(entry, namespace, &wanted),
            Namespaces::ByHub(namespaces) => namespaces.into_iter().map(str::to_owned).collect(),
            Namespaces::NotRead => {
                self.out.not_read.insert("Namespaces");
                not_synced::namespaces_before(seen, entry.kind, entry.name)
            }
        };
        let selected = (entry.field.clone(), namespaces.len());
        self.out.selected_by_hub.push(selected);
        for namespace in namespaces {
            self.object(entry, &namespace, &wanted);
        }
    }

    fn binding<'e>(
        &mut self,
        entry: &Entry<'_>,
        role: &'e RoleRef,
        subjects: &[NamedSubject<'_>],
    ) -> Wanted<'e> {
        let (mut known, mut accounts) = (Vec::new(), Vec::new());
        for NamedSubject { subject, problems } in subjects {
            self.out
                .subjects
                .push(format!("{} {}", subject.kind, subject.name));
            if !problems.is_empty() {
                continue;
            }
            match subjects::resolve(self.seen, subject) {
                Resolved::Known(subject) => known.push(subject),
                Resolved::NotRead(account) => accounts.push(account),
                Resolved::Missing(why) if self.out.missing.contains(&why) => {}
                Resolved::Missing(why) => self.out.missing.push(why),
            }
        }
        self.out.problems.extend(entry.subject_problems());
        if accounts.is_empty() {
            return Wanted::Content(Content::Binding(role.clone(), known));
        }
        self.out
            .not_read
            .insert("ManagedServiceAccounts and ManagedClusterAddOns");
        Wanted::PartlyRead {
            role,
            known,
            accounts,
        }
    }

    fn hub_role(&mut self, entry: &Entry<'_>) -> Option<Wanted<'static>> {
        let id = entry.id();
        let role = self.seen.hub_roles.get(&id);
        if is_built_in(entry.kind, entry.namespace, entry.name) || role.is_some_and(|role| role.built_in) {
            // Not an unbuildable role: a binding means the one that the cluster has, and is delivered.
            let message = format!(
                "{id} is built into Kubernetes: every cluster has its own, which is never overwritten, and a binding finds it by its name; remove the reference"
            );
            self.problem(&entry.field, message);
            return None;
        }
        let rules = match role {
            Some(role) => role.rules.clone(),
            None if self.seen.not_synced.roles => {
                self.out.not_read.insert("Roles and ClusterRoles");
                not_synced::rules_before(self.seen, &id)?
            }
            None => {
                let message = format!("the hub has no {id}: make it, or remove the reference");
                self.problem(&entry.field, message);
                self.mark_unbuildable(entry, id);
                return None;
            }
        };
        Some(Wanted::Content(Content::Rules(rules)))
    }

    /// A namespace grant, which the agent expands where the namespaces are.
    fn grant(&mut self, entry: &Entry<'_>, selector: &LabelSelector, wanted: &Wanted<'_>) {
        let Entry {
            field, kind, name, ..
        } = entry;
        let what = format!("{kind} {name}");
        if is_built_in(kind, "", name) {
            self.refuse_built_in(entry, "", &what);
            return;
        }
        if name.starts_with('.') {
            // The schema of a NamespaceGrant keeps `.` and `..` out by that, so the agent could not store it.
            let message = format!(
                "is {name:?}; where a namespaceSelector selects, a name cannot begin with a dot: choose another name"
            );
            self.problem(&format!("{field}.name"), message);
            return;
        }
        // Every entry with a selector has one.
        let Some(grant) = self.grants.of(kind, name, selector) else {
            return;
        };
        let id = object_id(GRANT_KIND, "", grant);
        if !self.claim(entry, &id, &format!("a {what} for the same selector")) {
            return;
        }
        let Some(content) = self.content(&id, wanted) else {
            return;
        };
        let grant = Grant {
            selector: selector.clone(),
            name: (*name).to_owned(),
            adopt: self.adopt,
            validate: self.validate && matches!(&content, Content::Binding(role, _) if role.kind == "Role"),
            content,
        };
        self.add(entry, id, Body::Grant(grant));
    }

    fn object(&mut self, entry: &Entry<'_>, namespace: &str, wanted: &Wanted<'_>) {
        let id = entry.id_in(namespace);
        let what = id.to_string();
        if is_built_in(entry.kind, namespace, entry.name) {
            self.refuse_built_in(entry, namespace, &what);
            return;
        }
        if self.claim(entry, &id, &what)
            && let Some(content) = self.content(&id, wanted)
        {
            self.add(entry, id, Body::Object(content));
        }
    }

    /// The content of this object; `None` if it grants nothing.
    fn content(&self, id: &ObjectId, wanted: &Wanted<'_>) -> Option<Content> {
        let content = match wanted {
            Wanted::Content(content) => content.clone(),
            Wanted::PartlyRead {
                role,
                known,
                accounts,
            } => {
                let subjects = not_synced::subjects_before(self.seen, id, known, accounts);
                Content::Binding((*role).clone(), subjects)
            }
        };
        Some(content).filter(Content::grants)
    }

    fn add(&mut self, entry: &Entry<'_>, id: ObjectId, body: Body) {
        let mut annotations = BTreeMap::new();
        if !self.adopt {
            annotations.insert(ON_CONFLICT_ANNOTATION.to_owned(), ON_CONFLICT_REFUSE.to_owned());
            if let Says::Binding { role, .. } = &entry.says
                && unbuildable_roles::is_own(self.seen, self.entries, role, &id)
            {
                annotations.insert(BOUND_ROLE_ANNOTATION.to_owned(), BOUND_ROLE_OWN.to_owned());
            }
        }
        self.out.items.push(Item {
            id,
            field: entry.field.clone(),
            binds_own_role: entry.binds_own_role(),
            manifest: TypedManifest { annotations, body },
        });
    }

    /// Whether the entry is the first one to make this object. A binding claims its name even while its subjects are missing;
    /// otherwise it would take the name over from another entry once they appear.
    fn claim(&mut self, entry: &Entry<'_>, id: &ObjectId, what: &str) -> bool {
        let field = &entry.field;
        let Some(first) = self.claimed.get(id) else {
            self.claimed.insert(id.clone(), field.clone());
            return true;
        };
        let way_out = if entry.kind.ends_with("Binding") {
            "give each its own name"
        } else {
            "keep one of them"
        };
        let message = format!("{first} and {field} both make {what}; only {first} is delivered: {way_out}");
        self.problem(&format!("{field}.name"), message);
        false
    }

    fn refuse_built_in(&mut self, entry: &Entry<'_>, namespace: &str, what: &str) {
        let message = format!(
            "{what} is built into Kubernetes: it is never overwritten on a managed cluster; choose another name"
        );
        self.problem(&entry.field, message);
        self.mark_unbuildable(entry, entry.id_in(namespace));
    }

    fn mark_unbuildable(&mut self, entry: &Entry<'_>, role: ObjectId) {
        let field = entry.field.clone();
        self.unbuildable.push(UnbuildableRole { role, field });
    }

    fn problem(&mut self, field: &str, message: String) {
        self.out.problems.push(Problem::new(field, message));
    }
}
