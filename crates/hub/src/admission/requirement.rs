//! The rights that decisions of the hub depend on, by name.

use writ_api::work;
use writ_process::admission::Access;

const CLUSTER: &str = "cluster.open-cluster-management.io";

/// To move clusters into and out of a set.
pub fn join(set: &str) -> Access {
    cluster_access("managedclustersets/join", "create", Some(set))
}

/// To bind a set to a namespace.
pub fn bind(set: &str) -> Access {
    cluster_access("managedclustersets/bind", "create", Some(set))
}

/// To create sets with this exclusive key, or with this pair `key:set`.
pub fn exclusive_key(name: &str) -> Access {
    cluster_access("managedclustersets/exclusiveKey", "create", Some(name))
}

/// To write the taints that say whether a cluster is reachable. The hub's own controllers hold it.
pub fn system_taints(cluster: &str) -> Access {
    cluster_access("managedclusters/systemtaints", "update", Some(cluster))
}

/// To update every cluster.
pub fn update_all_clusters() -> Access {
    cluster_access("managedclusters", "update", None)
}

/// To accept a cluster.
pub fn accept(cluster: &str) -> Access {
    Access {
        group: "register.open-cluster-management.io",
        ..cluster_access("managedclusters/accept", "update", Some(cluster))
    }
}

/// To name this executor in works of this namespace, or of every namespace.
pub fn execute_as(identity: &str, namespace: Option<&str>) -> Access {
    Access {
        verb: "execute-as",
        group: work::GROUP,
        resource: "manifestworks",
        namespace: namespace.map(str::to_owned),
        name: Some(identity.to_owned()),
    }
}

fn cluster_access(resource: &'static str, verb: &'static str, name: Option<&str>) -> Access {
    Access {
        verb,
        group: CLUSTER,
        resource,
        namespace: None,
        name: name.map(str::to_owned),
    }
}
