//! Which permissions a change of an object concerns, found by the index of the cache of permissions.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use writ_api::{rbac::ClusterPermission, work::ManifestWork};
use writ_controller::{
    Cache, Controller, Name,
    cache::{Change, index_key},
};

use super::{
    naming,
    spec::{
        entries,
        references::{hub_roles, uses_selector},
    },
};
use crate::{Context, caches::owning_permission};

/// The entries of a permission in the index: the objects it makes, and what it depends on.
pub fn index(permission: &ClusterPermission) -> Vec<u64> {
    let namespace = permission.namespace().unwrap_or_default();
    let roles = hub_roles(permission).map(|id| of_role_key(&id.name));
    let selector = uses_selector(permission).then(of_selector_key);
    let mut all = BTreeSet::from([of_cluster_key(&namespace)]);
    all.extend(object_keys(permission));
    all.extend(roles.chain(selector));
    all.into_iter().collect()
}

fn of_cluster_key(namespace: &str) -> u64 {
    index_key(("cluster", namespace))
}

fn of_role_key(role: &Name) -> u64 {
    index_key(("role", role))
}

fn of_selector_key() -> u64 {
    index_key("selector")
}

/// One entry for each kind and name of the objects that the permission makes, in whatever namespace of its cluster.
fn object_keys(permission: &ClusterPermission) -> BTreeSet<u64> {
    let cluster = permission.namespace().unwrap_or_default();
    let entries = entries(permission);
    let objects = entries.iter().map(|entry| (entry.kind, entry.name));
    objects
        .map(|object| index_key(("object", &cluster, object)))
        .collect()
}

/// The other permissions of the cluster that name an object of the same kind and name.
pub fn neighbours(permissions: &Cache<ClusterPermission>, permission: &ClusterPermission) -> BTreeSet<Name> {
    let keys = object_keys(permission).into_iter();
    let mut names: BTreeSet<Name> = keys.flat_map(|key| permissions.indexed(key)).collect();
    names.remove(&Name::of(permission));
    names
}

/// The permissions that a change of a permission concerns: itself, and its neighbours before and after.
pub fn of_permission(
    permissions: &Cache<ClusterPermission>,
    change: &Change<'_, ClusterPermission>,
) -> BTreeSet<Name> {
    let mut names = BTreeSet::from([change.name.clone()]);
    if change.input_changed() {
        for permission in change.old().iter().chain(&change.new) {
            names.extend(neighbours(permissions, permission));
        }
    }
    names
}

/// The permissions that a work can belong to: its owner, or by its name where the owner reference was removed.
pub fn of_work(permissions: &Cache<ClusterPermission>, change: &Change<'_, ManifestWork>) -> Vec<Name> {
    let Some(work) = change.new.clone().or_else(|| change.old()) else {
        return Vec::new();
    };
    let name = |name: &str| Name::new(change.name.namespace.clone(), name);
    if let Some(owner) = owning_permission(&work) {
        return vec![name(&owner.name)];
    }
    let names = naming::permissions_of_work(&change.name.name).map(name);
    names.filter(|name| permissions.contains(name)).collect()
}

/// The permissions of a cluster.
pub fn of_cluster(permissions: &Cache<ClusterPermission>, cluster: &Name) -> Vec<Name> {
    permissions.indexed(of_cluster_key(&cluster.name))
}

/// The permissions of the cluster that an object of the hub belongs to.
pub fn of_cluster_object(permissions: &Cache<ClusterPermission>, object: &Name) -> Vec<Name> {
    permissions.indexed(of_cluster_key(&object.namespace))
}

/// The permissions that refer to a role of the hub; a ClusterRole has no namespace.
pub fn of_role(permissions: &Cache<ClusterPermission>, role: &Name) -> Vec<Name> {
    permissions.indexed(of_role_key(role))
}

/// The permissions that depend on the hub's namespaces: those with selectors, and those that may be in conflict with them.
pub fn of_namespace(permissions: &Cache<ClusterPermission>, _: &Name) -> Vec<Name> {
    let selecting = permissions.all_indexed(of_selector_key());
    let names: BTreeSet<Name> = selecting
        .into_iter()
        .flat_map(|(name, permission)| {
            let neighbours = neighbours(permissions, &permission);
            neighbours.into_iter().chain([name])
        })
        .collect();
    names.into_iter().collect()
}

/// Watches a kind that permissions may refer to. Permissions that do not refer to it do not wait until it is listed.
pub fn watch_referenced<V: Send + Sync + 'static>(
    controller: Controller<Name>,
    (context, permissions): (&Context, &Cache<ClusterPermission>),
    cache: &Cache<V>,
    dependents: fn(&Cache<ClusterPermission>, &Name) -> Vec<Name>,
) -> Controller<Name> {
    let name = format!("cluster_permission: watch {}", cache.what());
    let (gate, listed, shutdown) = (context.health.gate(name), cache.clone(), context.shutdown.clone());
    tokio::spawn(async move {
        if shutdown.run_until_cancelled(listed.ready()).await.is_some() {
            gate.open();
        }
    });
    let (of, all) = (permissions.clone(), permissions.clone());
    controller
        .watch_unawaited(cache, move |change| {
            // A list brings every permission when it is complete.
            if change.listed {
                return Vec::new();
            }
            dependents(&of, &change.name)
        })
        .on_list(cache, move || all.names())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use writ_controller::Watch;

    use super::*;

    fn permission(cluster: &str, name: &str, generation: i64, bindings: &[&str]) -> ClusterPermission {
        let binding = |name: &&str| {
            json!({"namespace": "a", "name": name, "roleRef": {"kind": "Role"},
                "subject": {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}})
        };
        serde_json::from_value(json!({
            "apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
            "metadata": {"name": name, "namespace": cluster, "uid": format!("{cluster}-{name}"),
                "resourceVersion": generation.to_string(), "generation": generation},
            "spec": {"roleBindings": bindings.iter().map(binding).collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn permission_with_common_object_before_or_after_is_concerned() {
        let offline =
            kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let cache = Watch::new(kube::Api::all(offline))
            .compressed()
            .index(index)
            .start(&CancellationToken::new());
        let concerned = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (heard, other) = (concerned.clone(), cache.clone());
        let _subscription = cache.subscribe(move |event| {
            if let writ_controller::cache::Event::Changed(change) = event {
                *heard.lock().unwrap() = of_permission(&other, change)
                    .iter()
                    .map(ToString::to_string)
                    .collect();
            }
        });
        let record = |cluster: &str, name: &str, generation: i64, bindings: &[&str]| {
            cache
                .record(permission(cluster, name, generation, bindings))
                .unwrap();
            std::mem::take(&mut *concerned.lock().unwrap())
        };
        assert_eq!(record("c", "a", 1, &["x"]), ["c/a"]);
        assert_eq!(record("c", "b", 1, &["x", "y"]), ["c/a", "c/b"]);
        assert_eq!(record("d", "a", 1, &["x"]), ["d/a"], "another cluster");
        assert_eq!(
            record("c", "b", 2, &["y"]),
            ["c/a", "c/b"],
            "had the object before"
        );
        assert_eq!(record("c", "b", 3, &["z"]), ["c/b"]);
        assert_eq!(record("c", "e", 1, &["x"]), ["c/a", "c/e"]);
        assert_eq!(of_cluster(&cache, &Name::global("c")).len(), 3);
    }
}
