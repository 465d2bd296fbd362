//! Pure: permissions of one cluster that name the same object. The oldest of them has it. Whoever wants exactly the same
//! shares it; whoever wants something else is told of the conflict and delivers the rest.
//!
//! Only what permissions say is compared, not what became of it: an account that comes or goes changes what an object
//! grants, and must not change whose it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    jiff::Timestamp,
};
use kube::ResourceExt as _;
use serde_json::Value;
use writ_api::rbac::{ClusterPermission, cluster_permission::RBAC_GROUP};

use super::{
    build::{Id, Item, Purpose, build},
    manifest::{parse, without_empty_lists},
    named::{account_names, hub_role_id, object_names, uses_selector},
    plan::{AddOn, HubRole, Observation, Unread},
    subjects::Account,
    validate::{MAX_NAME, Problem},
};

/// Short signs of the kinds and names that a permission names: permissions without a common one never meet.
pub fn signs(permission: &ClusterPermission) -> Box<[u64]> {
    let sign = |object: (&str, String)| {
        let mut hasher = DefaultHasher::new();
        object.hash(&mut hasher);
        hasher.finish()
    };
    let signs: BTreeSet<u64> = object_names(permission).map(sign).collect();
    signs.into_iter().collect()
}

/// Takes out the items that an older permission has with another content.
pub fn withhold(seen: &Observation<'_>, items: &mut Vec<Item>) -> Vec<Problem> {
    let mut older: Vec<&ClusterPermission> = seen
        .neighbours
        .iter()
        .filter(|other| age(other) < age(seen.permission))
        .collect();
    if older.is_empty() {
        return Vec::new();
    }
    older.sort_by_key(|other| age(other));
    let others: Vec<(&ClusterPermission, Meant)> =
        older.iter().map(|other| (*other, meant(seen, other))).collect();
    let mut own = meant(seen, seen.permission).objects;
    // What lingers while selectors change hands is its own, too.
    let other_way = Observation {
        by_agent: !seen.by_agent,
        ..*seen
    };
    own.extend(meant(&other_way, seen.permission).objects);
    let works = seen.works.values().flat_map(|work| &work.spec.workload.manifests);
    let carried: BTreeSet<Id> = works.map(|manifest| Id::of(&manifest.0)).collect();

    let mut problems = Vec::new();
    let mut withheld = BTreeSet::new();
    items.retain(|item| {
        if item.purpose != Purpose::Deliver {
            // The agent tells where grants meet: only it knows the namespaces.
            return true;
        }
        let mine = own.get(&item.id);
        let verdict = others.iter().find_map(|(other, theirs)| {
            let name = other.name_any();
            match theirs.objects.get(&item.id) {
                Some(manifest) if mine.is_some_and(|mine| grants_the_same(mine, manifest)) => Some(None),
                Some(_) => Some(Some(conflict(&item.id, &name))),
                // Neither taken nor given for something that could not be read.
                None if theirs.may_select(&item.id) && !carried.contains(&item.id) => {
                    Some(Some(unknown(&item.id, &name)))
                }
                None => None,
            }
        });
        let Some(message) = verdict.flatten() else {
            return true;
        };
        problems.push(Problem::new(&item.field, message));
        withheld.insert(item.id.clone());
        false
    });
    // A role of that name is there, but it says what the other permission wants it to say.
    items.retain(|item| {
        let Some(role) = withheld.iter().find(|role| binds(item, role)) else {
            return true;
        };
        let message = format!("{} binds {role}, which is not this permission's", item.id);
        problems.push(Problem::new(&item.field, message));
        false
    });
    problems
}

/// Whether an item binds this role, somewhere.
pub fn binds(item: &Item, role: &Id) -> bool {
    let content = item.manifest.get("spec").unwrap_or(&item.manifest);
    let named = |part: &str| content.pointer(part).and_then(Value::as_str);
    let there =
        role.namespace.is_empty() || item.purpose == Purpose::Grant || role.namespace == item.id.namespace;
    there && named("/roleRef/kind") == Some(&role.kind) && named("/roleRef/name") == Some(&role.name)
}

fn conflict(id: &Id, other: &str) -> String {
    let way_out = if id.kind.ends_with("Binding") {
        "give one of them another name"
    } else {
        "keep one of them"
    };
    format!(
        "conflict: the older ClusterPermission {other} makes {id} with another content, and only that is delivered: {way_out}"
    )
}

fn unknown(id: &Id, other: &str) -> String {
    format!(
        "the older ClusterPermission {other} may make {id} by its selector, and the hub has not been able to read Namespaces yet"
    )
}

/// Who comes first.
fn age(permission: &ClusterPermission) -> (Option<Timestamp>, String) {
    let created = permission.creation_timestamp().map(|time| time.0);
    (created, permission.name_any())
}

/// What a permission means, whatever is there of what it names.
struct Meant {
    objects: BTreeMap<Id, Value>,
    /// What it makes in namespaces that nobody knows yet.
    selecting: BTreeSet<(&'static str, String)>,
}

impl Meant {
    fn may_select(&self, id: &Id) -> bool {
        let mut all = self.selecting.iter();
        all.any(|(kind, name)| *kind == id.kind && *name == id.name)
    }
}

fn meant(seen: &Observation<'_>, permission: &ClusterPermission) -> Meant {
    let mut meant = Meant {
        objects: BTreeMap::new(),
        selecting: BTreeSet::new(),
    };
    if permission.name_any().len() > MAX_NAME {
        return meant;
    }
    let works = BTreeMap::new();
    let names = account_names(permission);
    let accounts = names.map(|name| (name.to_owned(), Account::Own)).collect();
    // What follows the hub is never the same as what is written down, even if the words happen to be.
    let as_on_hub = HubRole {
        rules: vec![PolicyRule {
            verbs: vec!["as on the hub".into()],
            ..PolicyRule::default()
        }],
        built_in: false,
    };
    let references = permission.spec.role_refs.iter();
    let hub_roles = references.map(|r| (hub_role_id(r), as_on_hub.clone())).collect();
    let build = |by_agent: bool| {
        build(&Observation {
            permission,
            works: &works,
            accounts: &accounts,
            add_on: AddOn::Namespace("of the add-on"),
            hub_roles: &hub_roles,
            by_agent,
            unread: Unread::default(),
            neighbours: &[],
            ..*seen
        })
        .items
    };
    let delivered = build(seen.by_agent).into_iter();
    let delivered = delivered.filter(|item| item.purpose == Purpose::Deliver);
    meant.objects = delivered.map(|item| (item.id, item.manifest)).collect();
    if !seen.by_agent && seen.hub_namespaces.is_none() && uses_selector(permission) {
        let grants = build(true).into_iter();
        let grants = grants.filter(|item| item.purpose == Purpose::Grant);
        meant
            .selecting
            .extend(grants.filter_map(|grant| made_by(&grant.manifest)));
    }
    meant
}

/// The kind and the name of what a grant makes.
pub fn made_by(grant: &Value) -> Option<(&'static str, String)> {
    let spec = grant.get("spec")?;
    let kind = if spec.get("rules").is_some() {
        "Role"
    } else {
        "RoleBinding"
    };
    Some((kind, spec.get("name")?.as_str()?.to_owned()))
}

/// Whether two manifests are of one object and grant the same, however the rest of them is written: upstream's carry no
/// annotations and times that are null.
pub fn grants_the_same(one: &Value, other: &Value) -> bool {
    let content = |manifest: &Value| {
        // A grant says what it makes in its spec, a role or binding at the top.
        let mut spec = manifest.get("spec").cloned();
        let rules = spec.as_mut().and_then(Value::as_object_mut);
        let rules = rules.map_or_else(|| manifest.get("rules").cloned(), |spec| spec.remove("rules"));
        let rules: Option<Vec<PolicyRule>> = parse(rules.as_ref());
        let rules = rules.map(|rules| without_empty_lists(&rules));
        let role: Option<RoleRef> = parse(manifest.get("roleRef"));
        let subjects: Option<Vec<Subject>> = parse(manifest.get("subjects"));
        let subjects = subjects.into_iter().flatten().map(|mut subject| {
            // The API server fills it in.
            let group = subject.api_group.filter(|group| !group.is_empty());
            subject.api_group =
                group.or_else(|| (subject.kind != "ServiceAccount").then(|| RBAC_GROUP.into()));
            subject
        });
        (spec, rules, role, subjects.collect::<Vec<_>>())
    };
    Id::of(one) == Id::of(other) && content(one) == content(other)
}
