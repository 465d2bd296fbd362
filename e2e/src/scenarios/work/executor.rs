//! The gate: what the executor may not hold is not written.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Secret, rbac::v1::Role};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_agent::options::{Authorizers, ExecutorGranularity, NilExecutor, WorkOptions};

use super::support::{
    agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
    refused, spoke, status_of, works,
};
use crate::{Fleet, at_once, wait, yaml};

fn executor(name: &str) -> Value {
    json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": name}}})
}

/// A work of these manifests for an account of `default`.
pub fn spec(executor_name: &str, manifests: &Value) -> Value {
    json!({"workload": {"manifests": manifests}, "executor": executor(executor_name)})
}

/// Grants an account of `default` these verbs on ConfigMaps of `default`.
pub fn grant(account: &str, verbs: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: "grant-{account}", namespace: default}}
rules:
- {{apiGroups: [""], resources: [configmaps], verbs: [{verbs}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: "grant-{account}", namespace: default}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: "grant-{account}"}}
subjects:
- {{kind: ServiceAccount, name: {account}, namespace: default}}
"#
    )
}

/// What holding an object takes.
pub const ALL: &str = "create, update, patch, get, delete";

/// All or nothing; granted and revoked within a second; one account's grant is not another's.
pub async fn grants(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    yaml::apply(&client, &grant("a", "create, update, patch, get")).await?;
    let manifests = json!([
        config_map("default", "one", "1"),
        config_map("default", "two", "1")
    ]);
    create(&works, "w", spec("a", &manifests)).await?;
    // Until the API server has heard of the grant it may lack more.
    wait::until_true("the work says what its executor lacks", || async {
        let work = condition(&works, "w", "Applied", "False").await?;
        let lacks = "may not delete configmaps in namespace default: 2 (one, two)";
        let conditions = status_of(&work).conditions;
        Ok(conditions
            .iter()
            .any(|c| c.type_ == "Applied" && c.message.contains(lacks)))
    })
    .await?;
    ensure!(maps.get_opt("one").await?.is_none(), "nothing is written");

    let started = Instant::now();
    yaml::apply(&client, &grant("a", ALL)).await?;
    holds(&maps, "two", "1").await?;
    let granted = started.elapsed();
    condition(&works, "w", "Applied", "True").await?;

    // A name that begins the same is another account.
    create(
        &works,
        "other",
        spec("ab", &json!([config_map("default", "theirs", "1")])),
    )
    .await?;
    condition(&works, "other", "Applied", "False").await?;

    // The subject is removed by an edit of the binding.
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(client.clone(), "default");
    let started = Instant::now();
    bindings
        .patch(
            "grant-a",
            &PatchParams::default(),
            &Patch::Merge(&json!({"subjects": [{"kind": "ServiceAccount", "name": "somebody", "namespace": "default"}]})),
        )
        .await?;
    condition(&works, "w", "Applied", "False").await?;
    let revoked = started.elapsed();
    // What was applied stays, and is not repaired while refused.
    let edit = json!({"data": {"key": "drift"}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    // A manifest that the refused revision drops is pruned, what it changes is not written.
    change(
        &works,
        "w",
        json!({"spec": {"workload": {"manifests": [config_map("default", "one", "2")]}}}),
    )
    .await?;
    gone(&maps, "two").await?;
    condition(&works, "w", "Applied", "False").await?;
    holds(&maps, "one", "drift").await?;

    // Granted to a group that the account is in: applied, drift and all.
    bindings
        .patch(
            "grant-a",
            &PatchParams::default(),
            &Patch::Merge(&json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:default"}]})),
        )
        .await?;
    holds(&maps, "one", "2").await?;
    // Deletion needs no permission any more.
    bindings.delete("grant-a", &DeleteParams::default()).await?;
    condition(&works, "w", "Applied", "False").await?;
    delete(&works, "w").await?;
    gone(&maps, "one").await?;
    at_once("applied after the grant", granted)?;
    at_once("refused after the revocation", revoked)?;
    Ok(())
}

/// No work grants more than its executor holds, not even where an identical role exists already.
pub async fn escalation(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(
        &client,
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rbac-writer}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [create, update, patch, get, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rbac-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rbac-writer}
subjects:
- {kind: ServiceAccount, name: a, namespace: default}
"#,
    )
    .await?;
    let role = |name: &str, resource: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": "default", "name": name},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]})
    };
    let binding = |name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": "default", "name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "a"}]})
    };
    let roles: Api<Role> = Api::namespaced(client.clone(), "default");

    create(
        &works,
        "held",
        spec("a", &json!([role("held", "configmaps"), binding("held")])),
    )
    .await?;
    condition(&works, "held", "Applied", "True").await?;

    create(&works, "more", spec("a", &json!([role("more", "secrets")]))).await?;
    let work = condition(&works, "more", "Applied", "False").await?;
    ensure!(
        manifest_condition(&work, 0, "Applied")?
            .2
            .contains("permission escalation")
    );
    create(
        &works,
        "pair",
        spec("a", &json!([role("pair", "secrets"), binding("pair")])),
    )
    .await?;
    condition(&works, "pair", "Applied", "False").await?;
    ensure!(roles.get_opt("more").await?.is_none() && roles.get_opt("pair").await?.is_none());

    // The same role is there already: a server would not check an update that changes nothing.
    let same: Role = serde_json::from_value(role("same", "secrets"))?;
    roles.create(&PostParams::default(), &same).await?;
    create(&works, "same", spec("a", &json!([role("same", "secrets")]))).await?;
    condition(&works, "same", "Applied", "False").await?;
    let live = roles.get("same").await?;
    ensure!(
        live.metadata.owner_references.is_none(),
        "it is not taken over: {live:?}"
    );
    roles.delete("same", &DeleteParams::default()).await?;
    change(&works, "same", json!({"metadata": {"labels": {"look": "again"}}})).await?;
    condition(&works, "same", "Applied", "False").await?;
    ensure!(roles.get_opt("same").await?.is_none(), "it is not made again");
    Ok(())
}

/// What is the agent's own is nobody else's; an empty executor is nobody; Secrets stay secret.
pub async fn protected(fleet: Fleet) -> Result<()> {
    // Who the agent is, the API server says: what it was told is of no account.
    let options = writ_agent::Options {
        work: WorkOptions {
            service_account: "somebody-else".into(),
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(
        &client,
        r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mighty}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: a, namespace: default}
",
    )
    .await?;
    let own = config_map(crate::fleet::AGENT_NAMESPACE, "mine", "1");
    // Not written, and not read either.
    for (name, strategy) in [("own", "Update"), ("read", "ReadOnly")] {
        let mut spec = spec("a", &json!([own]));
        if let Some(spec) = spec.as_object_mut() {
            let id = json!({"resource": "configmaps", "namespace": "*", "name": "*"});
            let config = json!([{"resourceIdentifier": id, "updateStrategy": {"type": strategy}}]);
            spec.insert("manifestConfigs".into(), config);
        }
        create(&works, name, spec).await?;
        let work = refused(&works, name, 0, &["is the agent's own"]).await?;
        ensure!(manifest_condition(&work, 0, "Available")?.0 == "Unknown");
    }
    let more = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "namespace": crate::fleet::AGENT_NAMESPACE, "name": "writ-agent"}]});
    create(&works, "more", spec("a", &json!([more]))).await?;
    refused(&works, "more", 0, &["names the agent itself"]).await?;
    let takeover = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "writ:agent:deliver"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writ:agent:deliver"},
        "subjects": []});
    create(&works, "takeover", spec("a", &json!([takeover]))).await?;
    condition(&works, "takeover", "Applied", "False").await?;
    // A grant that reaches the agent's namespace by its selector.
    let grant = |selector: Value| {
        json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "reach"},
            "spec": {"namespaceSelector": selector, "name": "reach",
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}})
    };
    create(&works, "reach", spec("a", &json!([grant(json!({}))]))).await?;
    refused(&works, "reach", 0, &["is the agent's own"]).await?;
    let elsewhere = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
        "values": [crate::fleet::AGENT_NAMESPACE]}]});
    change(
        &works,
        "reach",
        json!({"spec": {"workload": {"manifests": [grant(elsewhere)]}}}),
    )
    .await?;
    condition(&works, "reach", "Applied", "True").await?;
    // Without an executor the agent acts as itself, and may.
    create(&works, "itself", json!({"workload": {"manifests": [own]}})).await?;
    condition(&works, "itself", "Applied", "True").await?;

    create(
        &works,
        "empty",
        json!({"workload": {"manifests": [config_map("default", "empty", "1")]}, "executor": {}}),
    )
    .await?;
    condition(&works, "empty", "Applied", "False").await?;
    ensure!(config_maps(&client, "default").get_opt("empty").await?.is_none());

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "missing"},
        "stringData": {"password": "hunter2"}});
    let bad = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad", "namespace": "default"},
        "data": {"password": "hunter2 is not base64!"}});
    create(
        &works,
        "secret",
        json!({"workload": {"manifests": [secret, bad]}}),
    )
    .await?;
    let work = condition(&works, "secret", "Applied", "False").await?;
    let text = serde_json::to_string(&work.status)?;
    ensure!(!text.contains("hunter2"), "{text}");
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    ensure!(secrets.get_opt("bad").await?.is_none());
    Ok(())
}

/// Where others than RBAC decide too, only exact questions count; granted, revoked and granted again all the same.
pub async fn other_authorizers(fleet: Fleet) -> Result<()> {
    let options = writ_agent::Options {
        work: WorkOptions {
            authorizers: Authorizers::Other,
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let manifests = json!([
        config_map("default", "one", "1"),
        config_map("default", "two", "1")
    ]);
    create(&works, "w", spec("a", &manifests)).await?;
    condition(&works, "w", "Applied", "False").await?;
    yaml::apply(&client, &grant("a", ALL)).await?;
    condition(&works, "w", "Applied", "True").await?;
    holds(&maps, "two", "1").await?;
    yaml::apply(&client, &grant("a", "create, update, patch, get")).await?;
    let work = condition(&works, "w", "Applied", "False").await?;
    ensure!(
        manifest_condition(&work, 0, "Applied")?
            .2
            .contains("may not delete")
    );
    yaml::apply(&client, &grant("a", ALL)).await?;
    condition(&works, "w", "Applied", "True").await?;
    Ok(())
}

/// The two switches: no executor refused, and what is allowed applied.
pub async fn switches(fleet: Fleet) -> Result<()> {
    let options = writ_agent::Options {
        work: WorkOptions {
            nil_executor: NilExecutor::Deny,
            executor_granularity: ExecutorGranularity::Manifest,
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    create(
        &works,
        "nil",
        json!({"workload": {"manifests": [config_map("default", "nil", "1")]}}),
    )
    .await?;
    condition(&works, "nil", "Applied", "False").await?;
    ensure!(maps.get_opt("nil").await?.is_none());
    yaml::apply(&client, &grant("a", ALL)).await?;
    let manifests = json!([
        config_map("default", "mine", "1"),
        config_map("kube-public", "not-mine", "1")
    ]);
    create(&works, "part", spec("a", &manifests)).await?;
    holds(&maps, "mine", "1").await?;
    condition(&works, "part", "Applied", "False").await?;
    // It is written before it is reported.
    let work = wait::until("what is allowed is reported", || async {
        let work = works.get("part").await?;
        Ok((manifest_condition(&work, 0, "Applied")?.0 == "True").then_some(work))
    })
    .await?;
    ensure!(manifest_condition(&work, 1, "Applied")?.1 == "AppliedManifestFailed");
    ensure!(
        config_maps(&client, "kube-public")
            .get_opt("not-mine")
            .await?
            .is_none()
    );
    Ok(())
}
