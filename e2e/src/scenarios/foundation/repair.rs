//! What the hub keeps for clusters, sets and accounts is put right when somebody changes it.

use anyhow::Result;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::{Namespace, Secret},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;
use writ_api::cluster::{CLUSTER_NAME_LABEL, ManagedCluster};
use writ_hub::registration::operator_actions;

use crate::{Fleet, fleet::HUB_NAMESPACE, repair::repaired, wait};

const ACCOUNTS: &str = "managed-serviceaccount-addon-agent";
const POLICY: &str = "managed-serviceaccount-secrets.writ.dev";

pub async fn everything_of_the_hub(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    // A namespace that was there before its cluster, and a certificate authority that nobody can use.
    fleet.hub.namespace("cluster1").await?;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), HUB_NAMESPACE);
    let broken: Secret = serde_json::from_value(json!({
        "metadata": {"name": "writ-hub-webhook"}, "stringData": {"ca.crt": "not a certificate"},
    }))?;
    let broken = secrets.create(&PostParams::default(), &broken).await?;
    let hub = fleet.run_hub(Fleet::hub_options()).await?;
    wait::until_true("the certificate authority is replaced", || async {
        Ok(secrets.get("writ-hub-webhook").await?.data != broken.data)
    })
    .await?;

    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true},
    }))?;
    clusters.create(&PostParams::default(), &cluster).await?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    wait::until_true("the namespace is marked", || async {
        let namespace = namespaces.get("cluster1").await?;
        Ok(namespace
            .labels()
            .get(CLUSTER_NAME_LABEL)
            .is_some_and(|name| name == "cluster1"))
    })
    .await?;

    let cluster_roles: Api<ClusterRole> = Api::all(admin.clone());
    let cluster_bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    let roles: Api<Role> = Api::namespaced(admin.clone(), "cluster1");
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "cluster1");
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let somebody = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]);
    let own = "open-cluster-management:managedcluster:cluster1";
    for role in [own, "open-cluster-management:managedclusterset:admin:default"] {
        repaired(&cluster_roles, role, "/rules", everything.clone()).await?;
    }
    repaired(&cluster_bindings, own, "/subjects", somebody.clone()).await?;
    repaired(&bindings, &format!("{own}:work"), "/subjects", somebody.clone()).await?;
    repaired(&roles, ACCOUNTS, "/rules", everything).await?;
    repaired(&bindings, ACCOUNTS, "/subjects", somebody).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    repaired(&policies, POLICY, "/spec/failurePolicy", json!("Ignore")).await?;
    let policies: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    repaired(&policies, POLICY, "/spec/validationActions", json!(["Audit"])).await?;

    // A denied cluster has no accounts either.
    operator_actions::deny(&admin, "cluster1").await?;
    wait::until_true("the rights on accounts are gone", || async {
        Ok(roles.get_opt(ACCOUNTS).await?.is_none() && bindings.get_opt(ACCOUNTS).await?.is_none())
    })
    .await?;
    hub.stop().await
}
