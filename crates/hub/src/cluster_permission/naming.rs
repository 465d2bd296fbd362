//! The names of a permission's works and of its namespace grants.
//!
//! A grant keeps its name while its selector is edited: the agent then changes it in place, and namespaces that both
//! selectors select keep what they have. Under another name one grant would be deleted and another created.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};
use writ_api::rbac::ClusterPermission;

use super::model::Grant;

/// A permission has at most this many works.
pub const MAX_PARTS: usize = 64;
/// The longest name of a permission: its work's name has six characters more, and a work's name at most 188.
pub const MAX_NAME: usize = 182;

/// The name of a work: `<permission>-<five characters of its uid>` as OCM has it, and `-<n>` for further ones.
pub fn work(permission: &ClusterPermission, part: usize) -> String {
    let name = permission.name_any();
    let uid: String = permission.uid().unwrap_or_default().chars().take(5).collect();
    if part <= 1 {
        return format!("{name}-{uid}");
    }
    // A work's name has at most 188 characters; names are ASCII.
    let short: String = name.chars().take(179).collect();
    format!("{short}-{uid}-{part}")
}

/// The permissions that a work of this name can belong to, for works without an owner reference.
pub fn permissions_of_work(work: &str) -> impl Iterator<Item = &str> {
    let once = work.rsplit_once('-').map(|(name, _)| name);
    let twice = once.and_then(|name| name.rsplit_once('-')).map(|(name, _)| name);
    once.into_iter().chain(twice)
}

/// What a grant makes, and where: its kind, its name, and the text of its selector.
type Entry = (String, String, String);

/// The name of each namespace grant that a permission wants.
#[derive(Debug, Default)]
pub struct GrantNames(BTreeMap<Entry, String>);

impl GrantNames {
    /// The name of the grant of this kind and name for this selector.
    pub fn of(&self, kind: &str, name: &str, selector: &LabelSelector) -> Option<&String> {
        self.0.get(&entry(kind, name, selector))
    }

    /// Assigns names to the wanted grants (kind, name and selector of each), given the grants that the works carry.
    pub fn assign<'a>(
        permission: &ClusterPermission,
        wanted: impl Iterator<Item = (&'a str, &'a str, &'a LabelSelector)>,
        carried_grants: impl FnOnce() -> Vec<(String, Grant)>,
    ) -> Self {
        let wanted: Vec<(Entry, _)> = wanted
            .map(|parts @ (kind, name, selector)| (entry(kind, name, selector), parts))
            .collect();
        let mut names = Self::default();
        if wanted.is_empty() {
            return names;
        }
        let base = work(permission, 1);
        let mut carried: BTreeMap<Entry, BTreeSet<String>> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (name, grant) in carried_grants() {
            // A name that was edited into the work may be another permission's, or not valid at all.
            if is_own_grant(&base, &name) {
                used.insert(name.clone());
                let entry = entry(grant.kind(), &grant.name, &grant.selector);
                carried.entry(entry).or_default().insert(name);
            }
        }
        // Unchanged entries first, so that no other entry takes over their names.
        for (entry, _) in &wanted {
            let kept = carried.get_mut(entry).and_then(BTreeSet::pop_first);
            names.0.extend(kept.map(|kept| (entry.clone(), kept)));
        }
        let mut edited: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for ((kind, name, _), grants) in carried {
            edited.entry((kind, name)).or_default().extend(grants);
        }
        for (entry, (kind, name, selector)) in wanted {
            if names.0.contains_key(&entry) {
                continue;
            }
            let kept = edited
                .get_mut(&(kind.to_owned(), name.to_owned()))
                .and_then(Vec::pop);
            let grant = kept.or_else(|| {
                // The name of this selector may be in use by a grant whose selector was edited.
                (0..=u32::MAX)
                    .map(|salt| format!("{base}-{}", grant_suffix(kind, name, selector, salt)))
                    .find(|fresh| !used.contains(fresh))
            });
            used.extend(grant.clone());
            names.0.extend(grant.map(|grant| (entry, grant)));
        }
        names
    }
}

fn entry(kind: &str, name: &str, selector: &LabelSelector) -> Entry {
    (kind.to_owned(), name.to_owned(), text(selector))
}

/// Whether a grant of the permission whose first work has this name can have that name.
fn is_own_grant(base: &str, grant: &str) -> bool {
    let suffix = grant.strip_prefix(base).and_then(|rest| rest.strip_prefix('-'));
    suffix
        .is_some_and(|digits| digits.len() == 8 && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

/// Eight hexadecimal digits of what a grant selects and makes, not of its place in the list, so that entries can be inserted
/// and removed without renaming others.
fn grant_suffix(kind: &str, name: &str, selector: &LabelSelector, salt: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(text(selector));
    hash.update(format!("\n{kind}\n{name}"));
    if salt > 0 {
        hash.update(format!("\n{salt}"));
    }
    let mut digits = String::new();
    for byte in hash.finalize().iter().take(4) {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn text(selector: &LabelSelector) -> String {
    serde_json::json!(selector).to_string()
}
