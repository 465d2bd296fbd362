//! Kinds that come late, go away, or cannot be asked for.

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, config_map, namespace, until};

/// Whether an error of the sync contains that.
fn says(status: &Value, text: &str) -> bool {
    let errors = status["sync"]["errors"].as_array();
    let mut all = errors.into_iter().flatten();
    all.any(|error| error["errorMessage"].as_str().unwrap_or_default().contains(text))
}

/// The definition of the kind `Late`, which serves these versions.
fn definition(served: &[&str]) -> String {
    let versions: Vec<Value> = ["v1", "v2"]
        .iter()
        .map(|name| {
            json!({
                "name": name, "served": served.contains(name), "storage": *name == "v1",
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "lates.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "lates", "singular": "late", "kind": "Late" },
            "versions": versions,
        },
    })
    .to_string()
}

fn object(version: &str, name: &str) -> String {
    format!("apiVersion: example.com/{version}\nkind: Late\nmetadata: {{name: {name}, namespace: late}}\n")
}

impl Case {
    /// Serves these versions of the kind `Late`, and waits until that is so.
    async fn serve(&self, versions: &[&str]) -> Result<()> {
        let wanted: Value = serde_json::from_str(&definition(versions))?;
        Api::<CustomResourceDefinition>::all(self.admin.clone())
            .patch(
                "lates.example.com",
                &PatchParams::apply("test").force(),
                &Patch::Apply(&wanted),
            )
            .await?;
        for version in ["v1", "v2"] {
            until("the versions are served as asked", || async {
                let there = self.lates(version).get_opt("nobody").await.is_ok();
                Ok((there == versions.contains(&version)).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    fn lates(&self, version: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Late"));
        Api::namespaced_with(self.admin.clone(), "late", &resource)
    }
}

/// Objects whose kind cannot be asked for, or is not served in their new version yet, wait; they are not deleted.
pub async fn late(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("late")).await?;
    case.serve(&["v1"]).await?;
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: late}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      - {name: web, image: web}\n";
    let files = |version| {
        [
            ("web.yaml", deployment.to_owned()),
            ("late.yaml", object(version, "a")),
        ]
    };
    let commit = case.repo.commit("main", &files("v1"))?;
    case.root_sync("late", json!({})).await?;
    case.synced("late", &commit).await?;
    let deployments = Api::<Deployment>::namespaced(case.admin.clone(), "late");
    let web = deployments.get("web").await?.uid();
    let a = case.lates("v1").get("a").await?.uid();

    // However many objects are of a kind that nobody knows, it is asked for a few times only.
    let unknown: Vec<String> = (0..500)
        .map(|n| {
            format!(
                "apiVersion: nobody.example.com/v1\nkind: Nobody\nmetadata: {{name: n{n}, namespace: late}}\n"
            )
        })
        .collect();
    let mut all = files("v1").to_vec();
    all.push(("unknown.yaml", unknown.join("---\n")));
    let asked = case.env.front.asked("/apis/nobody.example.com/v1");
    case.repo.commit("main", &all)?;
    case.when("late", "the kind is reported", |status| says(status, "KNV1021"))
        .await?;
    let asked = case.env.front.asked("/apis/nobody.example.com/v1") - asked;
    ensure!(asked < 50, "the kind was asked for {asked} times");
    let commit = case.repo.commit("main", &files("v1"))?;
    case.synced("late", &commit).await?;

    case.restart(async {
        case.env.front.refuse(Some("/apis/apps/v1"));
        Ok(())
    })
    .await?;
    case.when("late", "it says what cannot be asked for", |status| {
        says(status, "KNV2002") && says(status, "apps/v1") && !says(status, "KNV1021")
    })
    .await?;
    case.env.front.refuse(None);
    case.when("late", "all is well", |status| status["sync"]["errors"].is_null())
        .await?;
    let now = deployments.get_opt("web").await?.context("it was deleted")?;
    ensure!(now.uid() == web, "the Deployment was deleted and made again");

    let commit = case.repo.commit("main", &files("v2"))?;
    case.when("late", "the version is not there yet", |status| {
        says(status, "KNV1021")
    })
    .await?;
    case.serve(&["v1", "v2"]).await?;
    case.synced("late", &commit).await?;
    let now = case.lates("v2").get_opt("a").await?.context("it was deleted")?;
    ensure!(now.uid() == a, "the object was deleted and made again");
    Ok(())
}

/// A version or a kind that goes away stops neither a prune nor a deletion.
pub async fn gone(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("late")).await?;
    case.serve(&["v1", "v2"]).await?;
    let map = ("map.yaml", config_map("late", "map", "1"));
    let commit = case
        .repo
        .commit("main", &[map.clone(), ("a.yaml", object("v1", "a"))])?;
    case.root_sync(
        "gone",
        json!({ "metadata": { "annotations": { "configsync.gke.io/deletion-propagation-policy": "Foreground" }}}),
    )
    .await?;
    case.synced("gone", &commit).await?;
    // The version that it was applied in is not served any more, but the object is still there.
    case.serve(&["v2"]).await?;
    let commit = case.repo.commit("main", std::slice::from_ref(&map))?;
    case.synced("gone", &commit).await?;
    ensure!(
        case.lates("v2").get_opt("a").await?.is_none(),
        "it was left behind"
    );

    let commit = case.repo.commit("main", &[map, ("b.yaml", object("v2", "b"))])?;
    case.synced("gone", &commit).await?;
    Api::<CustomResourceDefinition>::all(case.admin.clone())
        .delete("lates.example.com", &DeleteParams::default())
        .await?;
    until("the kind is gone", || async {
        Ok(case.lates("v2").get_opt("b").await.is_err().then_some(()))
    })
    .await?;
    case.delete("RootSync", SYSTEM, "gone").await?;
    case.gone("RootSync", SYSTEM, "gone").await
}
