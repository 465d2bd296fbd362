//! Pure: the names of a permission's namespace grants. A grant that is there keeps its name while its selector is edited:
//! the agent then changes it in place, and where both selectors select, nobody loses anything. Under another name it would
//! be one grant that goes and another that comes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use serde_json::Value;
use writ_api::{rbac::ClusterPermission, work::ManifestWork};

use super::{
    build::Id,
    manifest::{grant_suffix, parse},
    names,
    neighbours::made_by,
    validate::filled,
};

/// What a grant makes, and where: its kind, its name, and the text of its selector.
type Entry = (&'static str, String, String);

/// The name of each grant that a permission wants.
#[derive(Debug, Default)]
pub struct GrantNames(BTreeMap<Entry, String>);

impl GrantNames {
    /// The name of the grant that makes this where these labels are.
    pub fn of(&self, kind: &'static str, name: &str, labels: &LabelSelector) -> Option<&String> {
        self.0.get(&(kind, name.to_owned(), text(labels)))
    }

    /// Names for what the spec wants, after what the works carry.
    pub fn assign(permission: &ClusterPermission, works: &BTreeMap<usize, &ManifestWork>) -> Self {
        let own = permission.name_any();
        let roles = permission.spec.roles.iter();
        let roles = roles.filter_map(|role| Some(("Role", own.clone(), role.namespace_selector.as_ref()?)));
        let bindings = permission.spec.role_bindings.iter().filter_map(|binding| {
            let name = filled(binding.name.as_deref()).unwrap_or(&own);
            Some((
                "RoleBinding",
                name.to_owned(),
                binding.namespace_selector.as_ref()?,
            ))
        });
        let wanted: Vec<(&str, String, &LabelSelector)> = roles.chain(bindings).collect();
        if wanted.is_empty() {
            return Self::default();
        }
        let manifests = works.values().flat_map(|work| &work.spec.workload.manifests);
        let mut carried: BTreeMap<Entry, BTreeSet<String>> = BTreeMap::new();
        let mut used = BTreeSet::new();
        let base = names::work(permission, 1);
        for (grant, entry) in manifests.filter_map(|manifest| carried_entry(&manifest.0)) {
            // Somebody may have edited the work: a name that is not of our making may be another's, or none at all.
            if !is_name(&base, &grant) {
                continue;
            }
            used.insert(grant.clone());
            carried.entry(entry).or_default().insert(grant);
        }
        let wanted: Vec<(Entry, &LabelSelector)> = wanted
            .into_iter()
            .map(|(kind, name, labels)| ((kind, name, text(labels)), labels))
            .collect();
        let mut names = Self::default();
        // First the ones that stay as they are, so that no other entry gets their name.
        for (entry, _) in &wanted {
            let there = carried.get_mut(entry).and_then(BTreeSet::pop_first);
            names.0.extend(there.map(|there| (entry.clone(), there)));
        }
        let mut edited: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
        for ((kind, name, _), grants) in carried {
            edited.entry((kind, name)).or_default().extend(grants);
        }
        for (entry, labels) in wanted {
            if names.0.contains_key(&entry) {
                continue;
            }
            let (kind, name, _) = &entry;
            let kept = edited.get_mut(&(*kind, name.clone())).and_then(Vec::pop);
            let grant = kept.or_else(|| {
                // Another entry may have kept the name that this one would get.
                (0..=u32::MAX)
                    .map(|salt| format!("{base}-{}", grant_suffix(kind, name, labels, salt)))
                    .find(|fresh| !used.contains(fresh))
            });
            used.extend(grant.clone());
            names.0.extend(grant.map(|grant| (entry, grant)));
        }
        names
    }
}

/// Whether a grant of the permission whose first work has this name can have that name.
fn is_name(base: &str, grant: &str) -> bool {
    let suffix = grant.strip_prefix(base).and_then(|rest| rest.strip_prefix('-'));
    suffix
        .is_some_and(|digits| digits.len() == 8 && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

fn carried_entry(manifest: &Value) -> Option<(String, Entry)> {
    let id = Id::of(manifest);
    if id.kind != "NamespaceGrant" {
        return None;
    }
    let (kind, name) = made_by(manifest)?;
    let labels: LabelSelector = parse(manifest.pointer("/spec/namespaceSelector"))?;
    Some((id.name, (kind, name, text(&labels))))
}

fn text(labels: &LabelSelector) -> String {
    serde_json::json!(labels).to_string()
}
