//! Repositories that misbehave.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use writ_fleet::git::Content;

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, condition, config_map, namespace, until};

fn source_errors(status: &Value) -> String {
    let errors = status["source"]["errors"].as_array().into_iter().flatten();
    let lines: Vec<String> = errors
        .map(|error| {
            format!(
                "{} {}",
                error["errorMessage"].as_str().unwrap_or_default(),
                error["errorResources"]
            )
        })
        .collect();
    lines.join("\n")
}

/// A branch that is pushed by force, that vanishes, and a repository that is away for a while.
pub async fn branches(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("branches")).await?;
    let one = case.repo.commit(
        "main",
        &[
            ("a.yaml", config_map("branches", "a", "1")),
            ("b.yaml", config_map("branches", "b", "1")),
        ],
    )?;
    case.root_sync("branches", json!({})).await?;
    case.synced("branches", &one).await?;
    // By force: no commit has a parent. What is not declared any more is pruned.
    let two = case
        .repo
        .commit("main", &[("a.yaml", config_map("branches", "a", "2"))])?;
    case.synced("branches", &two).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "branches");
    until("b is pruned", || async {
        Ok(maps.get_opt("b").await?.is_none().then_some(()))
    })
    .await?;
    // Vanished: an error, and nothing is pruned or left uncorrected.
    case.repo.remove_branch("main")?;
    case.when("branches", "the missing branch is reported", |status| {
        source_errors(status).contains("KNV2004") && source_errors(status).contains("no branch \"main\"")
    })
    .await?;
    maps.delete("a", &DeleteParams::default()).await?;
    until("a is back", || async { Ok(maps.get_opt("a").await?) }).await?;
    // Away.
    let away = case.repo.path().with_extension("away");
    std::fs::rename(case.repo.path(), &away)?;
    case.when("branches", "the missing repository is reported", |status| {
        source_errors(status).contains("cannot read the repository")
    })
    .await?;
    std::fs::rename(&away, case.repo.path())?;
    let three = case
        .repo
        .commit("main", &[("a.yaml", config_map("branches", "a", "3"))])?;
    let status = case.synced("branches", &three).await?;
    ensure!(status["source"]["errors"].is_null());
    // A tag and a commit.
    case.repo.tag("v1", &two)?;
    case.root_sync("branches", json!({ "spec": { "git": { "revision": "v1" }}}))
        .await?;
    case.synced("branches", &two).await?;
    case.root_sync("branches", json!({ "spec": { "git": { "revision": three }}}))
        .await?;
    case.synced("branches", &three).await?;
    // A folder, and one that is not there.
    let four = case.repo.commit(
        "main",
        &[
            ("x/y/a.yaml", config_map("branches", "a", "4")),
            ("other.yaml", "{{{".into()),
        ],
    )?;
    case.root_sync(
        "branches",
        json!({ "spec": { "git": { "revision": "HEAD", "dir": "/x" }}}),
    )
    .await?;
    case.synced("branches", &four).await?;
    case.root_sync("branches", json!({ "spec": { "git": { "dir": "nowhere" }}}))
        .await?;
    case.when("branches", "the missing folder is reported", |status| {
        source_errors(status).contains("\"nowhere\"")
    })
    .await?;
    case.root_sync("branches", json!({ "spec": { "git": { "dir": "../etc" }}}))
        .await?;
    case.when("branches", "the folder is refused", |status| {
        source_errors(status).contains("leaves the repository")
    })
    .await?;
    ensure!(maps.get_opt("a").await?.is_some());
    Ok(())
}

/// One bad file among a thousand; a file that is half there, too large, a link out of the repository.
pub async fn files(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("files")).await?;
    let good: Vec<(String, Content)> = (0..1000)
        .map(|n| {
            (
                format!("f/{n}.yaml"),
                config_map("files", &format!("m{n}"), "1").into(),
            )
        })
        .collect();
    let mut all = good.clone();
    let half = config_map("files", "half", "1");
    all.push((
        "half.yaml".into(),
        half.get(..half.len() - 3).unwrap_or_default().into(),
    ));
    all.push(("broken.yaml".into(), "a: [b\n".into()));
    all.push(("large.yaml".into(), Content::File(vec![b'#'; 10 * 1024 * 1024])));
    all.push(("out.yaml".into(), Content::Link("../../../etc/passwd".into())));
    all.push(("absolute.yaml".into(), Content::Link("/etc/passwd".into())));
    all.push(("inside.yaml".into(), Content::Link("f/0.yaml".into())));
    all.push(("README.md".into(), "not YAML: [".into()));
    let borrowed: Vec<(&str, Content)> = all
        .iter()
        .map(|(path, content)| (path.as_str(), content.clone()))
        .collect();
    let bad = case.repo.commit("main", &borrowed)?;
    case.root_sync("files", json!({})).await?;
    let status = case
        .when("files", "the commit is applied as far as it goes", |status| {
            status["sync"]["commit"] == bad.as_str() && status["sync"]["objectCount"].as_i64() >= Some(999)
        })
        .await?;
    let errors = source_errors(&status);
    for (code, file) in [
        ("KNV1006", "half.yaml"),
        ("KNV1006", "broken.yaml"),
        ("KNV2001", "large.yaml"),
        ("KNV2001", "out.yaml"),
        ("KNV2001", "absolute.yaml"),
        ("KNV1029", "f/0.yaml"),
    ] {
        ensure!(
            errors
                .lines()
                .any(|line| line.contains(code) && line.contains(file)),
            "{code} {file} is not in\n{errors}"
        );
    }
    ensure!(!errors.contains("README"));
    ensure!(status["lastSyncedCommit"].is_null());
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "files");
    ensure!(maps.get_opt("m999").await?.is_some() && maps.get_opt("half").await?.is_none());
    // Nothing is pruned while a file cannot be read: its objects may be in it.
    let one = [
        ("f/1.yaml", config_map("files", "m1", "1")),
        ("broken.yaml", "a: [b\n".into()),
    ];
    let worse = case.repo.commit("main", &one)?;
    case.when("files", "the next commit", |status| {
        status["sync"]["commit"] == worse.as_str()
    })
    .await?;
    ensure!(maps.list(&ListParams::default()).await?.items.len() >= 999);
    // Put right: pruned.
    let right = case.repo.commit("main", one.get(..1).unwrap_or_default())?;
    case.synced("files", &right).await?;
    until("the rest is pruned", || async {
        let mut left = maps.list(&ListParams::default()).await?.items;
        left.retain(|map| map.metadata.name.as_deref() != Some("kube-root-ca.crt"));
        Ok((left.len() == 1).then_some(()))
    })
    .await?;
    Ok(())
}

/// Definitions and their objects in one commit, namespaces that are made as needed, and the hierarchy layout.
pub async fn layouts(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    let crd = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
    let commit = case.repo.commit(
        "main",
        &[
            ("z-crd.yaml", crd.to_owned()),
            ("a-widget.yaml", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: implicit}\nspec: {size: 1}\n".to_owned()),
            ("list.yaml", format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", config_map("implicit", "listed", "1").trim_end().replace('\n', "\n  "))),
        ],
    )?;
    case.root_sync("layouts", json!({})).await?;
    case.synced("layouts", &commit).await?;
    ensure!(
        Api::<ConfigMap>::namespaced(case.admin.clone(), "implicit")
            .get_opt("listed")
            .await?
            .is_some()
    );

    let hierarchy = case.another()?;
    let commit = hierarchy.repo.commit(
        "main",
        &[
            ("system/repo.yaml", "apiVersion: configmanagement.gke.io/v1\nkind: Repo\nmetadata: {name: repo}\nspec: {version: 1.0.0}\n".to_owned()),
            ("cluster/prio.yaml", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: hierarchy}\nvalue: 1\n".to_owned()),
            ("namespaces/eng/all.yaml", config_map("x", "all", "1").replace("  namespace: x\n", "")),
            ("namespaces/eng/h-one/namespace.yaml", namespace("h-one")),
            ("namespaces/eng/h-two/namespace.yaml", namespace("h-two")),
        ],
    )?;
    hierarchy
        .root_sync("hierarchy", json!({ "spec": { "sourceFormat": "hierarchy" }}))
        .await?;
    let status = hierarchy.synced("hierarchy", &commit).await?;
    ensure!(status["sync"]["objectCount"] == 5, "{status:#}");
    for name in ["h-one", "h-two"] {
        ensure!(
            Api::<ConfigMap>::namespaced(case.admin.clone(), name)
                .get_opt("all")
                .await?
                .is_some()
        );
    }
    // All namespaces gone at once: refused.
    hierarchy.repo.commit(
        "main",
        &[(
            "system/repo.yaml",
            "apiVersion: configmanagement.gke.io/v1\nkind: Repo\nmetadata: {name: repo}\n",
        )],
    )?;
    hierarchy
        .when("hierarchy", "the commit is refused", |status| {
            status["sync"]["errors"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|error| error["code"] == "2006")
        })
        .await?;
    ensure!(
        Api::<Namespace>::all(case.admin.clone())
            .get_opt("h-one")
            .await?
            .is_some()
    );

    // What is not built says so.
    let other = case.another()?;
    other.repo.commit(
        "main",
        &[
            ("kustomization.yaml", "resources: [a.yaml]\n".to_owned()),
            ("a.yaml", config_map("implicit", "kustomized", "1")),
        ],
    )?;
    other.root_sync("kustomize", json!({})).await?;
    other
        .when("kustomize", "kustomize is refused", |status| {
            status["rendering"]["errors"][0]["code"] == "1068"
        })
        .await?;
    ensure!(
        Api::<ConfigMap>::namespaced(case.admin.clone(), "implicit")
            .get_opt("kustomized")
            .await?
            .is_none()
    );
    other
        .root_sync(
            "oci",
            json!({ "spec": { "sourceType": "oci", "oci": { "image": "example.com/x", "auth": "none" }}}),
        )
        .await?;
    let status = other
        .when("oci", "oci is refused", |status| {
            source_errors(status).contains("spec.sourceType oci is not supported")
        })
        .await?;
    ensure!(condition(&status, "Syncing")["reason"] == "Source");
    // Also for one that was synced before: it is not said to be complete.
    let charts = case.another()?;
    let before = charts
        .repo
        .commit("main", &[("a.yaml", config_map("implicit", "charted", "1"))])?;
    charts.root_sync("helm", json!({})).await?;
    charts.synced("helm", &before).await?;
    let chart = json!({ "repo": "https://example.com/charts", "chart": "x", "auth": "none" });
    charts
        .root_sync("helm", json!({ "spec": { "sourceType": "helm", "helm": chart }}))
        .await?;
    charts
        .when("helm", "helm is refused", |status| {
            let syncing = condition(status, "Syncing");
            let text = syncing["message"].as_str().unwrap_or_default();
            syncing["reason"] == "Source" && text.contains("spec.sourceType helm is not supported")
        })
        .await?;
    late_kinds(&case.another()?).await
}

/// A kind that somebody else defines later: its objects get what all objects get.
async fn late_kinds(case: &Case) -> Result<()> {
    let object = |name: &str, more: &str| {
        format!(
            "apiVersion: late.example.com/v1\nkind: Late\nmetadata: {{name: {name}, namespace: late{more}}}\n"
        )
    };
    let commit = case.repo.commit(
        "main",
        &[
            ("a.yaml", object("wanted", "")),
            (
                "b.yaml",
                object(
                    "unwanted",
                    ", annotations: {configmanagement.gke.io/managed: disabled}",
                ),
            ),
        ],
    )?;
    case.root_sync("late", json!({})).await?;
    case.when("late", "the kind is not known", |status| {
        status["sync"]["errors"][0]["code"] == "1021"
    })
    .await?;
    apply(
        &case.admin,
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: lates.late.example.com}\nspec:\n  group: late.example.com\n  scope: Namespaced\n  names: {plural: lates, singular: late, kind: Late}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n",
    )
    .await?;
    // Its namespace is made, too.
    case.synced("late", &commit).await?;
    let kind = GroupVersionKind::gvk("late.example.com", "v1", "Late");
    let lates: Api<DynamicObject> =
        Api::namespaced_with(case.admin.clone(), "late", &ApiResource::from_gvk(&kind));
    ensure!(lates.get_opt("wanted").await?.is_some());
    ensure!(lates.get_opt("unwanted").await?.is_none());
    Ok(())
}

/// Two hundred RootSyncs on one cluster.
pub async fn many(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("many")).await?;
    let started = Instant::now();
    let files: Vec<(String, String)> = (0..200)
        .map(|n| (format!("{n}/a.yaml"), config_map("many", &format!("m{n}"), "1")))
        .collect();
    let files: Vec<(&str, String)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.clone()))
        .collect();
    let commit = case.repo.commit("main", &files)?;
    for n in 0..200 {
        case.root_sync(
            &format!("many-{n}"),
            json!({ "spec": {
                "git": { "dir": n.to_string(), "period": "15s" },
                "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "admin", "namespace": "many" }]},
            }}),
        )
        .await?;
    }
    for n in 0..200 {
        case.synced(&format!("many-{n}"), &commit).await?;
    }
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "many");
    ensure!(maps.list(&ListParams::default()).await?.items.len() >= 200);
    println!("200 RootSyncs were synced after {:?}", started.elapsed());
    for n in 0..200 {
        case.delete("RootSync", SYSTEM, &format!("many-{n}")).await?;
    }
    for n in 0..200 {
        case.gone("RootSync", SYSTEM, &format!("many-{n}")).await?;
    }
    Ok(())
}
