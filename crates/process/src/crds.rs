//! Compares the installed CRDs with ours: an older CRD silently prunes fields that it does not know.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;

use writ_controller::{Error, error::Context as _};

/// A feature that needs a field: the name of the definition, the field, and the feature in words.
pub type Feature = (&'static str, &'static str, &'static str);

/// A part of our CRDs that an API server lacks.
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

impl Gap {
    /// The features that do not work because of the gap; the gap itself if no known feature needs it.
    pub fn disabled_features(&self, known: &[Feature]) -> String {
        // Gaps name the topmost missing path: the field of a feature may be below it.
        let lost = |missing: &String, field: &str| {
            let below = field.strip_prefix(missing.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let (of, otherwise) = match self {
            Self::Missing { crd } => (crd, crd.clone()),
            Self::Version { crd, version } => (crd, format!("{crd} as {version}")),
            Self::Fields { crd, fields, .. } => (crd, fields.join(", ")),
        };
        let is_off = |field: &str| match self {
            Self::Missing { .. } => true,
            // The kind is served in another version.
            Self::Version { .. } => false,
            Self::Fields { fields, .. } => fields.iter().any(|missing| lost(missing, field)),
        };
        let features: Vec<&str> = known
            .iter()
            .filter(|(crd, field, _)| crd == of && is_off(field))
            .map(|(.., feature)| *feature)
            .collect();
        if features.is_empty() {
            otherwise
        } else {
            features.join(", ")
        }
    }
}

/// Reads the installed CRDs and returns what they lack.
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

/// The same without the right to read CRDs, from the OpenAPI documents, which every user may read.
pub async fn check_documented(client: &Client, ours: &[CustomResourceDefinition]) -> Result<Vec<Gap>, Error> {
    let mut gaps = Vec::new();
    for wanted in ours {
        let crd = wanted.name_any();
        let (group, kind) = (&wanted.spec.group, &wanted.spec.names.kind);
        let (before, mut served) = (gaps.len(), false);
        for version in wanted.spec.versions.iter().filter(|version| version.served) {
            let path = format!("/openapi/v3/apis/{group}/{}", version.name);
            let request = http::Request::get(&path)
                .body(Vec::new())
                .map_err(|error| Error::io(format!("ask for {path}"), error))?;
            let document: Option<Value> = match client.request(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                answer => Some(answer.context(|| format!("read {path}"))?),
            };
            let documented = document.as_ref().and_then(|document| {
                let schemas = document.pointer("/components/schemas")?.as_object()?;
                schemas.values().find(|schema| {
                    let kinds = schema.get("x-kubernetes-group-version-kind");
                    let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
                    kinds.any(|known| known.get("kind").and_then(Value::as_str) == Some(kind))
                })
            });
            let Some(documented) = documented else {
                gaps.push(Gap::Version {
                    crd: crd.clone(),
                    version: version.name.clone(),
                });
                continue;
            };
            served = true;
            let documented = serde_json::from_value(documented.clone())
                .map_err(|error| Error::io(format!("understand {path}"), error))?;
            let mut fields = Vec::new();
            missing(&documented, &schema_of(version), "", &mut fields);
            if !fields.is_empty() {
                gaps.push(Gap::Fields {
                    crd: crd.clone(),
                    version: version.name.clone(),
                    fields,
                });
            }
        }
        if !served {
            gaps.truncate(before);
            gaps.push(Gap::Missing { crd });
        }
    }
    Ok(gaps)
}

/// Logs each gap with the features that it disables. A failed comparison is logged too, and does not prevent the start.
pub fn report(server: &str, checked: Result<Vec<Gap>, Error>, known: &[Feature]) {
    match checked {
        Ok(gaps) => {
            for gap in gaps {
                tracing::warn!(
                    server,
                    off = gap.disabled_features(known),
                    "{gap}; `writ crds` prints the current definitions"
                );
            }
        }
        Err(error) => tracing::info!(server, %error, "the installed CRDs cannot be compared with ours"),
    }
}

/// What the installed CRD lacks compared to ours.
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
        let mut fields = Vec::new();
        missing(&schema_of(found), &schema_of(wanted), "", &mut fields);
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

fn schema_of(version: &CustomResourceDefinitionVersion) -> JSONSchemaProps {
    let schema = version.schema.as_ref();
    schema
        .and_then(|schema| schema.open_api_v3_schema.clone())
        .unwrap_or_default()
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
    if let (Some(JSONSchemaPropsOrBool::Schema(have)), Some(JSONSchemaPropsOrBool::Schema(want))) =
        (&installed.additional_properties, &wanted.additional_properties)
    {
        missing(have, want, &format!("{path}[*]"), into);
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
    fn older_crd_lists_the_fields_it_would_prune() {
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
        let known = [
            ("things.example.com", "spec.new.deep", "deep things"),
            ("things.example.com", "spec.newer", "newer things"),
            ("others.example.com", "spec.new", "other things"),
        ];
        assert_eq!(gaps[0].disabled_features(&known), "deep things");
        assert_eq!(gaps[0].disabled_features(&[]), "spec.list[].added, spec.new");
        let missing = |crd: &str| Gap::Missing { crd: crd.into() };
        assert_eq!(
            missing("things.example.com").disabled_features(&known),
            "deep things, newer things"
        );
        assert_eq!(
            missing("rest.example.com").disabled_features(&known),
            "rest.example.com"
        );
        let maps = |known: Value| {
            crd(&json!({"map": {"type": "object", "additionalProperties": {
            "type": "object", "properties": known}}}))
        };
        let gaps = compare(&maps(json!({})), &maps(json!({"a": {"type": "string"}})));
        assert!(matches!(&gaps[..], [Gap::Fields { fields, .. }] if *fields == ["spec.map[*].a"]));
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
    fn version_that_is_not_served_is_a_gap() {
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
