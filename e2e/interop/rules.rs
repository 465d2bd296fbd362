//! The same condition rules on both agents.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use serde_json::{Value, json};
use writ_api::work::ManifestWork;
use writ_e2e::{
    Fleet,
    scenarios::work::support::{condition, config_map, create, works},
};

use crate::ocm_agent;

/// What OCM's agent makes of rules, writ's makes of them, to the letter.
pub async fn compared(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let works = works(&fleet).await?;
    let theirs = ocm_agent::agent(&fleet, folder.path()).await?;
    let of_ocm = told(&works, "first").await.with_context(|| theirs.tail())?;
    drop(theirs);
    let options = writ_agent::Options {
        controllers: vec!["work".into()],
        ..writ_agent::Options::default()
    };
    let _ours = fleet.run_agent(1, options).await?;
    let of_writ = told(&works, "second").await?;
    ensure!(of_ocm == of_writ, "OCM: {of_ocm:#?}\nwrit: {of_writ:#?}");
    Ok(())
}

/// The conditions that rules compute for a ConfigMap and a Job of this name: of each manifest, and of the work.
async fn told(works: &Api<ManifestWork>, name: &str) -> Result<BTreeSet<String>> {
    let rule = |condition: &str, expressions: Value| json!({"condition": condition, "type": "CEL", "celExpressions": expressions});
    let known = json!({"condition": "Complete", "type": "WellKnownConditions"});
    let config = |group: &str, resource: &str, rules: Value| {
        json!({"resourceIdentifier": {"group": group, "resource": resource, "namespace": "default", "name": name},
            "conditionRules": rules})
    };
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}});
    let spoken = json!({"condition": "Spoken", "type": "CEL", "celExpressions": ["true"],
        "messageExpression": "object.?nothing.?here.orValue('nothing') + (result ? '!' : '?')"});
    create(
        works,
        name,
        json!({"workload": {"manifests": [config_map("default", name, "1"), job]},
        "manifestConfigs": [
            config("", "configmaps", json!([
                rule("Optional", json!(["object.?status.?x.orValue(0) == 0",
                    "[?object.?nothing, ?object.?data.?key] == ['1']", "object.?data.key.hasValue()",
                    "object.?data.optMap(d, d.size()).orValue(0) == 1"])),
                rule("Guarded", json!(["has(object.status)", "object.status.ready == 1"])),
                rule("Plain", json!(["object.data.key == '1'"])),
                spoken,
                known.clone(),
            ])),
            config("batch", "jobs", json!([known])),
        ]}),
    )
    .await?;
    for (type_, status) in [("Optional", "True"), ("Guarded", "False"), ("Spoken", "True")] {
        condition(works, name, type_, status).await?;
    }
    let work = condition(works, name, "Complete", "False").await?;
    let status = work.status.unwrap_or_default();
    let manifests = status.resource_status.manifests.iter().enumerate();
    let places = manifests
        .map(|(index, manifest)| (format!("manifest {index}"), &manifest.conditions))
        .chain([("work".to_owned(), &status.conditions)]);
    let lines = places.flat_map(|(place, conditions)| {
        let of_rules = conditions
            .iter()
            .filter(|c| c.reason.starts_with("ConditionRule"));
        of_rules.map(move |c| format!("{place}: {} {} {} {:?}", c.type_, c.status, c.reason, c.message))
    });
    Ok(lines.collect())
}
