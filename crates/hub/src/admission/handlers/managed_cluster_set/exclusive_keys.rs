//! The ConfigMap `clusterset-validation`: which set names are allowed with which exclusive key.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::is_subdomain;

/// The name of the ConfigMap.
pub const CONFIG_MAP: &str = "clusterset-validation";
/// Its namespace.
pub const NAMESPACE: &str = "open-cluster-management-hub";
/// The entry for keys with a prefix, which cannot be keys of a ConfigMap: one `key: names` per line.
const PREFIXED: &str = "_pairs";

/// The set names that are allowed with each exclusive key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveKeys(BTreeMap<String, BTreeSet<String>>);

impl ExclusiveKeys {
    /// Reads the data of the ConfigMap. One bad entry invalidates all of it: guessing could allow too much.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut pairs = BTreeMap::new();
        for (key, names) in data {
            if key != PREFIXED {
                add(&mut pairs, key, names)?;
                continue;
            }
            for line in names.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let Some((key, names)) = line.split_once(':') else {
                    return Err(format!(
                        "{PREFIXED}: the line {line:?} is not \"key: name, name\""
                    ));
                };
                add(&mut pairs, key.trim(), names)?;
            }
        }
        Ok(Self(pairs))
    }

    /// Whether a set of that name may have that key: neither is listed, or they are listed together.
    pub fn allow(&self, key: Option<&str>, name: &str) -> bool {
        let listed_name = self.0.values().any(|names| names.contains(name));
        let of_key = key.and_then(|key| self.0.get(key));
        match of_key {
            Some(names) => names.contains(name),
            None => !listed_name,
        }
    }
}

fn add(pairs: &mut BTreeMap<String, BTreeSet<String>>, key: &str, names: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("a key is empty".into());
    }
    for name in names.split(',').map(str::trim) {
        if !is_subdomain(name) {
            return Err(format!("{key}: {name:?} is not the name of a set"));
        }
        pairs.entry(key.to_owned()).or_default().insert(name.to_owned());
    }
    Ok(())
}
