//! Random writes by several managers to both servers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};

use super::compare::{differences, scrub};
use super::exchange::{Answer, Pair, Side, Wanted};
use super::random_draw::{Draw, Kind, definitions, kinds};
use super::values::{Values, fill};

/// The seeds of this run: fixed ones, or those in `CONFORMANCE_SEED`, one or `first-last`.
pub fn seeds() -> Vec<u64> {
    let Ok(wanted) = std::env::var("CONFORMANCE_SEED") else {
        return (1..=8).collect();
    };
    let (first, last) = wanted.split_once('-').unwrap_or((&wanted, &wanted));
    let number = |text: &str| text.parse::<u64>().expect("a number in CONFORMANCE_SEED");
    (number(first)..=number(last)).collect()
}

const WRITES: usize = 60;
/// How many kinds a sequence is about: few, so that objects live through much.
const AT_ONCE: usize = 4;
const MANAGERS: [&str; 4] = ["alice", "bob", "carol", "kubectl"];
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";

/// A request, before it is known what each server stored.
#[derive(Clone)]
struct Plan {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Value,
    /// The body is what to change in what is stored.
    edit: bool,
    /// Without the fields of this manager.
    forget: Option<&'static str>,
}

/// What one server has of one object.
#[derive(Default)]
struct Known {
    stored: Value,
    stale: String,
}

fn plain(method: &str, path: &str) -> Wanted {
    Wanted {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("Content-Type".into(), JSON.into())],
        body: Vec::new(),
        anonymous: false,
        stream: false,
        socket: false,
    }
}

fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

impl Plan {
    /// The request for a server.
    fn wanted(&self, known: &Known, owner: &str) -> Wanted {
        let mut body = self.body.clone();
        if self.edit && known.stored.is_object() {
            body = known.stored.clone();
            merge(&mut body, &self.body);
            if let Some(manager) = self.forget
                && let Some(fields) = body.pointer_mut("/metadata/managedFields")
                && let Some(entries) = fields.as_array_mut()
            {
                entries.retain(|entry| entry["manager"] != manager);
            }
        }
        let values = Values::from([
            ("rv".to_owned(), text(&known.stored, "/metadata/resourceVersion")),
            ("uid".to_owned(), text(&known.stored, "/metadata/uid")),
            ("stale".to_owned(), known.stale.clone()),
            ("owner".to_owned(), owner.to_owned()),
        ]);
        let body = if body.is_null() {
            String::new()
        } else {
            fill(&body.to_string(), &values)
        };
        let mut wanted = plain(self.method, &self.path);
        wanted.headers = vec![("Content-Type".into(), self.content_type.into())];
        wanted.body = body.into_bytes();
        wanted
    }
}

/// RFC 7386, for the test's own edits.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// The next request about an object.
fn plan(draw: &mut Draw, kind: &Kind, collection: &str, name: &str, seen: &Value) -> Plan {
    let one = format!("{collection}/{name}");
    let manager = draw.one(&MANAGERS);
    let mut body = draw.object(kind, name);
    let mut path = one.clone();
    if let Some(status) = kind.status.as_ref().filter(|_| draw.chance(15)) {
        let status = draw.value(status);
        path = format!("{one}/status");
        let keep = draw.chance(80);
        if keep {
            body.as_object_mut()
                .unwrap()
                .retain(|name, _| name == "apiVersion" || name == "kind");
            body["metadata"] = json!({"name": name});
        }
        body["status"] = status;
    } else if kind.scaled && draw.chance(6) {
        path = format!("{one}/scale");
        let replicas = draw.below(4);
        body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas}});
    }
    let version = draw.one(&["", "", "", "${rv}", "${stale}"]);
    if !version.is_empty() {
        body["metadata"]["resourceVersion"] = version.into();
    }
    if draw.chance(3) {
        body["metadata"]["uid"] = draw
            .one(&["${uid}", "11111111-1111-1111-1111-111111111111"])
            .into();
    }
    if draw.chance(12) {
        draw.disturb(&mut body);
    }
    let mut query = vec![format!("fieldManager={manager}")];
    if draw.chance(3) {
        query.clear();
    }
    if draw.chance(8) {
        query.push("dryRun=All".into());
    }
    if draw.chance(15) {
        let mode = draw.one(&["Strict", "Ignore", "Warn"]);
        query.push(format!("fieldValidation={mode}"));
    }
    let mut plan = Plan {
        method: "PATCH",
        path,
        content_type: MERGE,
        body,
        edit: false,
        forget: None,
    };
    let mut changes = plan.body.clone();
    if draw.chance(90)
        && let Some(map) = changes.as_object_mut()
    {
        map.remove("apiVersion");
        map.remove("kind");
    }
    match draw.below(100) {
        0..12 => {
            plan.method = "POST";
            collection.clone_into(&mut plan.path);
            plan.content_type = JSON;
        }
        12..45 => {
            plan.content_type = APPLY;
            if let Some(metadata) = plan.body.get_mut("metadata").and_then(Value::as_object_mut)
                && metadata.get("resourceVersion").is_some_and(|v| v == "${stale}")
            {
                metadata.remove("resourceVersion");
            }
            if draw.chance(50) {
                query.push("force=true".into());
            }
        }
        45..58 => plan.body = changes,
        58..66 => {
            plan.body = changes;
            plan.content_type = STRATEGIC;
        }
        66..73 => {
            let mut known = seen.clone();
            let placeholders = json!({"metadata": {"uid": "${uid}", "resourceVersion": "${rv}", "ownerReferences": null, "managedFields": null}});
            merge(&mut known, &placeholders);
            merge(&mut known, &plan.body);
            plan.body = draw.json_patch(&known);
            plan.content_type = PATCH;
        }
        73..80 => {
            plan.method = "PUT";
            plan.content_type = JSON;
        }
        80..90 => {
            plan.method = "PUT";
            plan.content_type = JSON;
            plan.edit = true;
            match draw.below(6) {
                0 => plan.forget = Some(manager),
                1 => {
                    plan.body["metadata"]["managedFields"] = draw.one(&[json!([]), json!([{}]), json!(null)]);
                }
                _ => {}
            }
        }
        90..92 if kind.path.contains("/namespaces/") => {
            query.push(format!("labelSelector=a%3D{}", draw.one(&["1", "2"])));
            plan = remove(draw, collection.to_owned());
        }
        _ => plan = remove(draw, one),
    }
    plan.path = format!("{}?{}", plan.path, query.join("&"));
    plan
}

fn remove(draw: &mut Draw, path: String) -> Plan {
    let options = [
        json!({}),
        json!({}),
        json!({"gracePeriodSeconds": 0}),
        json!({"preconditions": {"uid": "${uid}"}}),
        json!({"preconditions": {"resourceVersion": "${rv}"}}),
        json!({"preconditions": {"resourceVersion": "${stale}"}}),
        json!({"dryRun": ["All"]}),
    ];
    let mut body = draw.one(&options);
    // Jobs orphan what they own, which takes a while.
    if path.ends_with("/jobs") || path.contains("/jobs/") {
        body["propagationPolicy"] = "Background".into();
    } else if body == json!({}) {
        body = Value::Null;
    }
    Plan {
        method: "DELETE",
        path,
        content_type: JSON,
        body,
        edit: false,
        forget: None,
    }
}

async fn send(side: &Side, wanted: &Wanted) -> Result<Answer, String> {
    side.send(wanted).await.map_err(|error| format!("{error:?}"))
}

/// Asks until it is there.
async fn ready(side: &Side, path: &str) -> Result<Value, String> {
    for _ in 0..600 {
        let answer = send(side, &plain("GET", path)).await?;
        if answer.code == 200 {
            return Ok(answer.body);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("no {path}"))
}

/// What counts of an answer.
fn told(answer: &Answer, owner: &str, coarse: bool) -> Value {
    if answer.body.get("kind").and_then(Value::as_str) != Some("Status") {
        return json!({"code": answer.code, "warnings": (!coarse).then_some(&answer.warnings), "body": scrub(&answer.body)});
    }
    let causes = answer.body.pointer("/details/causes").and_then(Value::as_array);
    let mut causes: Vec<Value> = causes
        .into_iter()
        .flatten()
        .map(|cause| {
            let conflict = cause["reason"] == "FieldManagerConflict";
            json!([
                cause.get("reason"),
                text(cause, "/field").replace(owner, "<uid>"),
                conflict.then(|| cause.get("message"))
            ])
        })
        .collect();
    causes.sort_by_key(ToString::to_string);
    causes.dedup();
    json!({"code": answer.code, "reason": answer.body.get("reason"), "causes": causes})
}

/// Sends a random sequence; the first difference ends it.
pub async fn run(pair: &Pair, seed: u64) -> Result<(), String> {
    let mut draw = Draw::new(seed);
    let namespace = format!("random-{seed}");
    let sides = [&pair.real, &pair.ours];
    let mut owners = Vec::new();
    let mut kinds: Vec<Kind> = kinds();
    while kinds.len() > AT_ONCE {
        let unlucky = draw.below(kinds.len());
        kinds.remove(unlucky);
    }
    for kind in &mut kinds {
        kind.path = kind.path.replace("NS", &namespace);
    }
    let mut start = HashMap::new();
    for side in sides {
        let mut setup = vec![("/api/v1/namespaces", json!({"metadata": {"name": namespace}}))];
        let place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        setup.extend(definitions().into_iter().map(|definition| (place, definition)));
        for (path, body) in setup {
            let mut request = plain("POST", path);
            request.body = body.to_string().into_bytes();
            send(side, &request).await?;
        }
        let owner = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        owners.push(text(&ready(side, &owner).await?, "/metadata/uid"));
        for kind in &kinds {
            let list = ready(side, &kind.path).await?;
            start.insert(
                (side.name, kind.path.clone()),
                text(&list, "/metadata/resourceVersion"),
            );
        }
    }
    let mut known: BTreeMap<String, [Known; 2]> = BTreeMap::new();
    let mut history: Vec<String> = Vec::new();
    for step in 0..WRITES {
        let kind = draw.one(&kinds);
        // Names in no namespace are shared by all sequences.
        let prefix = if kind.path.contains("/namespaces/") {
            ""
        } else {
            &namespace
        };
        let name = format!("{prefix}{}", draw.one(&["a", "a", "b"]));
        let one = format!("{}/{name}", kind.path);
        let known = known.entry(one.clone()).or_default();
        let plan = plan(&mut draw, &kind, &kind.path, &name, &known[0].stored);
        history.push(format!(
            "{} {} {} {}",
            plan.method, plan.path, plan.content_type, plan.body
        ));
        let mut results = Vec::new();
        let mut messages = Vec::new();
        for ((side, owner), known) in sides.into_iter().zip(&owners).zip(known) {
            let Ok(answer) = send(side, &plan.wanted(known, owner)).await else {
                // What makes the real one close the connection cannot be compared.
                break;
            };
            if kind.coarse && answer.code == 422 && results.is_empty() {
                break;
            }
            let after = send(side, &plain("GET", &one)).await?;
            let before = text(&known.stored, "/metadata/resourceVersion");
            let now = text(&after.body, "/metadata/resourceVersion");
            let changed = before != now;
            if changed && !before.is_empty() {
                known.stale = before;
            }
            let stored = if after.code == 200 {
                after.body
            } else {
                json!(after.code)
            };
            results.push(json!({"answer": told(&answer, owner, kind.coarse), "changed": changed, "stored": scrub(&stored)}));
            messages.push(answer.body.get("message").cloned().unwrap_or_default());
            known.stored = stored;
        }
        let [real, ours] = results.as_slice() else {
            continue;
        };
        let mut found = Vec::new();
        differences(real, ours, "", &mut found);
        if !found.is_empty() {
            let about: Vec<&str> = history
                .iter()
                .filter(|line| line.contains(&kind.path))
                .map(String::as_str)
                .collect();
            return Err(format!(
                "seed {seed}, write {step}:\n  {}\nmessages: {}\n  {}\nhistory of the object:\n  {}",
                found.join("\n  "),
                messages[0],
                messages[1],
                about.join("\n  ")
            ));
        }
    }
    watched(pair, seed, &kinds, &start).await
}

/// What was told to watchers meanwhile.
async fn watched(
    pair: &Pair,
    seed: u64,
    kinds: &[Kind],
    start: &HashMap<(&str, String), String>,
) -> Result<(), String> {
    // What is in no namespace is written by all sequences.
    let own = kinds.iter().filter(|kind| kind.path.contains("/namespaces/"));
    let watches = own.enumerate().map(|(i, kind)| async move {
        let selector = [
            "",
            "&labelSelector=a%3D1",
            "&fieldSelector=metadata.name%3Da",
            "&labelSelector=!b",
        ][i % 4];
        let form = ["", ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"][i.div_ceil(2) % 2];
        let mut told = Vec::new();
        for side in [&pair.real, &pair.ours] {
            let since = &start[&(side.name, kind.path.clone())];
            let path = format!(
                "{}?watch=true&timeoutSeconds=1&resourceVersion={since}{selector}",
                kind.path
            );
            let mut request = plain("GET", &path);
            request.headers = vec![("Accept".into(), format!("{JSON}{form}"))];
            request.stream = true;
            told.push(scrub(&send(side, &request).await?.body));
        }
        let mut found = Vec::new();
        differences(&told[0], &told[1], "", &mut found);
        if found.is_empty() {
            return Ok(());
        }
        Err(format!(
            "seed {seed}, watch of {}{selector}{form}:\n  {}",
            kind.path,
            found.join("\n  ")
        ))
    });
    futures::future::try_join_all(watches).await.map(|_| ())
}
