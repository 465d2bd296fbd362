//! Whatever OCM's own definitions accept, ours accept: no field is lost, nothing is refused that was not refused.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

/// What is meant to be stricter or different, each with its reason.
const MEANT: &[(&str, &str, &str)] = &[
    (
        "manifestworkreplicasets",
        ".minSuccessTime has a pattern",
        "it holds whatever Go reads as a duration, and OCM reads nothing else",
    ),
    (
        "clustermanagementaddons",
        ".minSuccessTime has a pattern",
        "the same",
    ),
    (
        "managedserviceaccounts",
        ".spec.rotation.validity has a maxLength",
        "no duration needs more, and the rule that reads it needs a bound",
    ),
    (
        "managedclusteraddons",
        ".status.healthCheck.mode has a pattern",
        "it is OCM's list of values",
    ),
    (
        "clustermanagementaddons",
        ".spec.installStrategy.type has a pattern",
        "it is OCM's list of values",
    ),
    (
        "managedclusters",
        ".status.managedNamespaces[].name has a minLength",
        "OCM's pattern asks for a character too",
    ),
    (
        "managedclustersets",
        ".spec.managedNamespaces[].name has a minLength",
        "OCM's pattern asks for a character too",
    ),
    (
        "managedserviceaccounts",
        ".spec.rotation.validity has the rule",
        "a lifetime that no server grants is refused at once",
    ),
    (
        "managedclustersets",
        " has the rule",
        "both rules are about fields that are ours",
    ),
    (
        "clustermanagementaddons",
        " is not served as v1beta1",
        "it has another shape, and nothing here converts",
    ),
    (
        "managedclusteraddons",
        " is not served as v1beta1",
        "it has another shape, and nothing here converts",
    ),
];

/// Our types cannot do without a spec: in these kinds an object without one is stored with what it would mean.
const FILLED_SPECS: [&str; 5] = [
    "clusterclaims",
    "managedclusters",
    "managedclustersetbindings",
    "managedserviceaccounts",
    "manifestworks",
];

/// Compares the definitions in these folders with ours.
pub fn accepted(folders: &[PathBuf]) -> Result<()> {
    let (mut compared, mut problems) = (0, Vec::new());
    let mut files = Vec::new();
    for folder in folders {
        let found = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        files.extend(found);
    }
    for file in files {
        let text = fs::read_to_string(file?.path())?;
        let theirs: Value = writ_runtime::yaml::from_str(&text)?;
        let name = theirs.pointer("/metadata/name").and_then(Value::as_str);
        let ours = writ_api::crds()
            .iter()
            .find(|crd| crd.metadata.name.as_deref() == name);
        let Some(ours) = ours else { continue };
        let plural = &ours.spec.names.plural;
        let ours = serde_json::to_value(ours)?;
        let mut found = names(&theirs, &ours);
        for version in versions(&theirs).filter(|version| version["served"] == true) {
            let name = version["name"].as_str().unwrap_or_default();
            let Some(same) = versions(&ours).find(|ours| ours["name"] == name) else {
                found.push(format!(" is not served as {name}"));
                continue;
            };
            compared += 1;
            found.extend(columns(version, same));
            compare(schema(version), schema(same), "", &mut found);
        }
        found.retain(|problem| !is_meant(plural, problem));
        problems.extend(found.into_iter().map(|problem| format!("{plural}: {problem}")));
    }
    ensure!(compared >= 14, "only {compared} definitions were compared");
    ensure!(problems.is_empty(), "ours differ:\n{}", problems.join("\n"));
    println!("{compared} definitions of OCM compared");
    Ok(())
}

fn is_meant(plural: &str, problem: &str) -> bool {
    let what_it_says = problem.split(": ").next().unwrap_or_default();
    MEANT
        .iter()
        .any(|(of, what, _)| of == &plural && what_it_says.ends_with(what))
        || problem.starts_with(".spec defaults to: ") && FILLED_SPECS.contains(&plural)
}

/// How people and clients name the kind.
fn names(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for part in [
        "/spec/scope",
        "/spec/names/kind",
        "/spec/names/plural",
        "/spec/names/singular",
    ] {
        if theirs.pointer(part) != ours.pointer(part) {
            found.push(format!(" has another {part}"));
        }
    }
    let known = ours.pointer("/spec/names/shortNames").and_then(Value::as_array);
    let theirs = theirs.pointer("/spec/names/shortNames").and_then(Value::as_array);
    for name in theirs.into_iter().flatten() {
        if known.is_none_or(|known| !known.contains(name)) {
            found.push(format!(" has no short name {name}"));
        }
    }
    found
}

/// What `kubectl get` shows, and which subresources there are.
fn columns(theirs: &Value, ours: &Value) -> Vec<String> {
    let shown = |version: &Value| -> BTreeSet<(String, String)> {
        let columns = version["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten();
        columns
            .map(|column| (column["name"].to_string(), column["jsonPath"].to_string()))
            .collect()
    };
    let missing = shown(theirs)
        .difference(&shown(ours))
        .cloned()
        .collect::<Vec<_>>();
    let mut found: Vec<_> = missing
        .into_iter()
        .map(|(name, _)| format!(" has no column {name}"))
        .collect();
    if theirs["subresources"] != ours["subresources"] {
        found.push(" has other subresources".into());
    }
    found
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn schema(version: &Value) -> &Value {
    version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null)
}

fn compare(theirs: &Value, ours: &Value, path: &str, into: &mut Vec<String>) {
    let mut say = |what: String| into.push(format!("{path} {what}"));
    if ours.is_null() {
        say("is not known".into());
        return;
    }
    let whole = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
    if whole(ours) != whole(theirs) {
        say(if whole(ours) {
            "keeps what OCM drops"
        } else {
            "is pruned"
        }
        .into());
    }
    let anything = |schema: &Value| schema["x-kubernetes-int-or-string"] == true;
    if theirs["type"] != ours["type"] && !(anything(theirs) && anything(ours)) {
        say(format!("is {}, and {} in OCM", ours["type"], theirs["type"]));
    }
    // A null that one stores and the other drops.
    let nullable = |schema: &Value| schema["nullable"] == true;
    if nullable(ours) != nullable(theirs) {
        say(format!(
            "is {} null",
            if nullable(ours) { "stored as" } else { "never" }
        ));
    }
    let names = |schema: &Value| -> BTreeSet<String> {
        let list = schema["required"].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for name in names(ours).difference(&names(theirs)) {
        say(format!("requires {name}"));
    }
    for limit in [
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "format",
    ] {
        let same = ours[limit] == theirs[limit]
            || ours[limit]
                .as_f64()
                .is_some_and(|limited| theirs[limit].as_f64() == Some(limited));
        let harmless = limit == "format" && ours["type"] == "integer";
        if !(ours[limit].is_null() || same || harmless) {
            say(format!("has a {limit}"));
        }
    }
    if let Some(values) = ours["enum"].as_array() {
        let theirs = theirs["enum"].as_array();
        if theirs.is_none_or(|theirs| theirs.iter().any(|value| !values.contains(value))) {
            say("has fewer values".into());
        }
    }
    if theirs["default"] != ours["default"] && !same_when_filled(theirs, ours) {
        say(format!(
            "defaults to: {}, and to {} in OCM",
            ours["default"], theirs["default"]
        ));
    }
    // How lists and maps are merged, and what may be in them twice.
    let atomic = Value::from("atomic");
    let merged = |schema: &Value| {
        let list = schema["x-kubernetes-list-type"].clone();
        (
            if list == atomic { Value::Null } else { list },
            schema["x-kubernetes-list-map-keys"].clone(),
            schema["x-kubernetes-map-type"].clone(),
        )
    };
    if merged(ours) != merged(theirs) {
        say("is merged in another way".into());
    }
    let rules = |schema: &Value| -> BTreeSet<String> {
        let list = schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten();
        list.map(|rule| rule["rule"].to_string()).collect()
    };
    for rule in rules(ours).difference(&rules(theirs)) {
        say(format!("has the rule: {rule}"));
    }
    let none = Map::new();
    let properties = |schema: &Value| schema["properties"].as_object().unwrap_or(&none).clone();
    let known = properties(ours);
    for (name, property) in &properties(theirs) {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let ours = known.get(name).unwrap_or(&Value::Null);
        compare(property, ours, &format!("{path}.{name}"), into);
    }
    if !theirs["items"].is_null() {
        compare(&theirs["items"], &ours["items"], &format!("{path}[]"), into);
    }
    if theirs["additionalProperties"].is_object() {
        compare(
            &theirs["additionalProperties"],
            &ours["additionalProperties"],
            &format!("{path}[*]"),
            into,
        );
    }
}

/// Whether what is stored is the same: the server fills the defaults of an object's fields in as well.
fn same_when_filled(theirs: &Value, ours: &Value) -> bool {
    filled(&theirs["default"], theirs) == filled(&ours["default"], ours)
}

fn filled(default: &Value, schema: &Value) -> Value {
    let Some(object) = default.as_object() else {
        return default.clone();
    };
    let mut object = object.clone();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = object.get(name) {
            let value = filled(value, property);
            object.insert(name.clone(), value);
        } else if !property["default"].is_null() {
            object.insert(name.clone(), filled(&property["default"], property));
        }
    }
    Value::Object(object)
}
