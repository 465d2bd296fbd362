//! The order in which objects are applied and pruned. Pure.

use std::collections::{BTreeMap, HashMap};

use writ_controller::ObjectId;

use crate::reconciler::object::Declared;

/// The rank of a kind. Objects that others need have a low rank; admission and aggregated APIs, which can break the
/// requests of others, have the highest.
pub fn rank(id: &ObjectId) -> u8 {
    match (&*id.group, &*id.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 0,
        ("", "Namespace") => 1,
        (
            "",
            "ConfigMap"
            | "LimitRange"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "ResourceQuota"
            | "Secret"
            | "Service"
            | "ServiceAccount",
        )
        | ("rbac.authorization.k8s.io" | "scheduling.k8s.io" | "storage.k8s.io", _) => 2,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 4,
        _ => 3,
    }
}

/// Groups objects into waves, by rank and by `depends-on`. The objects of a wave are applied at once, after the wave before.
///
/// Returns the indices of each wave, and those of objects whose dependencies form a cycle.
pub fn waves(objects: &[&Declared]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let at: HashMap<&ObjectId, usize> = objects.iter().enumerate().map(|(i, o)| (&o.id, i)).collect();
    let mut level: Vec<usize> = objects.iter().map(|o| usize::from(rank(&o.id))).collect();
    // Each object is visited once, when its last dependency has been placed. A long chain, or a cycle of as many objects
    // as a repository can hold, takes no more than linear time.
    let mut waits: Vec<usize> = vec![0; objects.len()];
    let mut after: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, object) in objects.iter().enumerate() {
        for &before in object.depends_on.iter().filter_map(|id| at.get(id)) {
            after.entry(before).or_default().push(index);
            if let Some(waits) = waits.get_mut(index) {
                *waits += 1;
            }
        }
    }
    let without_dependencies = |waits: &[usize]| -> Vec<usize> {
        let all = waits.iter().enumerate();
        all.filter(|(_, waits)| **waits == 0).map(|(i, _)| i).collect()
    };
    let mut ready = without_dependencies(&waits);
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some(index) = ready.pop() {
        let own = level.get(index).copied().unwrap_or_default();
        groups.entry(own).or_default().push(index);
        for &later in after.get(&index).into_iter().flatten() {
            if let (Some(level), Some(waits)) = (level.get_mut(later), waits.get_mut(later)) {
                *level = (*level).max(own + 1);
                *waits -= 1;
                if *waits == 0 {
                    ready.push(later);
                }
            }
        }
    }
    let stuck = waits.iter().enumerate().filter(|(_, waits)| **waits > 0);
    (groups.into_values().collect(), stuck.map(|(i, _)| i).collect())
}
