//! What keeps a work from being applied is said, and heals when it ends.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, rbac::v1::ClusterRole};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::work::AppliedManifestWork;

use super::{
    delivery::TOYS,
    executor::{ALL, grant, spec},
    support::{
        agent, change, condition, config_map, config_maps, create, gone, holds, manifest_condition, refused,
        spoke, status_of, works,
    },
};
use crate::{Cluster, Fleet, at_once, fleet::AGENT_NAMESPACE, wait, yaml};

/// Lets account `a` hold Toys and their definition.
const TOY_KEEPER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: toy-keeper}
rules:
- {apiGroups: [toys.example.com], resources: ["*"], verbs: ["*"]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: toy-keeper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: toy-keeper}
subjects:
- {kind: ServiceAccount, name: a, namespace: default}
"#;

fn toy(group: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Toy", "metadata": {"name": "t", "namespace": "default"}})
}

/// Under an executor: a kind that comes late, and one that comes with the work itself.
pub async fn late(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, &grant("a", ALL)).await?;
    yaml::apply(&client, TOY_KEEPER).await?;
    let manifests = json!([config_map("default", "one", "1"), toy("toys.example.com")]);
    create(&works, "late", spec("a", &manifests)).await?;
    condition(&works, "late", "Applied", "False").await?;
    // Until the API server has heard of the grants, rights are missing as well.
    wait::until_true("nothing but the kind is missing", || async {
        let work = works.get("late").await?;
        let held = manifest_condition(&work, 0, "Applied")?.1 == "AppliedManifestHeldBack";
        Ok(held && manifest_condition(&work, 1, "Applied")?.2.contains("Toy"))
    })
    .await?;
    let started = Instant::now();
    yaml::apply(&client, TOYS).await?;
    condition(&works, "late", "Applied", "True").await?;
    at_once("healing", started.elapsed())?;

    let group = "more.toys.example.com";
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("toys.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": "Toy", "plural": "toys", "singular": "toy", "listKind": "ToyList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    create(&works, "both", spec("a", &json!([toy(group), definition]))).await?;
    refused(&works, "both", 0, &["may not create"]).await?;
    let roles: Api<ClusterRole> = Api::all(client);
    let rule = json!({"apiGroups": ["toys.example.com", group, "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]});
    roles
        .patch(
            "toy-keeper",
            &PatchParams::default(),
            &Patch::Merge(&json!({"rules": [rule]})),
        )
        .await?;
    condition(&works, "both", "Applied", "True").await?;
    Ok(())
}

/// Gives the agent's role on the managed cluster these rules.
async fn narrow(client: &Client, role: &str, rules: &Value) -> Result<()> {
    let api: Api<ClusterRole> = Api::all(client.clone());
    api.patch(
        role,
        &PatchParams::default(),
        &Patch::Merge(&json!({"rules": rules})),
    )
    .await?;
    Ok(())
}

/// Waits until the API server's own view of what the agent may do has followed.
async fn agent_may(cluster: &Cluster, verb: &str, group: &str, resource: &str, may: bool) -> Result<()> {
    let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:writ-agent");
    wait::until_true(&format!("the agent may {verb} {resource}: {may}"), || async {
        let what = ResourceAttributes {
            verb: Some(verb.into()),
            group: Some(group.into()),
            resource: Some(resource.into()),
            ..ResourceAttributes::default()
        };
        Ok(cluster.allows(&user, &["system:authenticated"], what).await? == may)
    })
    .await
}

/// Where RBAC cannot be listed, or nobody can be asked, the works with an executor say so, and the others are delivered.
pub async fn cannot_ask(fleet: Fleet) -> Result<()> {
    let (client, cluster) = (spoke(&fleet).await?, fleet.cluster(1)?);
    let own = json!({"apiGroups": ["work.open-cluster-management.io"],
        "resources": ["appliedmanifestworks", "appliedmanifestworks/status"], "verbs": ["*"]});
    let lists = json!({"apiGroups": ["rbac.authorization.k8s.io", ""],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings", "namespaces"], "verbs": ["get", "list", "watch"]});
    let asks = json!({"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]});
    narrow(&client, "writ:agent:work", &json!([own])).await?;
    narrow(
        &client,
        "writ:agent:deliver",
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]),
    )
    .await?;
    agent_may(
        cluster,
        "list",
        "rbac.authorization.k8s.io",
        "clusterroles",
        false,
    )
    .await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let works = works(&fleet).await?;
    let maps = config_maps(&client, "default");
    yaml::apply(&client, &grant("a", ALL)).await?;
    create(
        &works,
        "w",
        spec("a", &json!([config_map("default", "one", "1")])),
    )
    .await?;
    let plain = json!({"workload": {"manifests": [config_map("default", "plain", "1")]}});
    create(&works, "plain", plain).await?;
    condition(&works, "plain", "Applied", "True").await?;
    let says = |words: &'static str| {
        let works = &works;
        wait::until_true(words, move || async move {
            let work = works.get("w").await?;
            let status = status_of(&work);
            let found = status.conditions.iter().find(|c| c.type_ == "Applied");
            Ok(found.is_some_and(|c| c.status == "False" && c.message.contains(words)))
        })
    };
    says("cannot be listed").await?;
    narrow(&client, "writ:agent:work", &json!([own, lists])).await?;
    says("cannot be checked what executor").await?;
    ensure!(maps.get_opt("one").await?.is_none(), "nothing is written unasked");
    narrow(&client, "writ:agent:work", &json!([own, lists, asks])).await?;
    condition(&works, "w", "Applied", "True").await?;
    holds(&maps, "one", "1").await?;
    Ok(())
}

/// While a work is refused, its status follows what is there, as far as the executor may read it.
pub async fn told(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    yaml::apply(&client, &grant("a", "create, update, patch, get")).await?;
    let live = serde_json::from_value(config_map("default", "one", "theirs"))?;
    maps.create(&PostParams::default(), &live).await?;
    let mut refused = spec(
        "a",
        &json!([
            config_map("default", "one", "1"),
            config_map("default", "two", "1")
        ]),
    );
    if let Some(spec) = refused.as_object_mut() {
        let rule = json!({"type": "JSONPaths", "jsonPaths": [{"name": "key", "path": ".data.key"}]});
        let id = json!({"resource": "configmaps", "namespace": "*", "name": "*"});
        let config = json!([{"resourceIdentifier": id, "feedbackRules": [rule]}]);
        spec.insert("manifestConfigs".into(), config);
    }
    create(&works, "w", refused).await?;
    condition(&works, "w", "Applied", "False").await?;
    // From when the API server has heard that the executor may read.
    wait::until_true("it is told what is there", || async {
        let work = works.get("w").await?;
        let there = |ordinal| manifest_condition(&work, ordinal, "Available").map(|found| found.0);
        Ok(there(0)? == "True" && there(1)? == "False")
    })
    .await?;
    let reports = |value: &'static str| {
        let works = &works;
        wait::until_true(value, move || async move {
            let status = status_of(&works.get("w").await?);
            let first = status.resource_status.manifests.first();
            Ok(first.is_some_and(|first| json!(first.status_feedback).to_string().contains(value)))
        })
    };
    reports("theirs").await?;
    let edit = json!({"data": {"key": "changed"}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    reports("changed").await?;
    holds(&maps, "one", "changed").await?;
    // What may not be read is not told.
    yaml::apply(&client, &grant("a", "create")).await?;
    wait::until_true("nobody knows", || async {
        let work = works.get("w").await?;
        Ok(manifest_condition(&work, 0, "Available")?.0 == "Unknown")
    })
    .await?;
    yaml::apply(&client, &grant("a", ALL)).await?;
    condition(&works, "w", "Applied", "True").await?;
    reports("1").await?;
    condition(&works, "w", "Available", "True").await?;
    Ok(())
}

/// A right of the agent itself that is granted late, a finalizer that keeps what was pruned, a name that is too long.
pub async fn waited_for(fleet: Fleet) -> Result<()> {
    let (client, cluster) = (spoke(&fleet).await?, fleet.cluster(1)?);
    let maps = config_maps(&client, "default");
    let rules = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    narrow(&client, "writ:agent:deliver", &rules(&["get", "list", "watch"])).await?;
    agent_may(cluster, "create", "", "configmaps", false).await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let works = works(&fleet).await?;
    let manifests = |names: &[&str]| {
        let all: Vec<_> = names
            .iter()
            .map(|name| config_map("default", name, "1"))
            .collect();
        json!({"workload": {"manifests": all}})
    };
    create(&works, "w", manifests(&["one", "two"])).await?;
    let work = condition(&works, "w", "Applied", "False").await?;
    let message = manifest_condition(&work, 0, "Applied")?.2;
    ensure!(message.contains("forbidden"), "{message}");
    let started = Instant::now();
    narrow(&client, "writ:agent:deliver", &rules(&["*"])).await?;
    condition(&works, "w", "Applied", "True").await?;
    at_once("delivered after the agent got the right", started.elapsed())?;

    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let merge = PatchParams::default();
    maps.patch("two", &merge, &Patch::Merge(&hold(json!(["example.com/hold"]))))
        .await?;
    change(&works, "w", json!({"spec": manifests(&["one"])})).await?;
    wait::until_true("it is on its way out", || async {
        Ok(maps.get("two").await?.metadata.deletion_timestamp.is_some())
    })
    .await?;
    condition(&works, "w", "Applied", "True").await?;
    let anchors: Api<AppliedManifestWork> = Api::all(client);
    let recorded = || async {
        let all = anchors.list(&ListParams::default()).await?;
        let status = all.items.into_iter().filter_map(|anchor| anchor.status);
        anyhow::Ok(status.map(|status| status.applied_resources.len()).sum::<usize>())
    };
    // The record is written beside the report.
    wait::until_true("what is not gone stays recorded", || async {
        Ok(recorded().await? == 2)
    })
    .await?;
    maps.patch("two", &merge, &Patch::Merge(&hold(Value::Null)))
        .await?;
    let started = Instant::now();
    gone(&maps, "two").await?;
    wait::until_true("its end is recorded", || async { Ok(recorded().await? == 1) }).await?;
    at_once("its end was seen", started.elapsed())?;

    let long = "x".repeat(189);
    create(&works, &long, manifests(&["three"])).await?;
    let work = condition(&works, &long, "Applied", "False").await?;
    let status = json!(work.status).to_string();
    ensure!(status.contains("give it a shorter one"), "{status}");
    ensure!(maps.get_opt("three").await?.is_none());
    works.delete(&long, &DeleteParams::default()).await?;
    Ok(())
}
