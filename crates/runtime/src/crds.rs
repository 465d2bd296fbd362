//! Compares the installed CRDs with ours: an older one prunes fields that it does not know, in silence.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{Error, error::Context as _};

/// Something of ours that an API server would lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The CRD is not installed.
    Missing {
        /// The CRD's name.
        crd: String,
    },
    /// A version is not served.
    Version {
        /// The CRD's name.
        crd: String,
        /// The version that is not served.
        version: String,
    },
    /// Fields are pruned.
    Fields {
        /// The CRD's name.
        crd: String,
        /// The version that lacks them.
        version: String,
        /// The topmost paths that are missing, such as `spec.exclusiveKey`.
        fields: Vec<String>,
    },
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { crd } => write!(f, "{crd} is not installed: its kind is off"),
            Self::Version { crd, version } => write!(f, "{crd} does not serve {version}"),
            Self::Fields { crd, version, fields } => {
                write!(
                    f,
                    "{crd} {version} does not know {}: what they ask for is off",
                    fields.join(", ")
                )
            }
        }
    }
}

/// Reads the installed CRDs and says what they lack.
pub async fn check(client: &Client, ours: &[CustomResourceDefinition]) -> Result<Vec<Gap>, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let installed = api
        .list(&ListParams::default())
        .await
        .context(|| "list CustomResourceDefinitions".into())?;
    Ok(ours
        .iter()
        .flat_map(|wanted| {
            let name = wanted.name_any();
            match installed.iter().find(|crd| crd.name_any() == name) {
                Some(found) => compare(found, wanted),
                None => vec![Gap::Missing { crd: name }],
            }
        })
        .collect())
}

/// Checks and logs each gap; that the CRDs cannot be read is logged too, and is no reason not to start.
pub async fn report(client: &Client, ours: &[CustomResourceDefinition]) {
    match check(client, ours).await {
        Ok(gaps) => {
            for gap in gaps {
                tracing::warn!("{gap}; `writ crds` prints the current definitions");
            }
        }
        Err(error) => tracing::info!(%error, "the installed CRDs cannot be compared with ours"),
    }
}

/// What the installed CRD lacks of ours.
pub fn compare(installed: &CustomResourceDefinition, ours: &CustomResourceDefinition) -> Vec<Gap> {
    let crd = ours.name_any();
    let mut gaps = Vec::new();
    for wanted in ours.spec.versions.iter().filter(|version| version.served) {
        let version = wanted.name.clone();
        let Some(found) = installed
            .spec
            .versions
            .iter()
            .find(|v| v.served && v.name == version)
        else {
            gaps.push(Gap::Version {
                crd: crd.clone(),
                version,
            });
            continue;
        };
        let schema = |v: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
            v.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone()).unwrap_or_default()
        };
        let mut fields = Vec::new();
        missing(&schema(found), &schema(wanted), "", &mut fields);
        if !fields.is_empty() {
            gaps.push(Gap::Fields {
                crd: crd.clone(),
                version,
                fields,
            });
        }
    }
    gaps
}

/// Collects the topmost properties that `installed` would prune.
fn missing(installed: &JSONSchemaProps, wanted: &JSONSchemaProps, path: &str, into: &mut Vec<String>) {
    if installed.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, want) in wanted.properties.iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match installed
            .properties
            .as_ref()
            .and_then(|properties| properties.get(name))
        {
            Some(have) => missing(have, want, &path, into),
            None => into.push(path),
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(have)), Some(JSONSchemaPropsOrArray::Schema(want))) =
        (&installed.items, &wanted.items)
    {
        missing(have, want, &format!("{path}[]"), into);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(properties: &serde_json::Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn an_older_crd_names_the_fields_it_would_prune() {
        let ours = crd(&json!({
            "old": {"type": "string"},
            "new": {"type": "object", "properties": {"deep": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"added": {"type": "string"}}}},
        }));
        let older =
            crd(&json!({"old": {"type": "string"}, "list": {"type": "array", "items": {"type": "object"}}}));
        assert_eq!(compare(&ours, &ours), []);
        let gaps = compare(&older, &ours);
        assert_eq!(
            gaps.first().map(ToString::to_string).as_deref(),
            Some("things.example.com v1 does not know spec.list[].added, spec.new: what they ask for is off")
        );
        let free = crd(&json!({}));
        let mut free = free;
        free.spec.versions[0]
            .schema
            .as_mut()
            .unwrap()
            .open_api_v3_schema
            .as_mut()
            .unwrap()
            .x_kubernetes_preserve_unknown_fields = Some(true);
        assert_eq!(compare(&free, &ours), []);
    }

    #[test]
    fn a_version_that_is_not_served_is_named() {
        let ours = crd(&json!({}));
        let mut older = ours.clone();
        older.spec.versions[0].served = false;
        assert_eq!(
            compare(&older, &ours),
            [Gap::Version {
                crd: "things.example.com".into(),
                version: "v1".into()
            }]
        );
    }
}
