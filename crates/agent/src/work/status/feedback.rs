//! Pure: the values that feedback rules ask for.

use serde::Serialize;
use serde_json::Value;
use writ_api::work::{FeedbackRule, FeedbackType, FeedbackValue, FieldValue, FieldValueType, JsonPath};
use writ_controller::condition::Wanted;
use writ_runtime::path::{Budget, Path};

use super::FEEDBACK;

/// The longest value that is not a scalar: the API's limit.
const MAX_RAW: usize = 1024;

/// The longest text: writing one large object on the cluster must not make a status too large to be written.
const MAX_TEXT: usize = 16 * 1024;

/// The values, and whether all could be read.
pub fn read_values(object: &Value, rules: &[FeedbackRule]) -> (Vec<FeedbackValue>, Wanted) {
    if rules.is_empty() {
        let nothing = Wanted::new(FEEDBACK, true, "NoStatusFeedbackSynced", "");
        return (Vec::new(), nothing);
    }
    let mut values: Vec<FeedbackValue> = Vec::new();
    let mut problems = Vec::new();
    let budget = Budget::default();
    let mut add = |name: &str, found: Result<Option<FieldValue>, String>| match found {
        Ok(Some(value)) if values.iter().all(|known| known.name != name) => values.push(FeedbackValue {
            name: name.into(),
            value,
        }),
        Ok(_) => {}
        Err(problem) => problems.push(problem),
    };
    for rule in rules {
        match rule.type_ {
            FeedbackType::WellKnownStatus => match well_known(object) {
                Some(paths) => {
                    for (name, path) in paths {
                        add(name, by_path(object, name, path, &budget));
                    }
                }
                None => add(
                    "",
                    Err(format!(
                        "cannot find the wellknown statuses for resource with gvk {}, Kind={}",
                        text(object, "apiVersion"),
                        text(object, "kind")
                    )),
                ),
            },
            FeedbackType::JsonPaths => {
                for path in &rule.json_paths {
                    add(&path.name, by_rule(object, path, &budget));
                }
            }
        }
    }
    let condition = if problems.is_empty() {
        Wanted::new(FEEDBACK, true, "StatusFeedbackSynced", "")
    } else {
        let message = format!("Sync status feedback failed with error {}", problems.join("; "));
        Wanted::new(FEEDBACK, false, "StatusFeedbackSyncFailed", message)
    };
    (values, condition)
}

fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn by_rule(object: &Value, rule: &JsonPath, budget: &Budget) -> Result<Option<FieldValue>, String> {
    let version = text(object, "apiVersion").rsplit('/').next().unwrap_or_default();
    if !rule.version.is_empty() && rule.version != version {
        return Err(format!(
            "version set in the path {} is {}, but the version of the object is {version}",
            rule.name, rule.version
        ));
    }
    by_path(object, &rule.name, &rule.path, budget)
}

fn by_path(object: &Value, name: &str, path: &str, budget: &Budget) -> Result<Option<FieldValue>, String> {
    let path = Path::jsonpath(path).map_err(|error| format!("{name}: {error}"))?;
    let found = path.select(object, budget);
    match found.map_err(|error| format!("{name}: {error}"))?.as_slice() {
        [] | [Value::Null] => Ok(None),
        [one] => field(name, one).map(Some),
        many => raw(name, &many).map(Some),
    }
}

fn field(name: &str, value: &Value) -> Result<FieldValue, String> {
    let mut field = FieldValue {
        type_: FieldValueType::JsonRaw,
        integer: None,
        string: None,
        boolean: None,
        json_raw: None,
    };
    match value {
        Value::Bool(value) => {
            field.type_ = FieldValueType::Boolean;
            field.boolean = Some(*value);
        }
        Value::String(value) if value.len() > MAX_TEXT => {
            return Err(format!(
                "{name}: the text has {} bytes, at most {MAX_TEXT} are reported",
                value.len()
            ));
        }
        Value::String(value) => {
            field.type_ = FieldValueType::String;
            field.string = Some(value.clone());
        }
        Value::Number(number) if number.as_i64().is_some() => {
            field.type_ = FieldValueType::Integer;
            field.integer = number.as_i64();
        }
        other => return raw(name, other),
    }
    Ok(field)
}

/// A value that is no scalar, as JSON. It is cut off while it is written: a path can select the same part many times.
fn raw(name: &str, value: &impl Serialize) -> Result<FieldValue, String> {
    let mut buffer = [0; MAX_RAW];
    let mut rest = buffer.as_mut_slice();
    let too_long =
        || format!("{name}: the value has more than {MAX_RAW} bytes of JSON, no more are reported");
    serde_json::to_writer(&mut rest, value).map_err(|_| too_long())?;
    let left = rest.len();
    let written = buffer.get(..MAX_RAW - left).unwrap_or_default();
    Ok(FieldValue {
        type_: FieldValueType::JsonRaw,
        integer: None,
        string: None,
        boolean: None,
        json_raw: Some(String::from_utf8_lossy(written).into_owned()),
    })
}

/// The values of well-known kinds.
fn well_known(object: &Value) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (text(object, "apiVersion"), text(object, "kind")) {
        ("apps/v1", "Deployment" | "StatefulSet") => &[
            ("ReadyReplicas", ".status.readyReplicas"),
            ("Replicas", ".status.replicas"),
            ("AvailableReplicas", ".status.availableReplicas"),
        ],
        ("apps/v1", "DaemonSet") => &[
            ("NumberReady", ".status.numberReady"),
            ("DesiredNumberScheduled", ".status.desiredNumberScheduled"),
            ("NumberAvailable", ".status.numberAvailable"),
        ],
        ("batch/v1", "Job") => &[
            (
                "JobComplete",
                r#".status.conditions[?(@.type=="Complete")].status"#,
            ),
            ("JobSucceeded", ".status.succeeded"),
        ],
        ("v1", "Pod") => &[
            ("PodReady", r#".status.conditions[?(@.type=="Ready")].status"#),
            ("PodPhase", ".status.phase"),
        ],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(paths: &Value) -> Vec<FeedbackRule> {
        serde_json::from_value(json!([{"type": "JSONPaths", "jsonPaths": paths}])).unwrap()
    }

    #[test]
    fn values_keep_their_types_and_missing_ones_are_omitted() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"share": 1.5},
            "status": {"replicas": 2, "ok": true, "phase": "Up", "list": [1, 2], "nothing": null}});
        let (values, condition) = read_values(
            &object,
            &rules(&json!([
                {"name": "replicas", "path": ".status.replicas"},
                {"name": "ok", "path": "{.status.ok}"},
                {"name": "phase", "path": ".status.phase", "version": "v1"},
                {"name": "share", "path": ".spec.share"},
                {"name": "list", "path": ".status.list"},
                {"name": "each", "path": ".status.list[*]"},
                {"name": "nothing", "path": ".status.nothing"},
                {"name": "missing", "path": ".status.missing.deep"},
            ])),
        );
        assert_eq!(condition.reason, "StatusFeedbackSynced");
        assert_eq!(
            serde_json::to_value(&values).unwrap(),
            json!([
                {"name": "replicas", "fieldValue": {"type": "Integer", "integer": 2}},
                {"name": "ok", "fieldValue": {"type": "Boolean", "boolean": true}},
                {"name": "phase", "fieldValue": {"type": "String", "string": "Up"}},
                {"name": "share", "fieldValue": {"type": "JsonRaw", "jsonRaw": "1.5"}},
                {"name": "list", "fieldValue": {"type": "JsonRaw", "jsonRaw": "[1,2]"}},
                {"name": "each", "fieldValue": {"type": "JsonRaw", "jsonRaw": "[1,2]"}},
            ])
        );
    }

    #[test]
    fn invalid_rule_is_named_and_the_others_count() {
        let object =
            json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running", "big": "x".repeat(9)}});
        let (values, condition) = read_values(
            &object,
            &rules(&json!([
                {"name": "bad", "path": ".status["},
                {"name": "old", "path": ".status.phase", "version": "v1beta1"},
                {"name": "phase", "path": ".status.phase"},
            ])),
        );
        assert_eq!(values.len(), 1);
        assert_eq!(condition.reason, "StatusFeedbackSyncFailed");
        assert!(condition.message.contains("bad") && condition.message.contains("v1beta1"));
    }

    #[test]
    fn rule_that_takes_too_many_steps_is_named() {
        let object =
            json!({"apiVersion": "v1", "kind": "X", "spec": {"list": vec![0; 300_000]}, "status": {"a": 1}});
        let (values, condition) = read_values(
            &object,
            &rules(&json!([
                {"name": "first", "path": ".status.a"},
                {"name": "all", "path": ".spec.list"},
                {"name": "much", "path": "..*..*..*..*"},
            ])),
        );
        assert_eq!(values.len(), 1);
        assert_eq!(condition.reason, "StatusFeedbackSyncFailed");
        let message = condition.message;
        assert!(message.contains("much: it takes too many steps"), "{message}");
        assert!(
            message.contains("all: the value has more than 1024 bytes"),
            "{message}"
        );
        for (length, fits) in [(MAX_TEXT, true), (MAX_TEXT + 1, false)] {
            let object = json!({"apiVersion": "v1", "kind": "X", "text": "x".repeat(length)});
            let (values, condition) =
                read_values(&object, &rules(&json!([{"name": "text", "path": ".text"}])));
            assert_eq!(values.len() == 1, fits, "{condition:?}");
        }
        // A value of exactly the limit is reported.
        for (length, fits) in [(MAX_RAW - 4, true), (MAX_RAW - 3, false)] {
            let object = json!({"apiVersion": "v1", "kind": "X", "list": ["x".repeat(length)]});
            let (values, _) = read_values(&object, &rules(&json!([{"name": "list", "path": ".list"}])));
            assert_eq!(values.len() == 1, fits, "{length}");
        }
    }

    #[test]
    fn well_known_kind_needs_no_paths() {
        let rule: Vec<FeedbackRule> = serde_json::from_value(json!([{"type": "WellKnownStatus"}])).unwrap();
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True"}]}});
        let (values, condition) = read_values(&job, &rule);
        assert_eq!(values.len(), 2);
        assert_eq!(values[0].value.string.as_deref(), Some("True"));
        assert_eq!(condition.reason, "StatusFeedbackSynced");
        let (_, condition) = read_values(&json!({"apiVersion": "v1", "kind": "Node"}), &rule);
        assert_eq!(condition.reason, "StatusFeedbackSyncFailed");
    }
}
