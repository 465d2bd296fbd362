//! Secrets in works: delivered, changed, refused in every way there is.

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet};
use writ_e2e::{
    Fleet,
    scenarios::work::support::{change, condition, create, delete, manifest_condition, spoke, works},
    wait, yaml,
};

use crate::marks::Marks;

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn secret(name: &str, content: Value) -> Value {
    let mut secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": name}});
    if let (Some(secret), Value::Object(content)) = (secret.as_object_mut(), content) {
        secret.extend(content);
    }
    secret
}

fn spec(manifests: Value) -> Value {
    json!({"workload": {"manifests": manifests}})
}

/// Waits until the Secret holds this password.
async fn holds(secrets: &Api<Secret>, name: &str, password: &str) -> Result<()> {
    wait::until_true(&format!("the Secret {name} holds its password"), || async {
        let found = secrets.get_opt(name).await?;
        let data = found.and_then(|secret| secret.data).unwrap_or_default();
        Ok(data
            .get("password")
            .is_some_and(|have| have.0 == password.as_bytes()))
    })
    .await
}

/// All the cases.
pub async fn deliver(fleet: &Fleet, marks: &Marks) -> Result<()> {
    let (works, client) = (works(fleet).await?, spoke(fleet).await?);
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    change_and_drift(&works, &secrets, marks).await?;
    conflict(&works, &secrets, marks).await?;
    invalid(&works, marks).await?;
    rules(&works, marks).await?;
    read_only(&works, &secrets, marks).await?;
    executors(&works, marks).await?;
    refused_by_admission(&works, marks).await?;
    replica_set(fleet, marks).await
}

/// Applied, changed, drifted and repaired, immutable and replaced, deleted.
async fn change_and_drift(works: &Api<ManifestWork>, secrets: &Api<Secret>, marks: &Marks) -> Result<()> {
    let (first, second) = (marks.secret("first"), marks.secret("second"));
    let with = |password: &str| {
        spec(json!([
            secret("good", json!({"data": {"password": encoded(password)}})),
            secret("plain", json!({"stringData": {"password": password}})),
            secret(
                "fixed",
                json!({"immutable": true, "stringData": {"password": password}})
            ),
        ]))
    };
    create(works, "good", with(&first)).await?;
    condition(works, "good", "Available", "True").await?;
    change(works, "good", json!({"spec": with(&second)})).await?;
    for name in ["good", "plain", "fixed"] {
        holds(secrets, name, &second).await?;
    }
    let drift = json!({"stringData": {"password": marks.secret("drift")}});
    secrets
        .patch("good", &PatchParams::default(), &Patch::Merge(&drift))
        .await?;
    holds(secrets, "good", &second).await?;
    condition(works, "good", "Applied", "True").await?;
    delete(works, "good").await
}

/// Somebody else owns the field.
async fn conflict(works: &Api<ManifestWork>, secrets: &Api<Secret>, marks: &Marks) -> Result<()> {
    let theirs = secret(
        "fought",
        json!({"stringData": {"password": marks.secret("theirs")}}),
    );
    secrets
        .patch("fought", &PatchParams::apply("somebody"), &Patch::Apply(&theirs))
        .await?;
    let mut ours = spec(json!([secret(
        "fought",
        json!({"data": {"password": encoded(&marks.secret("ours"))},
            "stringData": {"password": marks.secret("ours too")}})
    )]));
    ours["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "secrets", "namespace": "default", "name": "fought"},
        "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"fieldManager": "work-agent-other"}}}]);
    create(works, "fought", ours).await?;
    let work = condition(works, "fought", "Applied", "False").await?;
    let (_, reason, message) = manifest_condition(&work, 0, "Applied")?;
    ensure!(message.to_lowercase().contains("conflict"), "{reason}: {message}");
    Ok(())
}

/// What a server refuses, often by repeating what it was given.
async fn invalid(works: &Api<ManifestWork>, marks: &Marks) -> Result<()> {
    let nowhere = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "nowhere", "name": "s"},
        "stringData": {"password": marks.secret("no namespace")}});
    let mark = |what: &str| marks.secret(what);
    let cases = [
        (
            "not-base64",
            secret("s1", json!({"data": {"password": mark("not base64!")}})),
        ),
        (
            "nested",
            secret("s2", json!({"data": {"password": {"inner": mark("nested")}}})),
        ),
        ("a-text", secret("s3", json!({"data": mark("a text")}))),
        ("a-list", secret("s4", json!({"stringData": [mark("a list")]}))),
        (
            "a-key",
            secret("s5", json!({"stringData": {"no/key": mark("a bad key")}})),
        ),
        (
            "a-type",
            secret(
                "s6",
                json!({"type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": format!("{{{}", mark("not json"))}}),
            ),
        ),
        (
            "no-certificate",
            secret(
                "s7",
                json!({"type": "kubernetes.io/tls", "stringData": {"tls.key": mark("a key")}}),
            ),
        ),
        (
            "no-field",
            secret(
                "s9",
                json!({"password": mark("an unknown field"), "stringData": 5}),
            ),
        ),
        ("no-namespace", nowhere),
        (
            "no-version",
            json!({"apiVersion": "v9", "kind": "Secret", "metadata": {"namespace": "default", "name": "s10"},
            "stringData": {"password": mark("no such version")}}),
        ),
    ];
    for (name, manifest) in cases {
        for strategy in ["Update", "ServerSideApply", "CreateOnly"] {
            let name = format!("{name}-{}", strategy.to_lowercase());
            let mut spec = spec(json!([manifest]));
            spec["manifestConfigs"] = json!([{
                "resourceIdentifier": {"resource": "secrets", "namespace": "*", "name": "*"},
                "updateStrategy": {"type": strategy}}]);
            create(works, &name, spec)
                .await
                .with_context(|| format!("create the work {name}"))?;
            condition(works, &name, "Applied", "False").await?;
        }
    }
    Ok(())
}

/// Rules that read the Secret, well and badly.
async fn rules(works: &Api<ManifestWork>, marks: &Marks) -> Result<()> {
    let password = marks.secret("read by rules");
    let mut with = spec(json!([secret(
        "read",
        json!({"data": {"password": encoded(&password)}, "type": "Opaque"})
    )]));
    with["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "secrets", "namespace": "default", "name": "read"},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [
            {"name": "password", "path": ".data.password"},
            {"name": "data", "path": ".data"},
            {"name": "all", "path": "$"},
            {"name": "every", "path": "..*"},
            {"name": "fields", "path": ".metadata.managedFields"},
            {"name": "annotations", "path": ".metadata.annotations"},
            {"name": "type", "path": ".type"}]}],
        "conditionRules": [
            {"condition": "Sum", "type": "CEL", "celExpressions": ["object.data.password + 1 == 2"]},
            {"condition": "Number", "type": "CEL", "celExpressions": ["int(object.data.password) == 2"]},
            {"condition": "Says", "type": "CEL", "celExpressions": ["true"],
                "messageExpression": "'it is ' + object.data.password"},
            {"condition": "SaysAll", "type": "CEL", "celExpressions": ["true"],
                "messageExpression": "string(object)"},
            {"condition": "Is", "type": "CEL", "celExpressions": ["object.type == 'Opaque'"]}]}]);
    // What the hub refuses to store at all is no case for the agent.
    if create(works, "read", with.clone()).await.is_err() {
        with["manifestConfigs"][0]["feedbackRules"][0]["jsonPaths"] = json!([
            {"name": "password", "path": ".data.password"}, {"name": "data", "path": ".data"},
            {"name": "annotations", "path": ".metadata.annotations"}, {"name": "type", "path": ".type"}]);
        create(works, "read", with).await?;
    }
    let work = condition(works, "read", "Is", "True").await?;
    ensure!(
        serde_json::to_string(&work.status)?.contains("Opaque"),
        "what is not secret is reported: {:?}",
        work.status
    );
    Ok(())
}

/// A Secret of somebody who used kubectl, only read.
async fn read_only(works: &Api<ManifestWork>, secrets: &Api<Secret>, marks: &Marks) -> Result<()> {
    let theirs = secret(
        "applied",
        json!({"stringData": {"password": marks.secret("applied by kubectl")}}),
    );
    let mut live: Secret = serde_json::from_value(theirs.clone())?;
    live.metadata.annotations = Some(
        [
            (
                "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
                theirs.to_string(),
            ),
            ("plain".to_owned(), "said".to_owned()),
        ]
        .into(),
    );
    secrets.create(&PostParams::default(), &live).await?;
    let mut with = spec(json!([secret("applied", json!({}))]));
    with["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "secrets", "namespace": "default", "name": "applied"},
        "updateStrategy": {"type": "ReadOnly"},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [
            {"name": "annotations", "path": ".metadata.annotations"}]}]}]);
    create(works, "read-only", with).await?;
    let work = condition(works, "read-only", "Available", "True").await?;
    let told = serde_json::to_string(&work.status)?;
    ensure!(told.contains("said"), "{told}");
    Ok(())
}

/// Executors without rights, and one that is nobody: refused on the cluster, and by the hub.
async fn executors(works: &Api<ManifestWork>, marks: &Marks) -> Result<()> {
    let subject =
        json!({"type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": "nobody"}});
    let password = json!({"stringData": {"password": marks.secret("refused")}});
    let mut refused = spec(json!([secret("refused", password)]));
    refused["executor"] = json!({"subject": subject});
    create(works, "refused", refused.clone()).await?;
    condition(works, "refused", "Applied", "False").await?;
    refused["executor"] = json!({});
    let answer = create(works, "empty", refused).await;
    ensure!(answer.is_err(), "nobody is no executor");
    Ok(())
}

/// What the hub does not accept: the answer is for the author, the log for others.
async fn refused_by_admission(works: &Api<ManifestWork>, marks: &Marks) -> Result<()> {
    let one = secret(
        "twice",
        json!({"stringData": {"password": marks.secret("twice")}}),
    );
    let big = secret(
        "big",
        json!({"stringData": {"password": marks.secret("big").repeat(30_000)}}),
    );
    let nameless =
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"password": marks.secret("nameless")}});
    for manifests in [
        json!([one, one]),
        json!([big]),
        json!([nameless]),
        json!([{"password": marks.secret("no kind")}]),
    ] {
        let answer = create(works, "bad", spec(manifests)).await;
        let Err(error) = answer else {
            anyhow::bail!("it was accepted")
        };
        let told = marks.search("the hub's answer", &format!("{error:?}"));
        let ours = format!("{error:?}").contains("admission webhook");
        ensure!(!ours || told.is_empty(), "{told:?}");
    }
    Ok(())
}

const EVERYWHERE: &str = r"
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: global, namespace: default}
spec: {clusterSet: global}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: all, namespace: default}
spec: {}
";

/// The same through a replica set.
async fn replica_set(fleet: &Fleet, marks: &Marks) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, EVERYWHERE).await?;
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin, "default");
    let template = spec(json!([
        secret(
            "from-set",
            json!({"stringData": {"password": marks.secret("from a set")}})
        ),
        secret(
            "bad-from-set",
            json!({"data": {"password": marks.secret("bad from a set")}})
        ),
    ]));
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "set"}, "spec": {"manifestWorkTemplate": template, "placementRefs": [{"name": "all"}]}}))?;
    sets.create(&PostParams::default(), &set).await?;
    wait::until_true("the set has its work", || async {
        let summary = sets.get("set").await?.status.unwrap_or_default().summary;
        Ok(summary.total == 1)
    })
    .await
}
