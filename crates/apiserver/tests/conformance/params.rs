//! The real server follows the objects that are parameters of policies for as long as some policy has parameters of that
//! kind, and never again after that. So there is always one, as long as transcripts run.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy as Policy, ValidatingAdmissionPolicyBinding as Binding,
};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};

/// The built-in kinds that transcripts have as parameters.
const KINDS: [(&str, &str); 6] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("apps/v1", "Deployment"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("rbac.authorization.k8s.io/v1", "Role"),
];

/// Policies about nothing, with parameters of each kind.
pub async fn keep(client: &Client) -> anyhow::Result<()> {
    let (policies, bindings) = (
        Api::<Policy>::all(client.clone()),
        Api::<Binding>::all(client.clone()),
    );
    for (i, (version, kind)) in KINDS.iter().enumerate() {
        let name = format!("keeps-parameters-{i}");
        let about = json!({ "apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["nones"] });
        let named = |spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
        let policy = named(json!({
            "paramKind": { "apiVersion": version, "kind": kind },
            "matchConstraints": { "resourceRules": [about] },
            "validations": [{ "expression": "true" }],
        }));
        let binding = named(json!({
            "policyName": name, "validationActions": ["Warn"],
            "paramRef": { "selector": {}, "parameterNotFoundAction": "Allow" },
        }));
        policies
            .create(&kube::api::PostParams::default(), &from_value(policy)?)
            .await?;
        bindings
            .create(&kube::api::PostParams::default(), &from_value(binding)?)
            .await?;
    }
    Ok(())
}
