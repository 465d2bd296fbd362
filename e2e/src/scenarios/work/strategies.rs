//! How objects are written, shared, kept and reported.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret, rbac::v1::RoleBinding};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::support::{
    agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
    spoke, status_of, works,
};
use crate::{Fleet, at_once, wait};

fn with_strategy(manifest: &Value, strategy: &Value) -> Value {
    json!({"workload": {"manifests": [manifest]},
        "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "*", "name": "*"},
            "updateStrategy": strategy}]})
}

/// The four strategies, and ignored fields.
pub async fn strategies(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");

    create(
        &works,
        "once",
        with_strategy(
            &config_map("default", "once", "1"),
            &json!({"type": "CreateOnly"}),
        ),
    )
    .await?;
    holds(&maps, "once", "1").await?;
    change(
        &works,
        "once",
        json!({"spec": {"workload": {"manifests": [config_map("default", "once", "2")]}}}),
    )
    .await?;
    condition(&works, "once", "Applied", "True").await?;
    holds(&maps, "once", "1").await?;

    create(
        &works,
        "read",
        with_strategy(&config_map("default", "read", "1"), &json!({"type": "ReadOnly"})),
    )
    .await?;
    let work = condition(&works, "read", "Applied", "True").await?;
    ensure!(manifest_condition(&work, 0, "Available")?.0 == "False");
    ensure!(maps.get_opt("read").await?.is_none());

    // Somebody owns the field: a conflict, until it is forced.
    let theirs = config_map("default", "shared", "theirs");
    maps.patch("shared", &PatchParams::apply("somebody"), &Patch::Apply(&theirs))
        .await?;
    let ours = config_map("default", "shared", "ours");
    create(
        &works,
        "shared",
        with_strategy(&ours, &json!({"type": "ServerSideApply"})),
    )
    .await?;
    let work = condition(&works, "shared", "Applied", "False").await?;
    ensure!(manifest_condition(&work, 0, "Applied")?.2.contains("conflict"));
    let forced = json!({"type": "ServerSideApply", "serverSideApply": {"force": true, "fieldManager": "work-agent-x"}});
    change(&works, "shared", json!({"spec": with_strategy(&ours, &forced)})).await?;
    let map = holds(&maps, "shared", "ours").await?;
    ensure!(
        map.managed_fields()
            .iter()
            .any(|entry| entry.manager.as_deref() == Some("work-agent-x"))
    );

    // A field that is ignored once the object exists.
    let ignoring = json!({"type": "ServerSideApply", "serverSideApply": {"force": true,
        "ignoreFields": [{"condition": "OnSpokePresent", "jqPathExpressions": [".data.key"]}]}});
    create(
        &works,
        "loose",
        with_strategy(&config_map("default", "loose", "1"), &ignoring),
    )
    .await?;
    holds(&maps, "loose", "1").await?;
    let edit = json!({"data": {"key": "edited"}});
    maps.patch("loose", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    change(
        &works,
        "loose",
        json!({"spec": {"workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "loose"},
             "data": {"key": "2", "more": "x"}}]}}}),
    )
    .await?;
    wait::until_true("the other field is applied", || async {
        Ok(maps
            .get("loose")
            .await?
            .data
            .is_some_and(|data| data.contains_key("more")))
    })
    .await?;
    holds(&maps, "loose", "edited").await?;

    // A field that is left as somebody changed it, until the manifest changes; in the other two path languages.
    for (name, paths) in [
        (
            "pointer",
            json!({"condition": "OnSpokeChange", "jsonPointers": ["/data/key"]}),
        ),
        (
            "path",
            json!({"condition": "OnSpokeChange", "jsonPaths": [".data.key"]}),
        ),
    ] {
        let leaving =
            json!({"type": "ServerSideApply", "serverSideApply": {"force": true, "ignoreFields": [paths]}});
        create(
            &works,
            name,
            with_strategy(&config_map("default", name, "1"), &leaving),
        )
        .await?;
        condition(&works, name, "Applied", "True").await?;
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        // A new revision with the same manifest makes the agent look at the object again.
        change(
            &works,
            name,
            json!({"spec": {"deleteOption": {"propagationPolicy": "Orphan"}}}),
        )
        .await?;
        condition(&works, name, "Applied", "True").await?;
        holds(&maps, name, "edited").await?;
        let mut changed = config_map("default", name, "1");
        if let Some(data) = changed.get_mut("data") {
            *data = json!({"key": "1", "more": "x"});
        }
        change(
            &works,
            name,
            json!({"spec": {"workload": {"manifests": [changed]}}}),
        )
        .await?;
        holds(&maps, name, "1").await?;
    }
    Ok(())
}

/// Two works share an object; orphans stay; labels reach the AppliedManifestWork.
pub async fn ownership(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let both = json!({"workload": {"manifests": [config_map("default", "both", "1")]}});
    create(&works, "one", both.clone()).await?;
    create(&works, "two", both).await?;
    condition(&works, "one", "Applied", "True").await?;
    condition(&works, "two", "Applied", "True").await?;
    wait::until_true("two owners", || async {
        Ok(maps.get("both").await?.owner_references().len() == 2)
    })
    .await?;
    delete(&works, "one").await?;
    let map = holds(&maps, "both", "1").await?;
    ensure!(map.owner_references().len() == 1);
    delete(&works, "two").await?;
    gone(&maps, "both").await?;

    // Whoever may write an object may also name another work as its owner: one that knows nothing of it keeps nothing.
    for name in ["mine", "bystander"] {
        let spec = json!({"workload": {"manifests": [config_map("default", name, "1")]}});
        create(&works, name, spec).await?;
        condition(&works, name, "Applied", "True").await?;
    }
    let other = maps.get("bystander").await?.owner_references().to_vec();
    let mut owners = maps.get("mine").await?.owner_references().to_vec();
    owners.extend(other);
    let forged = json!({"metadata": {"ownerReferences": owners}});
    maps.patch("mine", &PatchParams::default(), &Patch::Merge(forged))
        .await?;
    delete(&works, "mine").await?;
    gone(&maps, "mine").await?;
    holds(&maps, "bystander", "1").await?;

    let manifests = json!([
        config_map("default", "kept", "1"),
        config_map("default", "dropped", "1")
    ]);
    create(
        &works,
        "some",
        json!({"workload": {"manifests": manifests}, "deleteOption": {"propagationPolicy": "SelectivelyOrphan",
            "selectivelyOrphans": {"orphaningRules": [{"resource": "configmaps", "namespace": "default", "name": "kept"}]}}}),
    )
    .await?;
    condition(&works, "some", "Applied", "True").await?;
    change(&works, "some", json!({"metadata": {"labels": {"team": "a"}}})).await?;
    let anchors: Api<writ_api::work::AppliedManifestWork> = Api::all(client.clone());
    wait::until_true("the label arrives", || async {
        let found = anchors.list(&ListParams::default()).await?;
        Ok(found
            .items
            .iter()
            .any(|anchor| anchor.labels().get("team").map(String::as_str) == Some("a")))
    })
    .await?;
    delete(&works, "some").await?;
    gone(&maps, "dropped").await?;
    let kept = holds(&maps, "kept", "1").await?;
    ensure!(kept.owner_references().is_empty());
    Ok(())
}

/// Values and conditions reach the hub within a second; a work that is complete is left alone.
pub async fn feedback(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let labels = json!({"app": "web"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}});
    create(
        &works,
        "web",
        json!({"workload": {"manifests": [deployment]}, "manifestConfigs": [{
            "resourceIdentifier": {"group": "apps", "resource": "deployments", "namespace": "def*", "name": "*"},
            "feedbackRules": [{"type": "WellKnownStatus"}, {"type": "JSONPaths", "jsonPaths": [
                {"name": "images", "path": ".spec.template.spec.containers[*].image"}]}],
            "conditionRules": [{"condition": "Ready", "type": "CEL",
                "celExpressions": ["has(object.status.readyReplicas) && object.status.readyReplicas == object.spec.replicas"],
                "messageExpression": "string(object.spec.replicas) + ' wanted'"}],
        }]}),
    )
    .await?;
    let work = condition(&works, "web", "Ready", "False").await?;
    ensure!(manifest_condition(&work, 0, "StatusFeedbackSynced")?.0 == "True");
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
    let started = Instant::now();
    deployments
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let work = condition(&works, "web", "Ready", "True").await?;
    let elapsed = started.elapsed();
    ensure!(manifest_condition(&work, 0, "Ready")?.2 == "2 wanted");
    let values = status_of(&work)
        .resource_status
        .manifests
        .first()
        .context("a manifest")?
        .status_feedback
        .values
        .clone();
    ensure!(
        values
            .iter()
            .any(|v| v.name == "ReadyReplicas" && v.value.integer == Some(2)),
        "{values:?}"
    );
    at_once("feedback", elapsed)?;
    Ok(())
}

/// A kind and an object of it in one work; a work that is gone from the hub is evicted.
pub async fn definitions_and_eviction(fleet: Fleet) -> Result<()> {
    let options = writ_agent::Options {
        work: writ_agent::options::WorkOptions {
            eviction_grace_period: Duration::from_secs(2),
            ..Default::default()
        },
        ..Default::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.toys.example.com"},
        "spec": {"group": "toys.example.com", "scope": "Namespaced",
            "names": {"kind": "Toy", "plural": "toys", "singular": "toy", "listKind": "ToyList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let toy = json!({"apiVersion": "toys.example.com/v1", "kind": "Toy", "metadata": {"name": "t", "namespace": "default"}});
    create(
        &works,
        "toys",
        json!({"workload": {"manifests": [toy, definition]}}),
    )
    .await?;
    condition(&works, "toys", "Applied", "True").await?;
    delete(&works, "toys").await?;

    create(
        &works,
        "lost",
        json!({"workload": {"manifests": [config_map("default", "lost", "1")]}}),
    )
    .await?;
    condition(&works, "lost", "Applied", "True").await?;
    // An AppliedManifestWork of this agent whose work was never there.
    let anchors: Api<writ_api::work::AppliedManifestWork> = Api::all(client.clone());
    let mut stray = anchors
        .list(&ListParams::default())
        .await?
        .items
        .pop()
        .context("an AppliedManifestWork")?;
    stray.metadata = kube::core::ObjectMeta {
        name: Some(format!("{}-stray", stray.spec.hub_hash)),
        ..Default::default()
    };
    stray.spec.manifest_work_name = "stray".into();
    stray.status = None;
    anchors.create(&PostParams::default(), &stray).await?;
    wait::until_true("the stray is evicted", || async {
        Ok(anchors.get_opt(&stray.name_any()).await?.is_none())
    })
    .await?;
    holds(&config_maps(&client, "default"), "lost", "1").await?;
    Ok(())
}

/// The role of a binding and the type of a Secret cannot be changed: such an object is made anew, but not deleted for one
/// that the server would not take.
pub async fn made_anew(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let binding = |role: &str, subject: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": "default", "name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject]})
    };
    let ann = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let secret = |type_: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "certificate"},
            "type": type_, "stringData": data})
    };
    let spec = |binding: Value, secret: Value| json!({"workload": {"manifests": [binding, secret]}});
    let first = spec(
        binding("view", ann.clone()),
        secret("Opaque", json!({"key": "1"})),
    );
    create(&works, "w", first).await?;
    condition(&works, "w", "Applied", "True").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    let uids = || async {
        anyhow::Ok((
            bindings.get("readers").await?.uid(),
            secrets.get("certificate").await?.uid(),
        ))
    };
    let before = uids().await?;

    // Neither can be made: there are no such subjects, and a certificate has two parts.
    let nobody = json!({"kind": "Robot", "name": "bob"});
    let bad = spec(
        binding("edit", nobody),
        secret("kubernetes.io/tls", json!({"tls.key": "x"})),
    );
    change(&works, "w", json!({"spec": bad})).await?;
    let work = condition(&works, "w", "Applied", "False").await?;
    for ordinal in 0..2 {
        ensure!(manifest_condition(&work, ordinal, "Applied")?.0 == "False");
    }
    ensure!(before == uids().await?, "what was there is gone");

    let good = spec(
        binding("edit", ann),
        secret("kubernetes.io/tls", json!({"tls.key": "x", "tls.crt": "y"})),
    );
    change(&works, "w", json!({"spec": good})).await?;
    condition(&works, "w", "Applied", "True").await?;
    let after = uids().await?;
    ensure!(
        before.0 != after.0 && before.1 != after.1,
        "they were not made anew"
    );
    ensure!(bindings.get("readers").await?.role_ref.name == "edit");
    Ok(())
}

/// What one work created, and wants nothing more of, another one that writes the same object does not wipe.
pub async fn created_by_another(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "m"}, "data": data});
    let configs = json!([{"resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "m"},
        "updateStrategy": {"type": "CreateOnly"}}]);
    let first = json!({"workload": {"manifests": [map(json!({"a": "1"}))]}, "manifestConfigs": configs});
    create(&works, "first", first).await?;
    condition(&works, "first", "Applied", "True").await?;
    create(
        &works,
        "second",
        json!({"workload": {"manifests": [map(json!({"b": "2"}))]}}),
    )
    .await?;
    condition(&works, "second", "Applied", "True").await?;
    let found = config_maps(&client, "default")
        .get("m")
        .await?
        .data
        .unwrap_or_default();
    ensure!(found.get("a").map(String::as_str) == Some("1"), "{found:?}");
    ensure!(found.get("b").map(String::as_str) == Some("2"), "{found:?}");
    Ok(())
}
