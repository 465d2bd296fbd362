//! CustomResourceDefinitions.

use serde_json::Value;

use super::admission::review_versions;
use super::webhook_clients::client_config;
use super::{immutable, list, schema, selectable, text};
use crate::builtin::approval::{ANNOTATION, Approval};
use crate::schema::{Cause, child, index, names};

const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

const MIXED: &str = "may have mixed case, but should otherwise match: ";

const TYPES: &str = "boolean,date,integer,number,string";

fn label(value: &str, path: String, prefix: &str) -> Option<Cause> {
    let problems = names::dns_1035_label(&if prefix.is_empty() {
        value.to_owned()
    } else {
        value.to_lowercase()
    });
    (!value.is_empty() && !problems.is_empty())
        .then(|| Cause::invalid(path, &value.into(), &format!("{prefix}{}", problems.join(","))))
}

pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (group, plural) = (text(new, "/spec/group"), text(new, "/spec/names/plural"));
    for field in ["generateName", "name"] {
        let name = text(new, &format!("/metadata/{field}"));
        // A name that is missing is said to be missing, no more.
        if old.is_none() && !name.is_empty() && name != format!("{plural}.{group}") {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            causes.push(Cause::invalid(format!("metadata.{field}"), &name.into(), detail));
        }
    }
    let problems = names::dns_subdomain(group);
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !problems.is_empty() {
        causes.push(Cause::invalid("spec.group", &group.into(), &problems.join(",")));
    } else if !group.contains('.') {
        causes.push(Cause::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
    match text(new, "/spec/scope") {
        "" => causes.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => causes.push(Cause::not_supported(
            "spec.scope",
            &other.into(),
            &["Cluster", "Namespaced"],
        )),
    }
    versions(new, old, &mut causes);
    selectable::fields(new, old, &mut causes);
    names_of(new, &mut causes);
    conversion(new, &mut causes);
    approval(new, old, &mut causes);
    if let Some(old) = old {
        let established = list(old, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == "Established" && text(c, "/status") == "True");
        if established {
            causes.extend(immutable(new, old, "/spec/scope"));
            causes.extend(immutable(new, old, "/spec/names/kind"));
        }
        causes.extend(immutable(new, old, "/spec/group"));
        causes.extend(immutable(new, old, "/spec/names/plural"));
        stored_versions(new, &mut causes);
    }
    causes
}

fn versions(crd: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let versions = list(crd, "/spec/versions");
    let all = crd.pointer("/spec/versions").cloned().unwrap_or_default();
    for (i, version) in versions.iter().enumerate() {
        let path = index("spec.versions", i);
        if version
            .pointer("/schema/openAPIV3Schema")
            .is_none_or(Value::is_null)
        {
            causes.push(Cause::required(child(&path, "schema.openAPIV3Schema"), ""));
        }
    }
    // What all versions have in common is looked at once, under the name it had before there were versions.
    let same = |pointer: &str| {
        let first = versions.first().and_then(|v| v.pointer(pointer));
        first.is_some() && versions.iter().all(|v| v.pointer(pointer) == first)
    };
    let (same_schema, same_subresources) = (same("/schema"), same("/subresources"));
    let same_columns = same("/additionalPrinterColumns");
    for (i, version) in versions.iter().enumerate() {
        let path = index("spec.versions", i);
        let shared = |same: bool, name: &str, old: &str| {
            if same {
                child("spec", old)
            } else {
                child(&path, name)
            }
        };
        let name = text(version, "/name");
        let problems = names::dns_1035_label(name);
        if !problems.is_empty() {
            causes.push(Cause::invalid(
                child(&path, "name"),
                &name.into(),
                &problems.join(","),
            ));
            if i == 0 && !name.is_empty() {
                causes.push(Cause::invalid("spec.version", &name.into(), &problems.join(",")));
            }
        }
        if version.get("deprecationWarning").is_some()
            && version.get("deprecated").and_then(Value::as_bool) != Some(true)
        {
            let warning = version.get("deprecationWarning").unwrap_or(&Value::Null);
            causes.push(Cause::invalid(
                child(&path, "deprecationWarning"),
                warning,
                "can only be set for deprecated versions",
            ));
        }
        if let Some(openapi) = version
            .pointer("/schema/openAPIV3Schema")
            .filter(|s| s.is_object())
        {
            let status = version.pointer("/subresources/status").is_some();
            if i == 0 || !same_schema {
                let path = child(&shared(same_schema, "schema", "validation"), "openAPIV3Schema");
                let unchanged = old.is_some_and(|old| {
                    let mut versions = list(old, "/spec/versions").iter();
                    let before = versions.find(|version| text(version, "/name") == name);
                    before.is_some_and(|before| before.get("schema") == version.get("schema"))
                });
                causes.extend(schema::validate(openapi, status, &path, unchanged));
            }
        }
        if let Some(scale) = version.pointer("/subresources/scale").filter(|s| s.is_object()) {
            if i > 0 && same_subresources {
                continue;
            }
            let path = child(
                &shared(same_subresources, "subresources", "subresources"),
                "scale",
            );
            for (name, prefix, required) in [
                ("specReplicasPath", ".spec.", true),
                ("statusReplicasPath", ".status.", true),
                ("labelSelectorPath", "", false),
            ] {
                let value = text(scale, &format!("/{name}"));
                if value.is_empty() && required {
                    causes.push(Cause::required(child(&path, name), ""));
                } else if !value.is_empty() && (!value.starts_with(prefix) || value.contains('[')) {
                    let detail = if value.contains('[') {
                        "should be a simple json path".to_owned()
                    } else {
                        format!("should be a json path under {}", prefix.trim_end_matches('.'))
                    };
                    causes.push(Cause::invalid(child(&path, name), &value.into(), &detail));
                }
            }
        }
        for (j, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
            printer_column(
                column,
                &index(
                    &shared(
                        same_columns,
                        "additionalPrinterColumns",
                        "additionalPrinterColumns",
                    ),
                    j,
                ),
                causes,
            );
        }
    }
    let unique: std::collections::BTreeSet<&str> = versions.iter().map(|v| text(v, "/name")).collect();
    if unique.len() != versions.len() {
        causes.push(Cause::invalid(
            "spec.versions",
            &all,
            "must contain unique version names",
        ));
    }
    if versions
        .iter()
        .filter(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &all, detail));
        let detail = "must have at least one stored version";
        causes.push(Cause::invalid("status.storedVersions", &Value::Null, detail));
    }
}

fn printer_column(column: &Value, path: &str, causes: &mut Vec<Cause>) {
    if text(column, "/name").is_empty() {
        causes.push(Cause::required(child(path, "name"), ""));
    }
    match text(column, "/type") {
        "" => causes.push(Cause::required(
            child(path, "type"),
            &format!("must be one of {TYPES}"),
        )),
        ty if TYPES.split(',').any(|t| t == ty) => {}
        ty => causes.push(Cause::invalid(
            child(path, "type"),
            &ty.into(),
            &format!("must be one of {TYPES}"),
        )),
    }
    let format = text(column, "/format");
    if !format.is_empty() && !FORMATS.split(',').any(|f| f == format) {
        causes.push(Cause::invalid(
            child(path, "format"),
            &format.into(),
            &format!("must be one of {FORMATS}"),
        ));
    }
    match text(column, "/jsonPath") {
        "" => causes.push(Cause::required(child(path, "JSONPath"), "")),
        json_path if json_path.starts_with('.') => {}
        json_path => {
            let detail = "must be a simple json path starting with .";
            causes.push(Cause::invalid(child(path, "JSONPath"), &json_path.into(), detail));
        }
    }
}

fn names_of(crd: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.names";
    let name = |field: &str| text(crd, &format!("/spec/names/{field}")).to_owned();
    for field in ["plural", "singular", "kind", "listKind"] {
        if name(field).is_empty() {
            causes.push(Cause::required(child(path, field), ""));
        }
    }
    causes.extend(label(&name("plural"), child(path, "plural"), ""));
    causes.extend(label(&name("singular"), child(path, "singular"), ""));
    causes.extend(label(&name("kind"), child(path, "kind"), MIXED));
    causes.extend(label(&name("listKind"), child(path, "listKind"), MIXED));
    for field in ["shortNames", "categories"] {
        for (i, value) in list(crd, &format!("/spec/names/{field}")).iter().enumerate() {
            let path = index(&child(path, field), i);
            let problems = names::dns_1035_label(value.as_str().unwrap_or_default());
            if !problems.is_empty() {
                causes.push(Cause::invalid(path, value, &problems.join(",")));
            }
        }
    }
    if !name("kind").is_empty() && name("kind") == name("listKind") {
        let detail = "kind and listKind may not be the same";
        causes.push(Cause::invalid(
            child(path, "listKind"),
            &name("listKind").into(),
            detail,
        ));
    }
}

fn conversion(crd: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.conversion";
    let webhook = crd.pointer("/spec/conversion/webhook").filter(|w| !w.is_null());
    match text(crd, "/spec/conversion/strategy") {
        "" if crd.pointer("/spec/conversion").is_some_and(|c| !c.is_null()) => {
            causes.push(Cause::required(child(path, "strategy"), ""));
        }
        "" | "None" => {
            if let Some(webhook) = webhook {
                for (field, shown) in [
                    ("clientConfig", "webhookClientConfig"),
                    ("conversionReviewVersions", "conversionReviewVersions"),
                ] {
                    if webhook.get(field).is_some() {
                        let detail = "should not be set when strategy is not set to Webhook";
                        causes.push(Cause::forbidden(child(path, shown), detail));
                    }
                }
            }
        }
        "Webhook" => {
            let config_path = child(path, "webhookClientConfig");
            match webhook.and_then(|w| w.get("clientConfig")) {
                None => {
                    let detail = "required when strategy is set to Webhook";
                    causes.push(Cause::required(config_path, detail));
                }
                config => client_config(config, &config_path, causes),
            }
            let versions = webhook.map(|w| list(w, "/conversionReviewVersions"));
            review_versions(
                versions.unwrap_or_default(),
                &child(path, "conversionReviewVersions"),
                causes,
            );
        }
        other => {
            causes.push(Cause::not_supported(
                child(path, "strategy"),
                &other.into(),
                &["None", "Webhook"],
            ));
        }
    }
}

/// Groups of the community need its approval; what was there without it stays as long as nobody says something else.
fn approval(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let given = Approval::of(new);
    let Some(detail) = given.as_ref().and_then(Approval::problem) else {
        return;
    };
    if old.is_some_and(|old| Approval::of(old) == given) {
        return;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    causes.push(match given {
        Some(Approval::Invalid(given)) => Cause::invalid(path, &given.into(), &detail),
        _ => Cause::required(path, &detail),
    });
}

fn stored_versions(crd: &Value, causes: &mut Vec<Cause>) {
    let versions: Vec<&str> = list(crd, "/spec/versions")
        .iter()
        .map(|v| text(v, "/name"))
        .collect();
    for (i, stored) in list(crd, "/status/storedVersions").iter().enumerate() {
        let name = stored.as_str().unwrap_or_default();
        if !versions.contains(&name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.push(Cause::invalid(index("status.storedVersions", i), stored, &detail));
        }
    }
}
