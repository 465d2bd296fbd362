//! Pure: what a cluster and its agent say of themselves.

use writ_api::cluster::{ManagedCluster, managed_cluster::CONDITION_AVAILABLE};
use writ_controller::condition;

use crate::options::NamespaceSelector;

/// Whether the cluster answers.
pub fn is_available(cluster: Option<&ManagedCluster>) -> bool {
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    status.is_some_and(|status| condition::is_true(&status.conditions, CONDITION_AVAILABLE))
}

/// Whether the agent of this cluster expands namespace selectors.
pub fn agent_selects(mode: NamespaceSelector, cluster: Option<&ManagedCluster>) -> bool {
    match mode {
        NamespaceSelector::Agent => true,
        NamespaceSelector::Hub => false,
        NamespaceSelector::Auto => {
            let status = cluster.and_then(|cluster| cluster.status.as_ref());
            // Before a cluster has reported nobody knows; the hub's namespaces are never a guess for its own.
            cluster
                .and_then(|cluster| cluster.agent_runs("grants"))
                .unwrap_or_else(|| {
                    status.is_none_or(|s| condition::find(&s.conditions, CONDITION_AVAILABLE).is_none())
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use writ_api::cluster::cluster_claim::CLAIM_AGENT;

    use super::*;

    #[test]
    fn the_agent_selects_where_it_says_that_it_can() {
        let cluster = |status: serde_json::Value| -> ManagedCluster {
            serde_json::from_value(
                json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": {"name": "c"}, "spec": {"hubAcceptsClient": true}, "status": status}),
            )
            .unwrap()
        };
        let available = json!([{"type": CONDITION_AVAILABLE, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let claim = |value: &str| json!({"conditions": available, "clusterClaims": [{"name": CLAIM_AGENT, "value": value}]});
        let auto = |status| agent_selects(NamespaceSelector::Auto, Some(&cluster(status)));
        assert!(auto(claim("tokens, grants,work")));
        assert!(!auto(claim("tokens,work")));
        assert!(!auto(json!({ "conditions": available })), "OCM's agent");
        assert!(auto(json!({})), "nothing is known yet");
        assert!(agent_selects(NamespaceSelector::Agent, None));
        assert!(!agent_selects(
            NamespaceSelector::Hub,
            Some(&cluster(claim("grants")))
        ));
    }
}
