//! Reduces the published OpenAPI documents of Kubernetes to what the embedded API server needs of the
//! built-in kinds: types, list and map kinds, merge keys, and how empty fields are written out (which
//! only the Go types know).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::control_plane;

/// The groups whose kinds are served.
const DOCUMENTS: [&str; 16] = [
    "api__v1",
    "apis__admissionregistration.k8s.io__v1",
    "apis__apiextensions.k8s.io__v1",
    "apis__apps__v1",
    "apis__authentication.k8s.io__v1",
    "apis__authorization.k8s.io__v1",
    "apis__autoscaling__v1",
    "apis__autoscaling__v2",
    "apis__batch__v1",
    "apis__certificates.k8s.io__v1",
    "apis__coordination.k8s.io__v1",
    "apis__discovery.k8s.io__v1",
    "apis__events.k8s.io__v1",
    "apis__networking.k8s.io__v1",
    "apis__policy__v1",
    "apis__rbac.authorization.k8s.io__v1",
];
/// Groups with so few served kinds that they are listed apart.
const MORE_DOCUMENTS: [&str; 2] = ["apis__scheduling.k8s.io__v1", "apis__storage.k8s.io__v1"];

/// Kinds that are sent to a subresource, and so described with the group of that.
const OF_SUBRESOURCES: [&str; 2] = ["authentication.k8s.io/v1/TokenRequest", "autoscaling/v1/Scale"];

const TARGET: &str = "crates/apiserver/src/builtin/schemas.json";

/// Writes the reduced schemas, reading Kubernetes' own module from the Go module cache.
pub fn write() -> Result<()> {
    let modules = PathBuf::from(
        env::var("GOMODCACHE").or_else(|_| env::var("HOME").map(|h| format!("{h}/go/pkg/mod")))?,
    );
    let version = control_plane::version("kubernetes")?;
    let minor = version
        .split_once('.')
        .map(|(_, rest)| rest)
        .context("a version such as 1.36.3")?;
    let staging = |name: &str| modules.join(format!("k8s.io/{name}@v0.{minor}"));
    let openapi = modules.join(format!("k8s.io/kubernetes@v{version}/api/openapi-spec/v3"));
    if !openapi.is_dir() {
        bail!(
            "{} is missing: run `cargo xtask control-plane` first",
            openapi.display()
        );
    }
    let mut types = GoTypes::default();
    types.load(&staging("api"), "io.k8s.api")?;
    types.load(
        &staging("apimachinery").join("pkg/apis/meta"),
        "io.k8s.apimachinery.pkg.apis.meta",
    )?;
    types.load(
        &staging("apiextensions-apiserver").join("pkg/apis"),
        "io.k8s.apiextensions-apiserver.pkg.apis",
    )?;

    let mut all = Map::new();
    let mut kinds = BTreeMap::new();
    for name in DOCUMENTS.iter().chain(&MORE_DOCUMENTS) {
        let path = openapi.join(format!("{name}_openapi.json"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let document: Value = serde_json::from_str(&text)?;
        let schemas = document
            .pointer("/components/schemas")
            .and_then(Value::as_object)
            .context("schemas")?;
        let group_version = name
            .trim_start_matches("apis__")
            .trim_start_matches("api__")
            .replace("__", "/");
        for (definition, schema) in schemas {
            for gvk in schema
                .get("x-kubernetes-group-version-kind")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let text = |key: &str| {
                    gvk.get(key)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let own = format!("{}/{}", text("group"), text("version"));
                let own = own.trim_start_matches('/');
                let kind = format!("{own}/{}", text("kind"));
                if (own == group_version || OF_SUBRESOURCES.contains(&kind.as_str()))
                    && !kind.ends_with("List")
                    && !definition.contains(".meta.v1.")
                {
                    kinds.insert(kind, definition.clone());
                }
            }
            all.insert(definition.clone(), schema.clone());
        }
    }

    let mut used = BTreeSet::new();
    let mut queue: Vec<String> = kinds.values().cloned().collect();
    while let Some(name) = queue.pop() {
        if used.insert(name.clone()) {
            collect_references(all.get(&name).unwrap_or(&Value::Null), &mut queue);
        }
    }
    let definitions: Map<String, Value> = used
        .iter()
        .map(|name| {
            let mut schema = reduce(all.get(name).unwrap_or(&Value::Null));
            specials(name, &mut schema);
            let fields = types.presence(name);
            if !fields.is_empty() {
                set(&mut schema, "x-go", json!(fields));
            }
            (name.clone(), schema)
        })
        .collect();
    let mut out = String::from("{\"kinds\":");
    out.push_str(&serde_json::to_string(&kinds)?);
    out.push_str(",\n\"definitions\":{\n");
    let lines: Result<Vec<String>, _> = definitions
        .iter()
        .map(|(name, schema)| {
            Ok::<_, serde_json::Error>(format!("\"{name}\":{}", serde_json::to_string(schema)?))
        })
        .collect();
    out.push_str(&lines?.join(",\n"));
    out.push_str("\n}}\n");
    fs::write(TARGET, &out)?;
    println!(
        "{TARGET}: {} kinds, {} definitions, {} bytes",
        kinds.len(),
        definitions.len(),
        out.len()
    );
    Ok(())
}

fn short(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

fn collect_references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                out.push(short(reference));
            }
            map.values().for_each(|v| collect_references(v, out));
        }
        Value::Array(list) => list.iter().for_each(|v| collect_references(v, out)),
        _ => {}
    }
}

/// Keeps what the engines read.
fn reduce(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else {
        return json!({});
    };
    let mut out = Map::new();
    let wrapped = map
        .get("allOf")
        .and_then(|a| a.get(0))
        .and_then(|a| a.get("$ref"));
    if let Some(reference) = map.get("$ref").or(wrapped).and_then(Value::as_str) {
        out.insert("$ref".into(), short(reference).into());
    }
    for (key, value) in map {
        match key.as_str() {
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties: Map<String, Value> = properties
                    .map(|(name, schema)| (name.clone(), reduce(schema)))
                    .collect();
                out.insert(key.clone(), properties.into());
            }
            "items" => {
                out.insert(key.clone(), reduce(value));
            }
            "additionalProperties" => {
                out.insert(
                    key.clone(),
                    if value.is_object() {
                        reduce(value)
                    } else {
                        value.clone()
                    },
                );
            }
            "default" if !value.is_object() && !value.is_null() => {
                out.insert(key.clone(), value.clone());
            }
            "type" | "format" | "required" | "enum" => {
                out.insert(key.clone(), value.clone());
            }
            key if key.starts_with("x-kubernetes-") && key != "x-kubernetes-group-version-kind" => {
                out.insert(key.to_owned(), value.clone());
            }
            _ => {}
        }
    }
    out.into()
}

fn set(schema: &mut Value, name: &str, value: Value) {
    if let Some(map) = schema.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

/// Types that are more than they say.
fn specials(name: &str, schema: &mut Value) {
    let open = match (
        schema.get("type").and_then(Value::as_str),
        schema.get("properties"),
        schema.get("additionalProperties"),
    ) {
        (None, None, None) => schema.get("$ref").is_none(),
        (Some("object"), None, None) => true,
        _ => false,
    };
    if open {
        set(schema, "x-kubernetes-preserve-unknown-fields", true.into());
    }
    if name.ends_with(".resource.Quantity") {
        set(schema, "type", "string".into());
        set(schema, "format", "quantity".into());
        if let Some(map) = schema.as_object_mut() {
            map.remove("oneOf");
            map.remove("x-kubernetes-preserve-unknown-fields");
        }
    }
    if name.ends_with(".runtime.RawExtension") {
        *schema = json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic"});
    }
    if name.ends_with(".intstr.IntOrString") {
        *schema = json!({"x-kubernetes-int-or-string": true});
    }
}

/// What a Go type is, as far as JSON is concerned.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Text,
    Boolean,
    Number,
    Collection,
    Structure,
}

#[derive(Debug)]
struct Field {
    json: String,
    go: String,
    omit_empty: bool,
    omit_zero: bool,
}

#[derive(Default)]
struct Structure {
    fields: Vec<Field>,
    inlined: Vec<String>,
}

/// The Go types, by OpenAPI definition name.
#[derive(Default)]
struct GoTypes {
    structures: BTreeMap<String, Structure>,
    shapes: BTreeMap<String, Shape>,
}

impl GoTypes {
    fn load(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default()
                .to_owned();
            if path.is_dir() && name != "testdata" {
                self.load(&path, &format!("{prefix}.{name}"))?;
            } else if matches!(
                name.as_str(),
                "types.go" | "types_jsonschema.go" | "micro_time.go" | "time.go"
            ) {
                self.parse(&fs::read_to_string(&path)?, prefix);
            }
        }
        Ok(())
    }

    fn parse(&mut self, source: &str, package: &str) {
        let mut current: Option<(String, Structure)> = None;
        for line in source.lines() {
            if let Some((name, mut structure)) = current.take() {
                if line == "}" {
                    self.shapes.insert(name.clone(), Shape::Structure);
                    self.structures.insert(name, structure);
                    continue;
                }
                field(line, package, &mut structure);
                current = Some((name, structure));
                continue;
            }
            let mut words = line.strip_prefix("type ").unwrap_or_default().split_whitespace();
            let (Some(name), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            let name = format!("{package}.{name}");
            match kind {
                "struct" if line.ends_with('{') => current = Some((name, Structure::default())),
                kind => {
                    self.shapes.insert(name, self.shape(kind, package));
                }
            }
        }
    }

    fn shape(&self, go: &str, package: &str) -> Shape {
        match go {
            "string" | "types.UID" | "types.NodeName" => Shape::Text,
            "bool" => Shape::Boolean,
            _ if go.starts_with("[]") || go.starts_with("map[") => Shape::Collection,
            _ if go.starts_with("int") || go.starts_with("uint") || go.starts_with("float") => Shape::Number,
            _ => self
                .shapes
                .get(&qualify(go, package))
                .cloned()
                .unwrap_or(Shape::Text),
        }
    }

    /// How each field of a definition is written out when it was not given.
    fn presence(&self, definition: &str) -> BTreeMap<String, &'static str> {
        let mut out = BTreeMap::new();
        let Some(structure) = self.structures.get(definition) else {
            return out;
        };
        // What an object is stands in every answer.
        for inlined in structure
            .inlined
            .iter()
            .filter(|name| !name.ends_with(".TypeMeta"))
        {
            out.extend(self.presence(inlined));
        }
        let package = definition.rsplit_once('.').map_or("", |(p, _)| p);
        for field in &structure.fields {
            if let Some(code) = self.code(field, package) {
                out.insert(field.json.clone(), code);
            }
        }
        out
    }

    fn code(&self, field: &Field, package: &str) -> Option<&'static str> {
        let collection = field.go.starts_with("[]") || field.go.starts_with("map[");
        let type_name = if collection {
            ""
        } else {
            field.go.rsplit('.').next().unwrap_or_default()
        };
        if field.go.starts_with('*') {
            return (!field.omit_empty).then_some("n");
        }
        match (type_name, field.omit_zero) {
            ("Time" | "MicroTime" | "RawExtension" | "JSON", false) => return Some("n"),
            ("Quantity", false) => return Some("q"),
            ("IntOrString", false) => return Some("0"),
            ("Time" | "MicroTime" | "RawExtension" | "JSON" | "Quantity" | "IntOrString", true) => {
                return None;
            }
            _ => {}
        }
        Some(
            match (
                self.shape(&field.go, package),
                field.omit_empty || field.omit_zero,
            ) {
                (Shape::Structure, true) if field.omit_zero => "o",
                (Shape::Structure, _) => "s",
                (_, true) => "o",
                (Shape::Collection, false) => "n",
                (Shape::Text, false) => "t",
                (Shape::Number, false) => "0",
                (Shape::Boolean, false) => "b",
            },
        )
    }
}

fn qualify(go: &str, package: &str) -> String {
    match go.trim_start_matches('*').split_once('.') {
        Some(("metav1", name)) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        Some(("v1" | "corev1", name)) => format!("io.k8s.api.core.v1.{name}"),
        Some((_, name)) => format!("{package}.{name}"),
        None => format!("{package}.{}", go.trim_start_matches('*')),
    }
}

fn field(line: &str, package: &str, structure: &mut Structure) {
    let Some((declaration, tags)) = line.trim().split_once('`') else {
        return;
    };
    let Some(tag) = tags.split("json:\"").nth(1).and_then(|t| t.split('"').next()) else {
        return;
    };
    let mut options = tag.split(',');
    let json = options.next().unwrap_or_default().to_owned();
    let options: Vec<&str> = options.collect();
    let words: Vec<&str> = declaration.split_whitespace().collect();
    match (words.as_slice(), json.as_str()) {
        // Go's way to say: not in JSON.
        (_, "-") => {}
        ([embedded], "") => structure.inlined.push(qualify(embedded, package)),
        ([_, go], "") => structure.inlined.push(qualify(go, package)),
        ([_, go], _) => structure.fields.push(Field {
            json,
            go: (*go).to_owned(),
            omit_empty: options.contains(&"omitempty"),
            omit_zero: options.contains(&"omitzero"),
        }),
        ([embedded], _) => structure.fields.push(Field {
            json,
            go: (*embedded).to_owned(),
            omit_empty: options.contains(&"omitempty"),
            omit_zero: options.contains(&"omitzero"),
        }),
        _ => {}
    }
}
