//! The design document's primary use case: a controller on the hub reaches a managed cluster with the token of a
//! ManagedServiceAccount, exactly as far as a permission grants.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use writ_api::authentication::ManagedServiceAccount;

use super::support::{condition, permission, start};
use crate::{Fleet, wait, yaml};

const ROBOT: &str = r"
apiVersion: authentication.open-cluster-management.io/v1beta1
kind: ManagedServiceAccount
metadata: {name: robot, namespace: cluster1}
spec: {rotation: {enabled: true}}
";

fn code<T>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

pub async fn primary_use_case(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let admin = fleet.hub.admin().await?;
    let cluster = fleet.cluster(1)?;
    let account = json!({"kind": "ManagedServiceAccount", "name": "robot", "apiGroup": "authentication.open-cluster-management.io"});
    let spec = json!({
        "roles": [{"namespace": "default", "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}],
        "roleBindings": [{"namespace": "default", "roleRef": {"kind": "Role"}, "subject": account}],
    });
    permission(&fleet, "p", spec.clone()).await?;
    condition(
        &fleet,
        "p",
        "SubjectPresent",
        "False",
        "ManagedServiceAccount cluster1/robot does not exist",
    )
    .await?;
    yaml::apply(&admin, ROBOT).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "cluster1");
    let token = wait::until("the token is on the hub", || async {
        let secret = secrets.get_opt("robot").await?;
        Ok(secret
            .and_then(|s| s.data)
            .and_then(|mut data| data.remove("token")))
    })
    .await?;
    let robot = cluster
        .with_token(&String::from_utf8(token.0).context("a token is text")?)
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(robot.clone(), "default");
    let others: Api<Secret> = Api::namespaced(robot, "default");
    wait::until_true("the granted request succeeds", || async {
        Ok(code(maps.list(&ListParams::default()).await) == 200)
    })
    .await?;
    ensure!(
        code(others.list(&ListParams::default()).await) == 403,
        "what is not granted is refused"
    );

    // The permission is taken away, the account and its token stay: who asks is known, and refused.
    permission(&fleet, "p", json!({"roleBindings": []})).await?;
    wait::until_true("the live token is refused", || async {
        Ok(code(maps.list(&ListParams::default()).await) == 403)
    })
    .await?;
    ensure!(code(others.list(&ListParams::default()).await) == 403);
    permission(&fleet, "p", spec).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    wait::until_true("the granted request succeeds again", || async {
        Ok(code(maps.list(&ListParams::default()).await) == 200)
    })
    .await?;

    // The account goes: what was granted to it is revoked, and comes back with it.
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(admin.clone(), "cluster1");
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::namespaced(cluster.admin().await?, "default");
    accounts.delete("robot", &DeleteParams::default()).await?;
    condition(
        &fleet,
        "p",
        "SubjectPresent",
        "False",
        "cluster1/robot does not exist",
    )
    .await?;
    wait::until_true("the binding is gone", || async {
        Ok(bindings.get_opt("p").await?.is_none())
    })
    .await?;
    wait::until_true("the token is worth nothing", || async {
        let answer = code(maps.list(&ListParams::default()).await);
        Ok(answer == 401 || answer == 403)
    })
    .await?;
    ensure!([401, 403].contains(&code(others.list(&ListParams::default()).await)));
    yaml::apply(&admin, ROBOT).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    wait::until_true("the binding is back", || async {
        Ok(bindings.get_opt("p").await?.is_some())
    })
    .await
}
