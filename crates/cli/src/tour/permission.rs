//! ClusterPermission: who may do what on one cluster.

use anyhow::Result;
use k8s_openapi::api::{core::v1::Pod, rbac::v1::RoleBinding};
use kube::{Api, api::DeleteParams};
use writ_api::rbac::ClusterPermission;

use super::{
    guide::Guide,
    proof::{
        Claim,
        Expected::{Allowed, Refused},
        list,
    },
};

const USER: &str = "tour-alice";
const NAMESPACE: &str = "tour-web";
const NAME: &str = "tour-alice";

const PERMISSION: &str = "
apiVersion: rbac.open-cluster-management.io/v1alpha1
kind: ClusterPermission
metadata: {name: tour-alice, namespace: cluster1}
spec:
  roleBindings:
  - namespace: tour-web
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
    subject: {apiGroup: rbac.authorization.k8s.io, kind: User, name: tour-alice}
";

pub async fn show(guide: &mut Guide<'_>) -> Result<()> {
    let (hub, cluster) = (&guide.fleet.hub, guide.first()?);
    guide.start_clean(&[(hub, PERMISSION)]).await?;
    guide.namespace(cluster, NAMESPACE).await?;
    let alice = cluster.user(USER, &["system:authenticated"]).await?;
    let pods = |namespace: &'static str| {
        (
            Claim::user(cluster, USER, "list", "pods", namespace),
            alice.clone(),
            namespace,
        )
    };

    guide
        .say("tour-alice has no rights on cluster1 yet: her request is refused.")
        .await?;
    let (claim, client, namespace) = pods(NAMESPACE);
    guide
        .prove(&claim, Refused, || list::<Pod>(&client, namespace))
        .await?;

    guide
        .say("A ClusterPermission in the namespace cluster1 of the hub is meant for cluster1. The hub turns it into a\nManifestWork; the agent of cluster1 applies that and reports back.")
        .await?;
    guide.write(hub, PERMISSION).await?;
    let permissions: Api<ClusterPermission> = Api::namespaced(hub.admin().await?, "cluster1");
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin().await?, NAMESPACE);
    guide
        .see("the ClusterPermission is Ready", || async {
            let status = permissions.get(NAME).await?.status.unwrap_or_default();
            let ready = status
                .conditions
                .iter()
                .find(|c| c.type_ == "Ready" && c.status == "True");
            Ok(ready.map(|ready| ready.message.clone()))
        })
        .await?;
    guide
        .see("the RoleBinding is on cluster1", || async {
            let binding = bindings.get_opt(NAME).await?;
            Ok(binding.map(|binding| {
                format!(
                    "RoleBinding {NAMESPACE}/{NAME} -> {} {}",
                    binding.role_ref.kind, binding.role_ref.name
                )
            }))
        })
        .await?;
    guide
        .prove(&claim, Allowed, || list::<Pod>(&client, namespace))
        .await?;
    let (elsewhere, client, other) = pods("default");
    guide
        .prove(&elsewhere, Refused, || list::<Pod>(&client, other))
        .await?;

    guide
        .say("The RoleBinding is deleted on cluster1 by hand. The agent restores it.")
        .await?;
    let before = bindings.get(NAME).await?.metadata.uid;
    bindings.delete(NAME, &DeleteParams::default()).await?;
    guide
        .see("a new RoleBinding is there", || async {
            let found = bindings.get_opt(NAME).await?;
            Ok(found
                .filter(|binding| binding.metadata.uid != before)
                .map(|_| String::new()))
        })
        .await?;
    guide
        .prove(&claim, Allowed, || list::<Pod>(&client, namespace))
        .await?;

    guide
        .say("The permission is deleted: tour-alice has nothing again.")
        .await?;
    guide
        .delete(hub, "ClusterPermission cluster1/tour-alice", PERMISSION)
        .await?;
    guide
        .prove(&claim, Refused, || list::<Pod>(&client, namespace))
        .await
}
