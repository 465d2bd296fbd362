//! ManagedServiceAccount: an account on a cluster, its token on the hub.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::authentication::ManagedServiceAccount;
use writ_fleet::{Cluster, fleet::AGENT_NAMESPACE, wait};

use super::{
    guide::Guide,
    proof::{
        Claim,
        Expected::{Allowed, Refused},
        list,
    },
};

const NAME: &str = "tour-robot";

const ACCOUNT: &str = "
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {name: tour-robot, namespace: cluster1}
spec:
  rotation: {validity: 720h}
";

const GRANT: &str = "
apiVersion: rbac.open-cluster-management.io/v1alpha1
kind: ClusterPermission
metadata: {name: tour-robot, namespace: cluster1}
spec:
  roles:
  - namespace: default
    rules:
    - {apiGroups: [\"\"], resources: [configmaps], verbs: [list]}
  roleBindings:
  - namespace: default
    roleRef: {kind: Role}
    subject: {apiGroup: authentication.open-cluster-management.io, kind: ManagedServiceAccount, name: tour-robot}
";

/// The token on the hub, once it is another one than before.
async fn token(hub: &Cluster, before: &str) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(hub.admin().await?, "cluster1");
    wait::until("a token on the hub", || async {
        let data = secrets
            .get_opt(NAME)
            .await?
            .and_then(|secret| secret.data)
            .unwrap_or_default();
        let token = data
            .get("token")
            .and_then(|token| String::from_utf8(token.0.clone()).ok());
        Ok(token.filter(|token| !token.is_empty() && token != before))
    })
    .await
}

pub async fn show(guide: &mut Guide<'_>) -> Result<()> {
    let (hub, cluster) = (&guide.fleet.hub, guide.first()?);
    guide.start_clean(&[(hub, ACCOUNT), (hub, GRANT)]).await?;
    let robot = (AGENT_NAMESPACE, NAME);
    let maps = Claim::account(cluster, robot, "list", "configmaps", "default");
    let secrets = Claim::account(cluster, robot, "list", "secrets", "default");

    guide
        .say("A ManagedServiceAccount on the hub becomes a ServiceAccount on cluster1. The agent asks cluster1 for a token\nand puts it into a Secret of the same name on the hub. The account may do nothing yet.")
        .await?;
    guide.write(hub, ACCOUNT).await?;
    let first = token(hub, "").await?;
    println!("  seen: the token is in the Secret cluster1/{NAME} of the hub");
    let client = cluster.with_token(&first).await?;
    guide
        .prove(&maps, Refused, || list::<ConfigMap>(&client, "default"))
        .await?;

    guide
        .say("A ClusterPermission whose subject is the account says how far the token reaches.")
        .await?;
    guide.write(hub, GRANT).await?;
    guide
        .prove(&maps, Allowed, || list::<ConfigMap>(&client, "default"))
        .await?;
    guide
        .prove(&secrets, Refused, || list::<Secret>(&client, "default"))
        .await?;

    guide
        .say("Tokens are renewed before they expire, and at once when their validity changes.")
        .await?;
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(hub.admin().await?, "cluster1");
    let shorter = json!({"spec": {"rotation": {"validity": "24h"}}});
    println!("\n  the admin changes on hub: spec.rotation.validity: 24h\n");
    accounts
        .patch(NAME, &PatchParams::default(), &Patch::Merge(&shorter))
        .await?;
    let second = token(hub, &first).await?;
    println!("  seen: another token is in the Secret");
    let renewed: Client = cluster.with_token(&second).await?;
    guide
        .prove(&maps, Allowed, || list::<ConfigMap>(&renewed, "default"))
        .await?;

    guide
        .say("The account is deleted: the ServiceAccount goes, and every token of it dies.")
        .await?;
    guide
        .delete(hub, "ManagedServiceAccount cluster1/tour-robot", ACCOUNT)
        .await?;
    for client in [client, renewed] {
        guide
            .prove(&maps, Refused, || list::<ConfigMap>(&client, "default"))
            .await
            .context("a token outlives its account")?;
    }
    Ok(())
}
