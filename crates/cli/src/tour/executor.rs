//! The executor of a ManifestWork: who may name it, and what it may deliver.

use anyhow::{Context, Result};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::ConfigMap};
use kube::Api;
use writ_api::work::ManifestWork;
use writ_authz::Identity;

use super::{
    guide::Guide,
    proof::{
        Claim,
        Expected::{Allowed, Refused},
        try_create,
    },
};

const NAMESPACE: &str = "tour-shop";
const DEPLOYER: (&str, &str) = (NAMESPACE, "deployer");

const WORK: &str = "
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: tour-shop, namespace: cluster1}
spec:
  executor:
    subject: {type: ServiceAccount, serviceAccount: {namespace: tour-shop, name: deployer}}
  workload:
    manifests:
    - apiVersion: v1
      kind: ConfigMap
      metadata: {namespace: tour-shop, name: prices}
      data: {apple: \"1\"}
";

const WRITER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tour-works, namespace: cluster1}
rules:
- {apiGroups: [work.open-cluster-management.io], resources: [manifestworks], verbs: [get, create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tour-works, namespace: cluster1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tour-works}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: tour-bob}
";

const EXECUTE_AS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tour-execute, namespace: cluster1}
rules:
- apiGroups: [work.open-cluster-management.io]
  resources: [manifestworks]
  resourceNames: [\"system:serviceaccount:tour-shop:deployer\"]
  verbs: [execute-as]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tour-execute, namespace: cluster1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tour-execute}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: tour-bob}
";

const GRANT: &str = "
apiVersion: rbac.open-cluster-management.io/v1alpha1
kind: ClusterPermission
metadata: {name: tour-deployer, namespace: cluster1}
spec:
  roles:
  - namespace: tour-shop
    rules:
    - {apiGroups: [\"\"], resources: [configmaps], verbs: [get, create, update, patch, delete]}
  roleBindings:
  - namespace: tour-shop
    roleRef: {kind: Role}
    subject: {kind: ServiceAccount, namespace: tour-shop, name: deployer}
";

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: tour-shop}
";

pub async fn show(guide: &mut Guide<'_>) -> Result<()> {
    let (hub, cluster) = (&guide.fleet.hub, guide.first()?);
    let on_hub = [WRITER, EXECUTE_AS, WORK, GRANT].map(|text| (hub, text));
    guide
        .start_clean(&[&[(cluster, ACCOUNT)], &on_hub[..]].concat())
        .await?;
    guide.namespace(cluster, NAMESPACE).await?;
    guide
        .say("tour-bob may write works for cluster1. A work can name an executor, an account of the cluster; naming it on the\nhub needs the right `execute-as`.")
        .await?;
    guide.write(cluster, ACCOUNT).await?;
    guide.write(hub, WRITER).await?;
    let bob = hub.user("tour-bob", &["system:authenticated"]).await?;
    let work: ManifestWork = writ_runtime::yaml::from_str(WORK)?;
    let name_it = Claim {
        cluster: hub,
        who: "user tour-bob".into(),
        identity: Identity::user("tour-bob"),
        words: "execute works of cluster1 as tour-shop/deployer".into(),
        what: ResourceAttributes {
            group: Some("work.open-cluster-management.io".into()),
            resource: Some("manifestworks".into()),
            verb: Some("execute-as".into()),
            namespace: Some("cluster1".into()),
            name: Some("system:serviceaccount:tour-shop:deployer".into()),
            ..ResourceAttributes::default()
        },
    };
    guide
        .prove(&name_it, Refused, || try_create(&bob, "cluster1", &work))
        .await?;
    guide.say("The hub's admin grants it.").await?;
    guide.write(hub, EXECUTE_AS).await?;
    guide
        .prove(&name_it, Allowed, || try_create(&bob, "cluster1", &work))
        .await?;

    guide
        .say("tour-bob writes the work. But on cluster1 the executor has no rights yet: the agent writes nothing and says why.")
        .await?;
    guide.write_as(hub, &bob, "tour-bob", WORK).await?;
    let works: Api<ManifestWork> = Api::namespaced(hub.admin().await?, "cluster1");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin().await?, NAMESPACE);
    let applied = |status: &'static str| {
        let works = works.clone();
        move || {
            let works = works.clone();
            async move {
                let work = works.get("tour-shop").await?;
                let conditions = work.status.unwrap_or_default().conditions;
                let found = conditions
                    .into_iter()
                    .find(|c| c.type_ == "Applied" && c.status == status);
                Ok(found.map(|condition| condition.message))
            }
        }
    };
    guide.see("the work is refused", applied("False")).await?;
    anyhow::ensure!(
        maps.get_opt("prices").await?.is_none(),
        "NOT SEEN: nothing was written on cluster1"
    );
    let deployer = cluster.service_account(DEPLOYER.0, DEPLOYER.1).await?;
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "tour-probe"}}))
        .context("a ConfigMap")?;
    let write = Claim::account(cluster, DEPLOYER, "create", "configmaps", NAMESPACE);
    guide
        .prove(&write, Refused, || try_create(&deployer, NAMESPACE, &map))
        .await?;

    guide
        .say("The executor is granted what the work needs, here with a ClusterPermission. The work stays untouched: the agent\nsees the grant and applies.")
        .await?;
    guide.write(hub, GRANT).await?;
    guide
        .prove(&write, Allowed, || try_create(&deployer, NAMESPACE, &map))
        .await?;
    guide.see("the work is applied", applied("True")).await?;
    guide
        .see("the ConfigMap is on cluster1", || async {
            Ok(maps
                .get_opt("prices")
                .await?
                .map(|map| format!("ConfigMap {NAMESPACE}/prices: {:?}", map.data.unwrap_or_default())))
        })
        .await?;

    guide.say("The grant goes: the work is refused again.").await?;
    guide
        .delete(hub, "ClusterPermission cluster1/tour-deployer", GRANT)
        .await?;
    guide
        .prove(&write, Refused, || try_create(&deployer, NAMESPACE, &map))
        .await?;
    guide.see("the work is refused", applied("False")).await
}
