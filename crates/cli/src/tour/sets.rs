//! ManagedClusterSets that overlap, and who may move a cluster between them.

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Api, Client, ResourceExt, api::PostParams};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_authz::Identity;
use writ_fleet::Cluster;

use super::{
    guide::Guide,
    proof::{
        Claim,
        Expected::{Allowed, Refused},
    },
};

const REGION: &str = "tour-region";
const VENDOR: &str = "tour-vendor";

const SETS: &str = "
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: tour-apac}
spec: {exclusiveKey: tour-region}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: tour-us}
spec: {exclusiveKey: tour-region}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: tour-aws}
spec: {exclusiveKey: tour-vendor}
";

const LABELLER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tour-labels}
rules:
- {apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tour-labels}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tour-labels}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: tour-carol}
";

const JOIN: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tour-join}
rules:
- apiGroups: [cluster.open-cluster-management.io]
  resources: [managedclustersets/join]
  resourceNames: [tour-apac, tour-us]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tour-join}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tour-join}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: tour-carol}
";

/// Sets labels of cluster1.
async fn label(client: &Client, labels: &[(&str, &str)], dry_run: bool) -> Result<(), kube::Error> {
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    loop {
        let mut cluster = clusters.get("cluster1").await?;
        for (key, value) in labels {
            cluster.labels_mut().insert((*key).into(), (*value).into());
        }
        match clusters.replace("cluster1", &params, &cluster).await {
            // The hub or the agent wrote in between.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => return answer.map(drop),
        }
    }
}

async fn members(hub: &Cluster, wanted: &[(&str, i64)]) -> Result<Option<String>> {
    let sets: Api<ManagedClusterSet> = Api::all(hub.admin().await?);
    let mut lines = Vec::new();
    for (name, count) in wanted {
        let status = sets.get(name).await?.status.context("no status yet")?;
        if status.cluster_count != Some(*count) {
            return Ok(None);
        }
        lines.push(format!("{name}: {count} clusters"));
    }
    Ok(Some(lines.join("\n")))
}

pub async fn show(guide: &mut Guide<'_>) -> Result<()> {
    let hub = &guide.fleet.hub;
    let admin = hub.admin().await?;
    guide.will_label(hub, "cluster1", &[REGION, VENDOR]);
    guide
        .start_clean(&[(hub, SETS), (hub, LABELLER), (hub, JOIN)])
        .await?;
    guide
        .say("A set has a key. A cluster is in the set whose name its label `<key>` carries: in one set per key, and in\nsets of different keys at once.")
        .await?;
    guide.write(hub, SETS).await?;
    // Sets with members are not deleted by accident: the labels go before them.
    guide.will_label(hub, "cluster1", &[REGION, VENDOR]);
    println!("\n  the admin labels cluster1 on hub: {REGION}=tour-apac, {VENDOR}=tour-aws\n");
    label(&admin, &[(REGION, "tour-apac"), (VENDOR, "tour-aws")], false).await?;
    guide
        .see("cluster1 is in both sets", || {
            members(hub, &[("tour-apac", 1), ("tour-aws", 1), ("tour-us", 0)])
        })
        .await?;

    guide
        .say("tour-carol may edit clusters. Moving one to another set also needs `join` on the set that is left and on the one\nthat is entered.")
        .await?;
    guide.write(hub, LABELLER).await?;
    let carol = hub.user("tour-carol", &["system:authenticated"]).await?;
    let claim = Claim {
        cluster: hub,
        who: "user tour-carol".into(),
        identity: Identity::user("tour-carol"),
        words: "move cluster1 into the set tour-us".into(),
        what: ResourceAttributes {
            group: Some("cluster.open-cluster-management.io".into()),
            resource: Some("managedclustersets".into()),
            subresource: Some("join".into()),
            verb: Some("create".into()),
            name: Some("tour-us".into()),
            ..ResourceAttributes::default()
        },
    };
    let to_us = [(REGION, "tour-us")];
    guide
        .prove(&claim, Refused, || label(&carol, &to_us, true))
        .await?;

    guide.say("The admin grants tour-carol `join` on both.").await?;
    guide.write(hub, JOIN).await?;
    guide
        .prove(&claim, Allowed, || label(&carol, &to_us, true))
        .await?;
    println!("\n  tour-carol labels cluster1 on hub: {REGION}=tour-us\n");
    label(&carol, &to_us, false).await?;
    guide
        .see("cluster1 changed its region and kept its vendor", || {
            members(hub, &[("tour-apac", 0), ("tour-us", 1), ("tour-aws", 1)])
        })
        .await?;

    guide
        .say("The grant goes: tour-carol cannot move it back.")
        .await?;
    guide
        .delete(hub, "ClusterRole and ClusterRoleBinding tour-join", JOIN)
        .await?;
    let claim = Claim {
        words: "move cluster1 back into the set tour-apac".into(),
        what: ResourceAttributes {
            name: Some("tour-apac".into()),
            ..claim.what
        },
        ..claim
    };
    guide
        .prove(&claim, Refused, || label(&carol, &[(REGION, "tour-apac")], true))
        .await
}
