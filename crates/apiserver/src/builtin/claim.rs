//! What a claim's volume is filled with. There are two fields for that, and each is made of the other.

use serde_json::{Map, Value};

const OLDER: &str = "dataSource";
const NEWER: &str = "dataSourceRef";

/// Brings the two fields of a claim in line; `old` is the claim before.
pub(super) fn fill_sources(claim: &mut Value, old: Option<&Value>) {
    let had = |name: &str| old.is_some_and(|old| source(old, name).is_some());
    let (had_older, had_newer) = (had(OLDER), had(NEWER));
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    // Sources in other namespaces are no part of Kubernetes yet.
    if is_elsewhere(spec.get(NEWER)) && !had_newer {
        spec.remove(NEWER);
    }
    let known = |spec: &Map<String, Value>| spec.get(OLDER).is_some_and(is_claim_or_snapshot);
    if !had_older && !had_newer && spec.get(NEWER).is_none_or(Value::is_null) && !known(spec) {
        spec.remove(OLDER);
    }
    let copied = |from: &str| spec.get(from).filter(|source| source.is_object()).cloned();
    match (copied(OLDER), copied(NEWER)) {
        (Some(older), None) => drop(spec.insert(NEWER.into(), older)),
        (None, Some(newer)) if !is_elsewhere(Some(&newer)) => drop(spec.insert(OLDER.into(), newer)),
        _ => {}
    }
}

fn source<'a>(claim: &'a Value, name: &str) -> Option<&'a Value> {
    claim.get("spec")?.get(name).filter(|source| source.is_object())
}

fn text<'a>(source: &'a Value, name: &str) -> &'a str {
    source.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_elsewhere(source: Option<&Value>) -> bool {
    source.is_some_and(|source| !text(source, "namespace").is_empty())
}

/// What there was before other sources came: anything else in the older field is left out without a word.
fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (text(source, "kind"), text(source, "apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    )
}
