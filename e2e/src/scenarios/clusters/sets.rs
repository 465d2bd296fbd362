//! What sets are made of, what they say, and what never happens in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::ConfigMap,
    rbac::v1::ClusterRole,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use writ_api::cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding};
use writ_hub::placement::explain::explain;

use super::{create, grant, refused, relabel, rule, run_hub, run_hub_with, set_yaml, user, wait_members};
use crate::{Fleet, fleet::HUB_NAMESPACE, wait, yaml};

async fn post(client: &Client, name: &str, spec: Value) -> Result<ManagedClusterSet> {
    let set: ManagedClusterSet = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name}, "spec": spec,
    }))?;
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    Ok(api.create(&PostParams::default(), &set).await?)
}

async fn condition(fleet: &Fleet, set: &str, type_: &str) -> Result<Option<(String, String)>> {
    let api: Api<ManagedClusterSet> = Api::all(fleet.hub.admin().await?);
    let conditions = api.get(set).await?.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|c| c.type_ == type_);
    Ok(found.map(|c| (c.reason, c.message)))
}

/// What no set can be; what a set says about itself; how it goes.
pub async fn shapes(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let long = "a".repeat(64);
    for (name, spec, words) in [
        (long.as_str(), json!({"exclusiveKey": "region"}), "at most 63"),
        ("x", json!({"exclusiveKey": "not a key"}), "spec.exclusiveKey"),
        (
            "x",
            json!({"exclusiveKey": "region", "clusterLabel": {"key": "region", "value": "y"}}),
            "spec.clusterLabel must be the exclusive key and the name of the set",
        ),
        (
            "x",
            json!({"exclusiveKey": "region", "clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
            "select exactly region=x",
        ),
        (
            "x",
            json!({"clusterSelector": {"selectorType": "LabelSelector",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
            "operator \"In\"",
        ),
    ] {
        refused(post(&admin, name, spec).await, words)?;
    }
    // A legacy form is rewritten; `clusterLabel` is welcome when it is right, and shown.
    let legacy = post(
        &admin,
        "old",
        json!({"clusterSelector": {"selectorType": "LegacyClusterSetLabel"}}),
    )
    .await?;
    ensure!(
        serde_json::to_value(&legacy.spec.cluster_selector)?
            == json!({"selectorType": "ExclusiveClusterSetLabel"})
    );
    post(
        &admin,
        "apac",
        json!({"exclusiveKey": "region", "clusterLabel": {"key": "region", "value": "apac"}}),
    )
    .await?;
    let says = async |reason: &str, message: &str| -> Result<()> {
        wait::until_true(&format!("apac says {reason}"), || async {
            Ok(condition(&fleet, "apac", "ClusterSetEmpty").await? == Some((reason.into(), message.into())))
        })
        .await
    };
    says("NoClusterMatched", "No ManagedCluster selected").await?;
    create(&admin, "mc1", json!({"region": "apac"})).await?;
    says("ClustersSelected", "1 ManagedClusters selected").await?;
    let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
    let label = sets
        .get("apac")
        .await?
        .status
        .and_then(|s| s.cluster_label)
        .context("no label")?;
    ensure!((label.key.as_str(), label.value.as_str()) == ("region", "apac"));
    // Nobody makes the selector lie to those who know no keys.
    let lie = json!({"spec": {"clusterSelector": {"labelSelector": {"matchLabels": null}}}});
    refused(
        sets.patch("apac", &PatchParams::default(), &Patch::Merge(lie))
            .await
            .map_err(Into::into),
        "select exactly region=apac",
    )?;

    // `default` and `global` come back, and are rolled back.
    wait_members(&fleet, "global", 1).await?;
    wait_members(&fleet, "default", 1).await?;
    sets.delete("global", &DeleteParams::default()).await?;
    wait::until("global comes back", || async {
        Ok(sets.get_opt("global").await?)
    })
    .await?;
    let selecting = json!({"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": "x"}}});
    let edit = async |name: &str, autoupdate: Value| {
        let patch = json!({
            "metadata": {"annotations": {"cluster.open-cluster-management.io/autoupdate": autoupdate}},
            "spec": {"clusterSelector": selecting},
        });
        sets.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    let is_edited = async |name: &str| -> Result<bool> {
        Ok(serde_json::to_value(sets.get(name).await?.spec.cluster_selector)? == selecting)
    };
    for name in ["default", "global"] {
        edit(name, Value::Null).await?;
        wait::until_true(&format!("{name} is rolled back"), || async {
            Ok(!is_edited(name).await?)
        })
        .await?;
        wait_members(&fleet, name, 1).await?;
    }
    // Who says so keeps what he wrote: two rollbacks of the other later it is still there.
    edit("global", json!("false")).await?;
    for _ in 0..2 {
        edit("default", Value::Null).await?;
        wait::until_true("default is rolled back", || async {
            Ok(!is_edited("default").await?)
        })
        .await?;
    }
    ensure!(is_edited("global").await?, "autoupdate=false was not heeded");

    // Each set has roles that reach that set only.
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let role = wait::until("the admin role of apac", || async {
        Ok(roles
            .get_opt("open-cluster-management:managedclusterset:admin:apac")
            .await?)
    })
    .await?;
    let named = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
        rule.resource_names.as_deref() == Some(&["apac".to_owned()])
    };
    ensure!(role.rules.unwrap_or_default().iter().all(named));

    // A set that asks for it takes its label along; that takes the right to.
    let edits = json!([rule("managedclustersets", &["apac"], &["get", "patch", "delete"])]);
    grant(&fleet, "editor", user("editor"), &edits).await?;
    let editor: Api<ManagedClusterSet> = Api::all(fleet.hub.user("editor", &[]).await?);
    for mark in [
        json!({"metadata": {"annotations": {"writ.dev/remove-labels-on-delete": "true"}}}),
        json!({"metadata": {"finalizers": ["writ.dev/remove-labels"]}}),
    ] {
        let answer = editor
            .patch("apac", &PatchParams::default(), &Patch::Merge(mark))
            .await;
        refused(answer.map_err(Into::into), "managedclustersets/join")?;
    }
    let mark = json!({"metadata": {"annotations": {"writ.dev/remove-labels-on-delete": "true"}}});
    sets.patch("apac", &PatchParams::default(), &Patch::Merge(mark))
        .await?;
    wait::until_true("the set is held until its label is gone", || async {
        Ok(!sets.get("apac").await?.finalizers().is_empty())
    })
    .await?;
    sets.delete("apac", &DeleteParams::default()).await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until_true("the label is gone, and the set", || async {
        Ok(!clusters.get("mc1").await?.labels().contains_key("region")
            && sets.get_opt("apac").await?.is_none())
    })
    .await?;
    hub.stop().await
}

/// Selectors never take clusters by surprise; with `--guard-selector-sets` and `--guard-default-key` labels ask too.
pub async fn guards(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    create(&admin, "mc1", json!({"env": "prod"})).await?;
    let rules = json!([
        rule("managedclustersets", &[], &["create", "update", "patch", "get"]),
        rule("managedclusters", &["mc1"], &["update"]),
    ]);
    grant(&fleet, "dev1", user("dev1"), &rules).await?;
    let dev1 = fleet.hub.user("dev1", &[]).await?;
    let selecting = |env: &str| json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": env}}}});
    refused(
        post(&dev1, "prod", selecting("prod")).await,
        "update on all managedclusters",
    )?;
    post(&dev1, "dev", selecting("dev")).await?;
    let sets: Api<ManagedClusterSet> = Api::all(dev1.clone());
    let wider = json!({"spec": selecting("prod")});
    refused(
        sets.patch("dev", &PatchParams::default(), &Patch::Merge(wider))
            .await
            .map_err(Into::into),
        "update on all managedclusters",
    )?;
    // As upstream: the label is free, and so is a set with the default key.
    relabel(&fleet, &dev1, "mc1", &[("env", Some("dev"))]).await?;
    wait_members(&fleet, "dev", 1).await?;
    post(&dev1, "plain", json!({})).await?;
    hub.stop().await?;

    let hub = run_hub(&fleet, |options| {
        options.guards.selector_sets = true;
        options.guards.default_key = true;
    })
    .await?;
    wait::until_true("the label asks for join", || async {
        let answer = relabel(&fleet, &dev1, "mc1", &[("env", None)]).await;
        Ok(refused(answer, "ManagedClusterSet \"dev\"").is_ok())
    })
    .await?;
    refused(
        post(&dev1, "other", json!({})).await,
        "exclusiveKey \"cluster.open-cluster-management.io/clusterset\"",
    )?;
    // Nor does a selector become a set with that key, or the other way round.
    let key = json!({"spec": {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel", "labelSelector": null}}});
    refused(
        sets.patch("dev", &PatchParams::default(), &Patch::Merge(key))
            .await
            .map_err(Into::into),
        "exclusiveKey \"cluster.open-cluster-management.io/clusterset\"",
    )?;
    // The hub itself may: `default` is rolled back with its members.
    let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
    sets.patch(
        "default",
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": selecting("x")})),
    )
    .await?;
    wait::until_true("default is rolled back", || async {
        Ok(sets.get("default").await?.spec.key().is_some())
    })
    .await?;
    wait_members(&fleet, "default", 1).await?;
    refused(
        Api::<ManagedClusterSet>::all(dev1.clone())
            .patch(
                "default",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": selecting("x")})),
            )
            .await
            .map_err(Into::into),
        "managedclustersets/join",
    )?;
    hub.stop().await
}

/// The ConfigMap `clusterset-validation`, with keys that have a prefix, and malformed.
pub async fn pairs(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), HUB_NAMESPACE);
    let write = async |data: Value| -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "clusterset-validation", "namespace": HUB_NAMESPACE}, "data": data});
        let _ = maps
            .delete("clusterset-validation", &DeleteParams::default())
            .await;
        yaml::apply(&admin, &map.to_string()).await
    };
    let key = "example.com/region";
    let try_set = async |name: &str, key: &str| -> Result<()> {
        post(&admin, name, json!({"exclusiveKey": key})).await?;
        let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
        sets.delete(name, &DeleteParams::default()).await?;
        Ok(())
    };
    let listed = "is not in the ConfigMap";
    write(json!({"vendor": "aws, gcp", "_pairs": "example.com/region: apac, us\n"})).await?;
    try_set("apac", key).await?;
    try_set("aws", "vendor").await?;
    try_set("team-a", "team").await?;
    refused(try_set("apac", "vendor").await, listed)?;
    refused(try_set("aws", key).await, listed)?;
    refused(try_set("eu", key).await, listed)?;
    refused(try_set("apac", "team").await, listed)?;
    for broken in [
        json!({"region": "apac, NOT A NAME"}),
        json!({"_pairs": "example.com/region apac"}),
        json!({"region": ""}),
    ] {
        write(broken).await?;
        refused(
            try_set("team-a", "team").await,
            "cannot be read, so no set can be created",
        )?;
    }
    maps.delete("clusterset-validation", &DeleteParams::default())
        .await?;
    try_set("apac", "vendor").await?;
    hub.stop().await
}

/// Holds back the next question whether somebody may use an exclusive key.
#[derive(Clone, Default)]
struct Gate {
    armed: Arc<AtomicBool>,
    reached: Arc<Notify>,
    opened: Arc<Notify>,
}

impl Gate {
    /// The client, with the gate in its way.
    fn before(&self, client: Client) -> Client {
        let gate = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (gate, client) = (gate.clone(), client.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let asks = parts.uri.path().ends_with("/subjectaccessreviews")
                    && String::from_utf8_lossy(&bytes).contains("exclusiveKey");
                if asks && gate.armed.swap(false, Ordering::SeqCst) {
                    gate.reached.notify_one();
                    gate.opened.notified().await;
                }
                client
                    .send(http::Request::from_parts(parts, Body::from(bytes.to_vec())))
                    .await
            }
        });
        Client::new(service, "default")
    }
}

/// A set is created and a cluster labelled at the same moment, by two people who may do no more than that: each is
/// admitted before the other's object is stored, and still no cluster is a member that nobody with the right put there.
pub async fn race(fleet: Fleet) -> Result<()> {
    let gate = Gate::default();
    let client = fleet.hub.service_account(HUB_NAMESPACE, "writ-hub").await?;
    let hub = run_hub_with(&fleet, gate.before(client), |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let maker = json!([
        rule("managedclustersets/exclusiveKey", &["region"], &["create"]),
        rule("managedclustersets", &[], &["create", "patch", "update", "get"]),
    ]);
    grant(&fleet, "maker", user("maker"), &maker).await?;
    let labeller = json!([rule("managedclusters", &["mc1", "mc2"], &["update"])]);
    grant(&fleet, "labeller", user("labeller"), &labeller).await?;
    let (maker, labeller) = (
        fleet.hub.user("maker", &[]).await?,
        fleet.hub.user("labeller", &[]).await?,
    );
    let label = [("region", Some("apac"))];
    for cluster in ["mc1", "mc2"] {
        create(&admin, cluster, json!({})).await?;
    }
    // Admission has counted the clusters that carry the label, none, and asks about the key: it waits there.
    gate.armed.store(true, Ordering::SeqCst);
    let made = tokio::spawn({
        let maker = maker.clone();
        async move { post(&maker, "apac", json!({"exclusiveKey": "region"})).await }
    });
    gate.reached.notified().await;
    // There is no such set yet, so the label asks for nothing.
    relabel(&fleet, &labeller, "mc1", &label).await?;
    gate.opened.notify_one();
    made.await??;
    // Now there is: the next label does ask.
    refused(
        relabel(&fleet, &labeller, "mc2", &label).await,
        "ManagedClusterSet \"apac\"",
    )?;
    let unconfirmed = async |set: &str, cluster: &str| -> Result<()> {
        wait::until_true("the cluster is reported, and left out", || async {
            let conflict = condition(&fleet, set, "ClusterSetConflict").await?;
            Ok(conflict
                .is_some_and(|(reason, message)| reason == "UnconfirmedMembers" && message.contains(cluster)))
        })
        .await?;
        wait_members(&fleet, set, 0).await
    };
    unconfirmed("apac", "mc1").await?;
    // What the maker writes about it is put back; somebody with the right confirms.
    let confirm = json!({"metadata": {"annotations": {"writ.dev/members-confirmed": "true"}}});
    let sets: Api<ManagedClusterSet> = Api::all(maker.clone());
    let answer = sets
        .patch("apac", &PatchParams::default(), &Patch::Merge(&confirm))
        .await?;
    ensure!(
        answer
            .annotations()
            .get("writ.dev/members-confirmed")
            .is_some_and(|v| v == "false")
    );
    wait_members(&fleet, "apac", 0).await?;
    // A placement leaves the cluster out, and says why.
    fleet.hub.namespace("team-a").await?;
    let place = "apiVersion: cluster.open-cluster-management.io/v1beta2\nkind: ManagedClusterSetBinding\n\
                 metadata: {name: apac, namespace: team-a}\nspec: {clusterSet: apac}\n---\n\
                 apiVersion: cluster.open-cluster-management.io/v1beta1\nkind: Placement\n\
                 metadata: {name: all, namespace: team-a}\nspec: {}\n";
    yaml::apply(&admin, place).await?;
    let told = explain(&admin, "team-a", "all").await?.outcome;
    let why = told.left_out.get("mc1").context("mc1 was not left out")?;
    ensure!(
        told.selected == 0 && why.contains("not set through the admission webhook"),
        "{why}"
    );
    let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
    sets.patch("apac", &PatchParams::default(), &Patch::Merge(&confirm))
        .await?;
    wait_members(&fleet, "apac", 1).await?;

    // The same for a label that admission did not see at all.
    create(&admin, "unseen", json!({})).await?;
    post(&maker, "late", json!({"exclusiveKey": "region"})).await?;
    hub.stop().await?;
    Api::<ValidatingWebhookConfiguration>::all(admin.clone())
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    Api::<MutatingWebhookConfiguration>::all(admin.clone())
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let label = json!({"metadata": {"labels": {"region": "late"}}});
    wait::until_true("the label is there, unseen", || async {
        // The API server hears a moment later that nobody is asked any more.
        let params = PatchParams::default();
        Ok(clusters
            .patch("unseen", &params, &Patch::Merge(&label))
            .await
            .is_ok())
    })
    .await?;
    let hub = run_hub(&fleet, |_| {}).await?;
    unconfirmed("late", "unseen").await?;
    hub.stop().await
}

/// A set is offered to a namespace by somebody who may bind it, and by nobody else.
pub async fn bindings(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    fleet.hub.namespace("team-a").await?;
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    let rules = json!([
        rule("managedclustersetbindings", &[], &["create"]),
        rule("managedclustersets/bind", &["apac", "later"], &["create"]),
    ]);
    grant(&fleet, "binder", user("binder"), &rules).await?;
    let api: Api<ManagedClusterSetBinding> = Api::namespaced(fleet.hub.user("binder", &[]).await?, "team-a");
    let bind = async |name: &str, set: &str| -> Result<()> {
        let binding = serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": name}, "spec": {"clusterSet": set},
        }))?;
        api.create(&PostParams::default(), &binding).await?;
        Ok(())
    };
    refused(
        bind("global", "global").await,
        "is not allowed to bind cluster set \"global\"",
    )?;
    refused(bind("mine", "apac").await, "must have the same name")?;
    bind("apac", "apac").await?;
    bind("later", "later").await?;
    let api: Api<ManagedClusterSetBinding> = Api::namespaced(admin.clone(), "team-a");
    let bound = async |name: &str, wanted: &str| -> Result<()> {
        wait::until_true(&format!("{name} is {wanted}"), || async {
            let conditions = api.get(name).await?.status.unwrap_or_default().conditions;
            Ok(conditions
                .iter()
                .any(|c| c.type_ == "Bound" && c.reason == wanted))
        })
        .await
    };
    bound("apac", "ClusterSetBound").await?;
    bound("later", "ClusterSetNotFound").await?;
    yaml::apply(&admin, &set_yaml("later", "region")).await?;
    bound("later", "ClusterSetBound").await?;
    hub.stop().await
}
