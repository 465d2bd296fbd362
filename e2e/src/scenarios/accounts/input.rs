//! What is refused before it is stored, in words that name the bound.

use anyhow::{Result, ensure};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::Fleet;

pub async fn refused(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    for (group, version) in [
        ("authentication.open-cluster-management.io", "v1beta1"),
        ("authentication.open-cluster-management.io", "v1alpha1"),
        ("proxy.open-cluster-management.io", "v1alpha1"),
    ] {
        let kind = GroupVersionKind::gvk(group, version, "ManagedServiceAccount");
        let api: Api<DynamicObject> =
            Api::namespaced_with(admin.clone(), "default", &ApiResource::from_gvk(&kind));
        let create = async |name: &str, spec: Value| {
            let object = json!({
                "apiVersion": format!("{group}/{version}"), "kind": "ManagedServiceAccount",
                "metadata": { "name": name }, "spec": spec,
            });
            let params = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            anyhow::Ok(api.create(&params, &serde_json::from_value(object)?).await)
        };
        let validity = |text: &str| json!({ "rotation": { "validity": text } });
        let long = "a".repeat(254);
        let bad: [(&str, Value, &str); 9] = [
            ("a", validity("9m"), "10m"),
            ("a", validity("0s"), "10m"),
            ("a", validity("-1h"), "validity"),
            ("a", validity("1193047h"), "1193046h28m16s"),
            ("a", validity("30d"), "validity"),
            ("a", validity("soon"), "validity"),
            (
                "a",
                json!({ "rotation": {}, "audiences": ["x", "x"] }),
                "audiences",
            ),
            ("a", json!({ "rotation": {}, "audiences": [""] }), "audiences"),
            ("not_a_name", json!({ "rotation": {} }), "name"),
        ];
        for (name, spec, words) in bad {
            let answer = create(name, spec.clone()).await?;
            let message = match answer {
                Ok(_) => anyhow::bail!("{group}/{version}: {name} {spec} was accepted"),
                Err(error) => error.to_string(),
            };
            ensure!(message.contains(words), "{spec}: {message}");
        }
        ensure!(
            create(&long, json!({ "rotation": {} })).await?.is_err(),
            "an overlong name"
        );
        for good in ["10m", "8640h0m0s", "720h", "30m0s", "1h30m", "1193046h"] {
            let answer = create("a", validity(good)).await?;
            ensure!(answer.is_ok(), "{group}/{version}: {good}: {answer:?}");
        }
        let audiences = json!({ "rotation": {}, "audiences": ["x", "y"] });
        ensure!(create("a.b-c", audiences).await?.is_ok());
    }
    Ok(())
}
