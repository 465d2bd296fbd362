//! TokenRequest: `POST .../serviceaccounts/NAME/token`.

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Call, meta};
use crate::auth::{Bound, ISSUER, TokenWish};
use crate::http::{Body, decode_body};
use crate::schema::{Cause, Schema};
use crate::status::{Failure, Result};
use crate::store::key_of;

const TEN_MINUTES: i64 = 600;
const HOUR: i64 = 3600;
const LONGEST: i64 = 1 << 32;

pub(super) fn create(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    let accept = call.accept()?;
    let bytes = body;
    let decoded = decode_body(&call.headers, bytes)?;
    let mut request = decoded
        .map_err(|error| {
            Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type TokenRequest): {error}"
            ))
        })?
        .value;
    let kind = request.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !request.is_object() || !matches!(kind, "" | "TokenRequest") {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a TokenRequest"
        )));
    }
    let namespace = meta::text(&request, "namespace");
    if !namespace.is_empty() && namespace != call.target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let account = call.current()?.value();
    let name = meta::text(&request, "name");
    if !name.is_empty() && name != call.target.name {
        let detail = "must match the service account name if specified";
        return Err(Failure::invalid(
            "authentication.k8s.io",
            "TokenRequest",
            &call.target.name,
            &[Cause::invalid("metadata.name", &name.into(), detail)],
        ));
    }
    let mut causes = Vec::new();
    let seconds = request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(HOUR);
    if seconds < TEN_MINUTES {
        causes.push(Cause::invalid(
            "spec.expirationSeconds",
            &seconds.into(),
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > LONGEST {
        causes.push(Cause::invalid(
            "spec.expirationSeconds",
            &seconds.into(),
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if !causes.is_empty() {
        return Err(Failure::invalid(
            "authentication.k8s.io",
            "TokenRequest",
            "",
            &causes,
        ));
    }
    let mut audiences: Vec<String> = request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    if audiences.is_empty() {
        audiences.push(ISSUER.into());
    }
    if let Some(map) = request.as_object_mut() {
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("expirationSeconds".into(), seconds.into());
        }
    }
    own(call, &mut request)?;
    let mut wish = TokenWish {
        namespace: call.target.namespace.clone(),
        account: Bound {
            name: call.target.name.clone(),
            uid: meta::text(&account, "uid").to_owned(),
        },
        audiences: audiences.clone(),
        seconds: Some(seconds),
        ..TokenWish::default()
    };
    bind(call, &request, &mut wish)?;
    let (token, end) = call
        .state
        .issuer
        .sign(wish, &call.state.clock)
        .map_err(Failure::internal)?;
    let end = Timestamp::from_second(end).map_err(Failure::internal)?;
    if let Some(map) = request.as_object_mut() {
        map.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
        map.insert("kind".into(), "TokenRequest".into());
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("audiences".into(), audiences.into());
            spec.entry("boundObjectRef").or_insert(Value::Null);
        }
        map.insert(
            "status".into(),
            json!({ "token": token, "expirationTimestamp": crate::clock::seconds(end) }),
        );
    }
    let (name, namespace) = (call.target.name.clone(), call.target.namespace.clone());
    let created = call.state.clock.rfc3339();
    meta::edit(&mut request, |metadata| {
        metadata.insert("name".into(), name.into());
        metadata.insert("namespace".into(), namespace.into());
        metadata.insert("creationTimestamp".into(), created.into());
        metadata.insert("uid".into(), crate::store::new_uid().into());
    });
    accept
        .media
        .respond(StatusCode::CREATED, request.to_string().into())
}

/// Records whose fields these are, as for any object, although nobody will ever see them again.
fn own(call: &Call, request: &mut Value) -> Result<()> {
    let options = super::write::options(call, "CreateOptions")?;
    let manager = crate::ssa::Manager {
        name: &options.manager,
        subresource: &call.target.subresource,
        time: call.state.clock.now(),
        force: false,
        api_version: "authentication.k8s.io/v1",
        ignored: &[],
    };
    crate::ssa::track_update(None, request, &manager, &Schema::anything());
    if let Some(entries) = request.pointer_mut("/metadata/managedFields") {
        leaves_only(entries);
    }
    Ok(())
}

/// The parts of this kind are structures, which nobody owns as such.
fn leaves_only(fields: &mut Value) {
    match fields {
        Value::Object(map) => {
            map.remove(".");
            map.values_mut().for_each(leaves_only);
        }
        Value::Array(list) => list.iter_mut().for_each(leaves_only),
        _ => {}
    }
}

/// Binds the token to the life of an object.
fn bind(call: &Call, request: &Value, wish: &mut TokenWish) -> Result<()> {
    let Some(reference) = request
        .pointer("/spec/boundObjectRef")
        .filter(|value| !value.is_null())
    else {
        return Ok(());
    };
    let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version, name, uid) = (text("kind"), text("apiVersion"), text("name"), text("uid"));
    // The real server looks at the group alone.
    let (table, namespace) = match (version.contains('/'), kind) {
        (false, "Pod") => ("pods", call.target.namespace.as_str()),
        (false, "Secret") => ("secrets", call.target.namespace.as_str()),
        (false, "Node") => ("nodes", ""),
        _ => {
            return Err(Failure::bad_request(format!(
                "cannot bind token for serviceaccount \"{}\" to object of type {version}, Kind={kind}: must be one of v1, Kind=Pod, v1, Kind=Secret, v1, Kind=Node",
                call.target.name
            )));
        }
    };
    let object = call
        .state
        .store
        .get(table, &key_of(namespace, name))
        .ok_or_else(|| Failure::not_found("", table, name))?
        .value();
    let have = meta::text(&object, "uid");
    if !uid.is_empty() && uid != have {
        return Err(Failure::conflict(
            "",
            kind,
            name,
            &format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    let bound = Bound {
        name: name.to_owned(),
        uid: have.to_owned(),
    };
    match kind {
        "Pod" => {
            let account = object
                .pointer("/spec/serviceAccountName")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if account != call.target.name {
                return Err(Failure::bad_request(format!(
                    "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                    call.target.name
                )));
            }
            wish.pod = Some(bound);
        }
        "Secret" => wish.secret = Some(bound),
        _ => wish.node = Some(bound),
    }
    Ok(())
}
