//! Pure: what the objects of the hub mean for a permission.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, managed_cluster::CONDITION_AVAILABLE},
};
use writ_controller::condition::{self, clip};

use super::{
    model::{Account, AddOn, HubRole, SelectedBy},
    spec::validate::filled,
};
use crate::options::NamespaceSelector;

/// Whether the cluster is available.
pub fn is_available(cluster: Option<&ManagedCluster>) -> bool {
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    status.is_some_and(|status| condition::is_true(&status.conditions, CONDITION_AVAILABLE))
}

/// Where the namespace selectors of this cluster's permissions are evaluated.
pub fn selected_by(mode: NamespaceSelector, cluster: Option<&ManagedCluster>) -> SelectedBy {
    let agent_selects = || {
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        let says = cluster.and_then(|cluster| cluster.agent_runs("grants"));
        // A cluster that has not reported yet may have either kind of agent; the hub's namespaces are never a guess for its own.
        says.unwrap_or_else(|| {
            status.is_none_or(|s| condition::find(&s.conditions, CONDITION_AVAILABLE).is_none())
        })
    };
    match mode {
        NamespaceSelector::Agent => SelectedBy::Agent,
        NamespaceSelector::Hub => SelectedBy::Hub,
        NamespaceSelector::Auto if agent_selects() => SelectedBy::Agent,
        NamespaceSelector::Auto => SelectedBy::Hub,
    }
}

/// The namespace of ServiceAccounts, as the add-on says.
pub fn add_on(add_on: Option<&ManagedClusterAddOn>) -> AddOn {
    let Some(add_on) = add_on.filter(|a| a.metadata.deletion_timestamp.is_none()) else {
        return AddOn::Missing;
    };
    let status = add_on.status.as_ref();
    let reported = status.and_then(|status| filled(status.namespace.as_deref()));
    match reported.or_else(|| filled(Some(&add_on.spec.install_namespace))) {
        Some(namespace) => AddOn::Namespace(namespace.to_owned()),
        None => AddOn::NoNamespace,
    }
}

/// A ManagedServiceAccount; `None` if it is being deleted.
pub fn account(account: &ManagedServiceAccount) -> Option<Account> {
    if account.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = account.status.as_ref();
    let refused = status.and_then(|status| status.not_own());
    Some(refused.map_or(Account::Own, |said| {
        Account::NotOwn(format!("{}: {}", said.reason, clip(&said.message, 500)))
    }))
}

/// A role of the hub.
pub fn hub_role<K: Resource>(role: &K, rules: Option<&[PolicyRule]>) -> HubRole {
    let meta = role.meta();
    let labels = meta.labels.as_ref();
    let bootstrapping = labels.and_then(|labels| labels.get("kubernetes.io/bootstrapping"));
    let name = meta.name.as_deref().unwrap_or_default();
    HubRole {
        rules: rules.unwrap_or_default().to_vec(),
        built_in: name.starts_with("system:") || bootstrapping.is_some_and(|v| v == "rbac-defaults"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use writ_api::cluster::cluster_claim::CLAIM_AGENT;

    use super::*;

    #[test]
    fn agent_selects_where_it_reports_the_feature() {
        let cluster = |status: serde_json::Value| -> ManagedCluster {
            serde_json::from_value(
                json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": {"name": "c"}, "spec": {"hubAcceptsClient": true}, "status": status}),
            )
            .unwrap()
        };
        let available = json!([{"type": CONDITION_AVAILABLE, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let claim = |value: &str| json!({"conditions": available, "clusterClaims": [{"name": CLAIM_AGENT, "value": value}]});
        let selects = |mode, cluster: Option<&_>| selected_by(mode, cluster) == SelectedBy::Agent;
        let auto = |status| selects(NamespaceSelector::Auto, Some(&cluster(status)));
        assert!(auto(claim("tokens, grants,work")));
        assert!(!auto(claim("tokens,work")));
        assert!(!auto(json!({ "conditions": available })), "OCM's agent");
        assert!(auto(json!({})), "nothing is known yet");
        assert!(selects(NamespaceSelector::Agent, None));
        assert!(!selects(NamespaceSelector::Hub, Some(&cluster(claim("grants")))));
    }
}
