//! Random writes by several managers to both servers.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::compare::{differences, scrub};
use super::exchange::{Pair, Wanted};

/// The seeds of this run: fixed ones, or the one in `CONFORMANCE_SEED`.
pub fn seeds() -> Vec<u64> {
    match std::env::var("CONFORMANCE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=8).collect(),
    }
}

const WRITES: usize = 60;
const MANAGERS: [&str; 4] = ["alice", "bob", "carol", "kubectl"];

struct Kind {
    path: &'static str,
    api_version: &'static str,
    name: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        path: "/api/v1/namespaces/NS/configmaps",
        api_version: "v1",
        name: "ConfigMap",
    },
    Kind {
        path: "/api/v1/namespaces/NS/services",
        api_version: "v1",
        name: "Service",
    },
    Kind {
        path: "/apis/apps/v1/namespaces/NS/deployments",
        api_version: "apps/v1",
        name: "Deployment",
    },
    Kind {
        path: "/apis/random.example.com/v1/namespaces/NS/widgets",
        api_version: "random.example.com/v1",
        name: "Widget",
    },
];

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.random.example.com"},
        "spec": {"group": "random.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer"},
                        "color": {"type": "string", "default": "red"},
                        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "atoms": {"type": "array", "items": {"type": "string"}},
                        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "note": {"type": "string"}}}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "fixed": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}}}
                }}}}]}
    })
}

fn some<T: Clone>(rng: &mut StdRng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())].clone()
}

fn map(rng: &mut StdRng) -> Value {
    let mut out = serde_json::Map::new();
    for key in ["a", "b", "c"] {
        if rng.random_bool(0.5) {
            out.insert(key.into(), some(rng, &["1", "2"]).into());
        }
    }
    out.into()
}

fn list(rng: &mut StdRng) -> Value {
    let mut all = vec!["x", "y", "z"];
    if rng.random_bool(0.3) {
        all.reverse();
    }
    all.into_iter().filter(|_| rng.random_bool(0.5)).collect()
}

fn maybe(rng: &mut StdRng, object: &mut Value, name: &str, value: Value) {
    if rng.random_bool(0.5) {
        object[name] = value;
    }
}

/// A random object of a kind, as a person might write it.
fn object(rng: &mut StdRng, kind: &Kind, name: &str) -> Value {
    let mut out = json!({"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}});
    let labels = map(rng);
    let mut metadata = out["metadata"].clone();
    maybe(rng, &mut metadata, "labels", labels);
    let annotations = map(rng);
    maybe(rng, &mut metadata, "annotations", annotations);
    let finalizers = json!(["example.com/keep"]);
    if rng.random_bool(0.1) {
        metadata["finalizers"] = finalizers;
    }
    out["metadata"] = metadata;
    match kind.name {
        "ConfigMap" => {
            let data = map(rng);
            maybe(rng, &mut out, "data", data);
        }
        "Service" => {
            let mut ports = Vec::new();
            for (name, port) in [("web", 80), ("api", 81), ("dns", 53)] {
                if rng.random_bool(0.5) || (name == "web" && ports.is_empty()) {
                    let mut entry = json!({"name": name, "port": port});
                    maybe(rng, &mut entry, "protocol", json!("UDP"));
                    let target = json!(some(rng, &[8080, 9090]));
                    maybe(rng, &mut entry, "targetPort", target);
                    ports.push(entry);
                }
            }
            out["spec"] = json!({"clusterIP": "None", "ports": ports});
            // A headless service that gains or loses its selector meets rules of address families.
            out["spec"]["selector"] = json!({"app": some(rng, &["v", "w"])});
        }
        "Deployment" => {
            let mut containers = Vec::new();
            for name in ["one", "two"] {
                if rng.random_bool(0.6) || containers.is_empty() {
                    let mut entry = json!({"name": name, "image": some(rng, &["i:1", "i:2"])});
                    let env: Vec<Value> = ["A", "B"]
                        .into_iter()
                        .filter(|_| rng.random_bool(0.5))
                        .map(|n| json!({"name": n, "value": "v"}))
                        .collect();
                    maybe(rng, &mut entry, "env", env.into());
                    maybe(rng, &mut entry, "ports", json!([{"containerPort": 80}]));
                    let args = list(rng);
                    maybe(rng, &mut entry, "args", args);
                    containers.push(entry);
                }
            }
            out["spec"] = json!({"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}}});
            let replicas = json!(some(rng, &[1, 2, 3]));
            maybe(rng, &mut out["spec"], "replicas", replicas);
        }
        _ => {
            let mut spec = json!({});
            let size = json!(some(rng, &[1, 2]));
            maybe(rng, &mut spec, "size", size);
            let color = json!(some(rng, &["red", "blue"]));
            maybe(rng, &mut spec, "color", color);
            for name in ["tags", "atoms"] {
                let value = list(rng);
                maybe(rng, &mut spec, name, value);
            }
            for name in ["fixed", "labels"] {
                let value = map(rng);
                maybe(rng, &mut spec, name, value);
            }
            let free = json!({"deep": map(rng), "list": list(rng)});
            maybe(rng, &mut spec, "free", free);
            let mut parts = Vec::new();
            for name in ["p", "q"] {
                if rng.random_bool(0.5) {
                    let mut piece = json!({"name": name});
                    let port = json!(some(rng, &[80, 81]));
                    maybe(rng, &mut piece, "port", port);
                    let note = json!(some(rng, &["n", "m"]));
                    maybe(rng, &mut piece, "note", note);
                    parts.push(piece);
                }
            }
            maybe(rng, &mut spec, "parts", parts.into());
            out["spec"] = spec;
            maybe(rng, &mut out, "status", json!({"phase": "P", "count": 1}));
        }
    }
    out
}

fn wanted(method: &'static str, path: String, content_type: &str, body: &Value) -> Wanted {
    Wanted {
        method: method.to_owned(),
        path,
        headers: vec![("Content-Type".into(), content_type.into())],
        body: body.to_string().into_bytes(),
        anonymous: false,
        stream: false,
        socket: false,
    }
}

/// Sends a random sequence; the first difference ends it.
pub async fn run(pair: &Pair, seed: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let namespace = format!("random-{seed}");
    let setup = [
        wanted(
            "POST",
            "/api/v1/namespaces".into(),
            "application/json",
            &json!({"metadata": {"name": namespace}}),
        ),
        wanted(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(),
            "application/json",
            &crd(),
        ),
    ];
    for request in &setup {
        for side in [&pair.real, &pair.ours] {
            side.send(request).await.map_err(|e| format!("{e:?}"))?;
        }
    }
    for side in [&pair.real, &pair.ours] {
        let ready = wanted(
            "GET",
            format!("/apis/random.example.com/v1/namespaces/{namespace}/widgets"),
            "application/json",
            &Value::Null,
        );
        for _ in 0..200 {
            if side.send(&ready).await.is_ok_and(|a| a.code == 200) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    let mut history = Vec::new();
    for step in 0..WRITES {
        let kind = &KINDS[rng.random_range(0..KINDS.len())];
        let name = some(&mut rng, &["a", "b"]);
        let manager = some(&mut rng, &MANAGERS);
        let collection = kind.path.replace("NS", &namespace);
        let one = format!("{collection}/{name}");
        let body = object(&mut rng, kind, name);
        let status = kind.name == "Widget" && rng.random_bool(0.2);
        let one_or_status = if status {
            format!("{one}/status")
        } else {
            one.clone()
        };
        let action = rng.random_range(0..100);
        let force = if rng.random_bool(0.5) { "&force=true" } else { "" };
        let requests: Vec<Wanted> = match action {
            0..15 => vec![wanted(
                "POST",
                format!("{collection}?fieldManager={manager}"),
                "application/json",
                &body,
            )],
            15..60 => vec![wanted(
                "PATCH",
                format!("{one_or_status}?fieldManager={manager}{force}"),
                "application/apply-patch+yaml",
                &body,
            )],
            60..75 => vec![wanted(
                "PATCH",
                format!("{one_or_status}?fieldManager={manager}"),
                "application/merge-patch+json",
                &merge(&body),
            )],
            75..80 if kind.name != "Widget" => {
                vec![wanted(
                    "PATCH",
                    format!("{one}?fieldManager={manager}"),
                    "application/strategic-merge-patch+json",
                    &merge(&body),
                )]
            }
            75..85 => vec![wanted(
                "PATCH",
                format!("{one}?fieldManager={manager}"),
                "application/json-patch+json",
                &json!([{"op": "add", "path": "/metadata/labels", "value": map(&mut rng)}]),
            )],
            85..95 => vec![wanted(
                "PUT",
                format!("{one_or_status}?fieldManager={manager}"),
                "application/json",
                &body,
            )],
            _ => vec![
                wanted(
                    "PATCH",
                    one.clone(),
                    "application/merge-patch+json",
                    &json!({"metadata": {"finalizers": null}}),
                ),
                wanted("DELETE", one.clone(), "application/json", &Value::Null),
            ],
        };
        for request in &requests {
            let mut request = request.clone();
            if request.method == "DELETE" {
                request.body.clear();
            }
            history.push(format!(
                "{} {} {}",
                request.method,
                request.path,
                String::from_utf8_lossy(&request.body)
            ));
            let mut results = Vec::new();
            for side in [&pair.real, &pair.ours] {
                let answer = side.send(&request).await.map_err(|e| format!("{e:?}"))?;
                let get = wanted("GET", one.clone(), "application/json", &Value::Null);
                let after = side
                    .send(&Wanted {
                        body: Vec::new(),
                        ..get
                    })
                    .await
                    .map_err(|e| format!("{e:?}"))?;
                let stored = if after.code == 200 {
                    scrub(&after.body)
                } else {
                    json!(after.code)
                };
                results.push((
                    answer.code,
                    answer.body.get("reason").cloned(),
                    conflicts(&answer.body),
                    stored,
                    answer.body,
                ));
            }
            let mut found = Vec::new();
            let of = |i: usize| json!({"code": results[i].0, "reason": results[i].1, "conflicts": results[i].2, "stored": results[i].3});
            differences(&of(0), &of(1), "", &mut found);
            if !found.is_empty() {
                let tail: Vec<&String> = history
                    .iter()
                    .filter(|h| h.contains(&one) || h.contains(&format!("POST {collection}")))
                    .collect();
                return Err(format!(
                    "seed {seed}, write {step}:\n  {}\nmessages: {} | {}\nhistory of the object:\n  {}",
                    found.join("\n  "),
                    results[0].4.get("message").unwrap_or(&Value::Null),
                    results[1].4.get("message").unwrap_or(&Value::Null),
                    tail.iter().map(|s| s.as_str()).collect::<Vec<_>>().join("\n  ")
                ));
            }
        }
    }
    Ok(())
}

/// A merge patch made of an object.
fn merge(object: &Value) -> Value {
    let mut patch = object.clone();
    if let Some(map) = patch.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    patch
}

fn conflicts(body: &Value) -> Value {
    let causes = body
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut causes: Vec<String> = causes
        .iter()
        .filter(|c| c.get("reason").and_then(Value::as_str) == Some("FieldManagerConflict"))
        .map(|c| format!("{} {}", c["field"], c["message"]))
        .collect();
    causes.sort();
    json!(causes)
}
