//! What all writes share: options, reading the object, admission, validation.

use bytes::Bytes;
use serde_json::Value;
use writ_authz::Attributes;

use super::{Call, meta, params, restrict, signing};
use crate::http::{NAMED, decode_body, forbidden, summary};
use crate::jsonpath;
use crate::registry::Scale;
use crate::schema::{Cause, meta as object_meta};
use crate::status::{Failure, Result};

/// What is done with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// The options of a write.
pub(super) struct Options {
    pub dry_run: bool,
    pub validation: Validation,
    pub manager: String,
    /// Apply takes fields from others.
    pub force: bool,
    /// The options of a deletion, as admission is shown them.
    pub delete: Option<Value>,
}

impl Options {
    /// Those of a write that the server makes by itself.
    pub fn of(manager: &str) -> Self {
        Self {
            dry_run: false,
            validation: Validation::Ignore,
            manager: manager.to_owned(),
            force: false,
            delete: None,
        }
    }
}

/// Reads and checks the options; `kind` is that of the options object, for messages.
pub(super) fn options(call: &Call, kind: &str) -> Result<Options> {
    let mut causes = Vec::new();
    let dry_run = call.query.all("dryRun");
    if let Some(bad) = dry_run.iter().find(|value| !matches!(**value, "All" | "")) {
        causes.push(Cause::not_supported("dryRun", &Value::from(vec![*bad]), &["All"]));
    }
    let manager = call.query.get("fieldManager");
    causes.extend(object_meta::validate_field_manager(
        manager.unwrap_or_default(),
        "fieldManager",
    ));
    let validation = match call.query.get("fieldValidation") {
        None | Some("Warn") => Validation::Warn,
        Some("Ignore") => Validation::Ignore,
        Some("Strict") => Validation::Strict,
        Some(other) => {
            causes.push(Cause::not_supported(
                "fieldValidation",
                &other.into(),
                &["", "Ignore", "Strict", "Warn"],
            ));
            Validation::Strict
        }
    };
    if !causes.is_empty() {
        return Err(Failure::invalid("meta.k8s.io", kind, "", &causes));
    }
    let manager = manager.map_or_else(|| from_user_agent(call), str::to_owned);
    Ok(Options {
        dry_run: dry_run.contains(&"All"),
        validation,
        manager,
        force: false,
        delete: None,
    })
}

/// Without a name, a writer is known by the program it uses.
fn from_user_agent(call: &Call) -> String {
    let agent = call.headers.get(http::header::USER_AGENT);
    let agent = agent.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let agent = agent.as_deref().unwrap_or_default();
    let program = agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in program.chars().filter(|c| object_meta::is_printable(*c)) {
        if name.len() + c.len_utf8() > 128 {
            break;
        }
        name.push(c);
    }
    name
}

/// Reads the object in the body.
pub(super) fn read_object(call: &Call, body: &Bytes, options: &Options) -> Result<Value> {
    let bytes = body;
    let decoded = decode_body(&call.headers, bytes, (&call.api_version(), &call.resource.kind))?
        .map_err(|error| unrecognized(call, bytes, &error))?;
    let mut value = decoded.value;
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    if !value.is_object() {
        return Err(unrecognized(
            call,
            bytes,
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ));
    }
    check_kind(call, &mut value, bytes)?;
    let mut problems = decoded.duplicates;
    problems.extend(shape(call, &mut value)?);
    // What is read into a type stops there; custom resources are pruned after they are read.
    if call.resource.builtin.is_some() {
        problems.truncate(NAMED);
    }
    report(call, options.validation, &problems)?;
    Ok(value)
}

fn unrecognized(call: &Call, body: &Bytes, why: &str) -> Failure {
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        call.resource.kind,
        summary(body, 30)
    ))
}

/// Unknown and duplicate fields are dropped, told or refused.
pub(super) fn report(call: &Call, validation: Validation, problems: &[String]) -> Result<()> {
    match validation {
        Validation::Ignore => {}
        Validation::Warn => problems.iter().for_each(|problem| call.warn(problem)),
        Validation::Strict if problems.is_empty() => {}
        Validation::Strict => {
            return Err(Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {}",
                strict_error(problems),
                kind = call.resource.kind,
                version = call.target.version,
            )));
        }
    }
    Ok(())
}

/// What is said about fields where none may be unknown or there twice.
pub(super) fn strict_error(problems: &[String]) -> String {
    format!("strict decoding error: {}", problems.join(", "))
}

/// Why what an object is cannot be read.
pub(super) fn not_text(name: &str, value: &Value) -> Option<String> {
    let what = match value.get(name)? {
        Value::Null | Value::String(_) => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Some(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go struct field .{name} of type string"
    ))
}

/// The object must be what the path says.
fn check_kind(call: &Call, value: &mut Value, body: &Bytes) -> Result<()> {
    let (api_version, kind) = (call.api_version(), &call.resource.kind);
    let given = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if let Some(why) = ["apiVersion", "kind"]
        .iter()
        .find_map(|name| not_text(name, value))
    {
        return Err(unrecognized(call, body, &why));
    }
    let (given_version, given_kind) = (given("apiVersion"), given("kind"));
    if call.resource.builtin.is_none() && given_kind.is_empty() {
        return Err(unrecognized(
            call,
            body,
            &format!("Object 'Kind' is missing in '{}'", summary(body, 1000)),
        ));
    }
    let lacking = given_version.is_empty() && call.resource.builtin.is_none();
    if lacking || (!given_version.is_empty() && given_version != api_version) {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !given_kind.is_empty() && given_kind != *kind {
        if call.resource.builtin.is_none() {
            return Err(Failure::invalid(
                &call.resource.group,
                &given_kind,
                meta::text(value, "name"),
                &[Cause::invalid(
                    "kind",
                    &given_kind.as_str().into(),
                    &format!("must be {kind}"),
                )],
            ));
        }
        return Err(Failure::bad_request(format!(
            "{given_kind} in version {:?} cannot be handled as a {kind}: converting ({given_kind}) to ({kind}): unknown conversion",
            call.target.version
        )));
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.clone().into());
    }
    Ok(())
}

/// Brings an object into the form of its schema; returns what had to be dropped.
pub(super) fn shape(call: &Call, value: &mut Value) -> Result<Vec<String>> {
    let version = call.version()?;
    let mut problems = Vec::new();
    // Of a custom resource, the metadata alone is typed.
    let error = match (call.resource.builtin, &version.schema) {
        (None, schema) => value
            .get("metadata")
            .and_then(object_meta::decode_error)
            .or_else(|| schema.as_ref()?.embedded_error(value)),
        (Some(_), Some(schema)) => schema.decode_error(value),
        (Some(_), None) => None,
    };
    if let Some(error) = error {
        return Err(Failure::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {error}",
            call.target.version,
            kind = call.resource.kind
        )));
    }
    if let Some(schema) = &version.schema {
        problems = schema
            .prune(value)
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
    }
    default(call, value)?;
    Ok(problems)
}

/// Fills in defaults.
pub(super) fn default(call: &Call, value: &mut Value) -> Result<()> {
    match call.resource.builtin {
        Some(kind) => kind.default(value),
        None => {
            if let Some(schema) = &call.version()?.schema {
                schema.default(value);
            }
        }
    }
    Ok(())
}

/// Fills in defaults of what an apply or a webhook made. The real server takes out a null that may not be there when it reads
/// what a client sent, not when it makes an object itself.
pub(super) fn default_made(call: &Call, value: &mut Value) -> Result<()> {
    match (call.resource.builtin, &call.version()?.schema) {
        (None, Some(schema)) => schema.fill(value),
        _ => default(call, value)?,
    }
    Ok(())
}

/// Drops what the schema does not know, also nulls, and gives metadata the form of metadata: an apply or a webhook may
/// have made it.
pub(super) fn forget_unknown(call: &Call, value: &mut Value) -> Result<()> {
    if let Some(schema) = &call.version()?.schema {
        schema.prune(value);
        if call.resource.builtin.is_none() {
            schema.prune_nulls(value);
        }
    }
    Ok(())
}

/// Names in the object and in the path must agree; a namespace that is not given is that of the path.
pub(super) fn check_place(call: &Call, value: &mut Value) -> Result<()> {
    let namespace = meta::text(value, "namespace").to_owned();
    if call.resource.namespaced {
        if !namespace.is_empty() && namespace != call.target.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::edit(value, |metadata| {
            metadata.insert("namespace".into(), call.target.namespace.clone().into())
        });
    } else if !namespace.is_empty() {
        meta::edit(value, |metadata| metadata.remove("namespace"));
    }
    Ok(())
}

/// A custom resource may have finalizers by any name; the client hears about those that others may take as well.
fn warn_of_finalizers(call: &Call, new: &Value, old: Option<&Value>) {
    let had = old.map(meta::finalizers).unwrap_or_default();
    let mut added: Vec<_> = meta::finalizers(new)
        .into_iter()
        .filter(|name| !had.contains(name))
        .collect();
    added.sort_unstable();
    for name in added {
        if name.contains('/') || matches!(&*name, "orphan" | "foregroundDeletion" | "kubernetes") {
            continue;
        }
        let with = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        call.warn(&format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{with} to avoid accidental conflicts with \
             other finalizer writers"
        ));
    }
}

/// What the schema and the server itself have against the object.
pub(super) fn validate(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    let metadata = |value| meta::of(value);
    // The real server looks at the metadata of an update twice, and says so.
    let mut causes = old.map_or_else(Vec::new, |old| {
        let (new, old) = (metadata(new), metadata(old));
        let mut causes = Vec::new();
        // What did not change was good when it was new.
        if object_meta::is_renamed(new, old) {
            let rule = object_meta::NameRule::PathSegment;
            causes = object_meta::validate_create(new, call.resource.namespaced, rule, "metadata");
        }
        causes.extend(object_meta::validate_update(new, old, "metadata"));
        causes
    });
    if let Some(kind) = call.resource.builtin {
        causes.extend(old.map_or_else(Vec::new, |old| signing::status_causes(call, old, new)));
        causes.extend(kind.validate(new, old));
        causes.extend(restrict::phase_problem(call, new));
        if causes.is_empty() {
            causes.extend(params::problem(call, new, old));
        }
    } else {
        causes.extend(match old {
            None => object_meta::validate_create(
                metadata(new),
                call.resource.namespaced,
                object_meta::NameRule::Subdomain,
                "metadata",
            ),
            Some(old) => object_meta::validate_update(metadata(new), metadata(old), "metadata"),
        });
        let version = call.version()?;
        let through_status = old.filter(|_| call.target.subresource == "status");
        if let Some(schema) = &version.schema {
            let verdict = match through_status {
                Some(old) => schema.judge_status(new, old),
                None => schema.judge(new, old),
            };
            for tolerated in &verdict.tolerated {
                call.warn(&tolerated.to_string());
            }
            causes.extend(verdict.causes);
        }
        if let Some(scale) = &version.scale {
            causes.extend(scale_causes(scale, new, through_status.is_some()));
        }
    }
    if causes.is_empty() {
        match call.resource.builtin {
            None => warn_of_finalizers(call, new, old),
            Some(kind) if call.target.subresource.is_empty() => {
                for told in kind.warnings(new, old.is_none()) {
                    call.warn(&told);
                }
            }
            Some(_) => {}
        }
        return Ok(());
    }
    // An event is looked at as one of the core group, whatever its path says.
    let group = match &*call.resource.table {
        "events" => "",
        _ => &call.resource.group,
    };
    Err(Failure::invalid(
        group,
        &call.resource.kind,
        meta::text(new, "name"),
        &causes,
    ))
}

/// The numbers that `/scale` shows must be numbers, and not negative, and its selector a text. Through the status only what
/// is a part of it is looked at.
fn scale_causes(scale: &Scale, value: &Value, through_status: bool) -> Vec<Cause> {
    let wrong = |path: &str, shown: Value, what: &str| {
        Cause::invalid(path, &shown, &format!("{path} accessor error: it is not {what}"))
    };
    let number = |path: &String| {
        let found = *jsonpath::find(value, path).first()?;
        let Some(count) = found.as_i64() else {
            return Some(wrong(path, 0.into(), "an integer"));
        };
        let detail = match i32::try_from(count) {
            _ if count < 0 => "should be a non-negative integer".to_owned(),
            Err(_) => format!("should be less than or equal to {}", i32::MAX),
            Ok(_) => return None,
        };
        Some(Cause::invalid(path, found, &detail))
    };
    let selector = |path: &String| {
        let found = *jsonpath::find(value, path).first()?;
        (!found.is_string()).then(|| wrong(path, "".into(), "a text"))
    };
    let mut causes: Vec<Cause> = Vec::new();
    if !through_status {
        causes.extend(number(&scale.spec));
    }
    causes.extend(number(&scale.status));
    causes.extend(scale.selector.as_ref().and_then(selector));
    causes
}

/// What etcd says, which is where the real server keeps its objects.
pub(super) fn too_large() -> Failure {
    Failure::new(500, "", "etcdserver: request is too large")
}

/// Asks for a right beyond the one that let the request in.
pub(super) fn demand(call: &Call, verb: &str) -> Result<()> {
    let attributes = Attributes::Resource(call.target.attributes(verb));
    if call.state.authorizer.allows(&call.user, &attributes) {
        return Ok(());
    }
    Err(forbidden(&call.user, &attributes))
}
