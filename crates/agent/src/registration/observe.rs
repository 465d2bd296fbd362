//! What is observed: the own ManagedCluster on the hub; nodes, claims and marked namespaces in the cluster.

use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use kube::{Api, ResourceExt as _};
use writ_api::cluster::{ClusterClaim, ManagedCluster};
use writ_controller::{Cache, Name, Watch};

use crate::{Context, owner::hub_hash};

/// The caches that this controller reads.
pub struct Caches {
    /// The own ManagedCluster.
    pub clusters: Cache<ManagedCluster>,
    /// What nodes have to offer.
    pub nodes: Cache<Node>,
    /// The claims of the cluster.
    pub claims: Cache<ClusterClaim>,
    /// The namespaces with the mark, and whether it says that a set asks for them.
    pub namespaces: Cache<bool>,
    /// The name of the cluster.
    name: Name,
}

impl Caches {
    /// Starts the watches.
    pub fn start(context: &Context) -> Self {
        let (hub, spoke, shutdown) = (&context.hub, &context.spoke, &context.shutdown);
        let name = &context.options.cluster_name;
        let mark = mark(context);
        let label = mark.clone();
        Self {
            clusters: Watch::new(Api::all(hub.clone()))
                .fields(&format!("metadata.name={name}"))
                .start(shutdown),
            nodes: Watch::new(Api::all(spoke.clone()))
                .keep(only_resources)
                .start(shutdown),
            claims: Watch::new(Api::all(spoke.clone())).start(shutdown),
            namespaces: Watch::new(Api::all(spoke.clone()))
                .labels(&mark)
                .keep(move |namespace: Namespace| {
                    let value = namespace.labels().get(&label);
                    value.is_some_and(|value| value == "true")
                })
                .start(shutdown),
            name: Name::global(name.as_str()),
        }
    }

    /// The own ManagedCluster.
    pub fn cluster(&self) -> Option<std::sync::Arc<ManagedCluster>> {
        self.clusters.get(&self.name)
    }
}

/// The label of the namespaces that sets of this hub ask for, as upstream's agents write it. It differs from hub to hub.
pub fn mark(context: &Context) -> String {
    let hash = hub_hash(&context.options.work.hub_server);
    let hash: String = hash.chars().take(63).collect();
    format!("clusterset.open-cluster-management.io/{hash}")
}

/// A node reports its health every few seconds and lists its images: nothing of that is kept.
fn only_resources(node: Node) -> Node {
    let status = node.status.map(|status| NodeStatus {
        capacity: status.capacity,
        allocatable: status.allocatable,
        ..NodeStatus::default()
    });
    let spec = node.spec.map(|spec| NodeSpec {
        unschedulable: spec.unschedulable,
        ..NodeSpec::default()
    });
    Node {
        status,
        spec,
        ..Node::default()
    }
}
