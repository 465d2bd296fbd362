//! TokenRequest: `POST .../serviceaccounts/NAME/token`.

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::admit::{self, Operation};
use super::{Call, meta, ownership, reviews, write};
use crate::auth::{Bound, ISSUER, TokenWish};
use crate::http::Body;
use crate::schema::Cause;
use crate::status::{Failure, Result};
use crate::store::key_of;

const TEN_MINUTES: i64 = 600;
const LONGEST: i64 = 1 << 32;

pub(super) async fn create(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    let asked = call.about(crate::registry::token_request());
    let done = answer(call, &asked, body).await;
    call.take_warnings(&asked);
    done
}

/// `call` is about the account, `asked` is the same request as one about a TokenRequest.
async fn answer(call: &Call, asked: &Call, body: &Bytes) -> Result<Response<Body>> {
    reviews::check_shape(asked)?;
    let options = write::options(call, "CreateOptions")?;
    let mut request = write::read_object(asked, body, &options)?;
    let namespace = meta::text(&request, "namespace");
    if !namespace.is_empty() && namespace != call.target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::edit(&mut request, |metadata| {
        metadata.insert("namespace".into(), call.target.namespace.clone().into())
    });
    ownership::track(asked, &options, None, &mut request)?;
    admit::namespace(call, &request)?;
    admit::mutate(asked, Operation::Create, &mut request, None, &options, None).await?;
    let wish = complete(call, asked, &mut request)?;
    admit::validate(asked, Operation::Create, &request, None, &options).await?;
    let wish = bind(call, &request, wish)?;
    let (token, end) = call
        .state
        .issuer
        .issue(wish, &call.state.clock)
        .map_err(Failure::internal)?;
    let end = Timestamp::from_second(end).map_err(Failure::internal)?;
    if let Some(map) = request.as_object_mut() {
        map.insert(
            "status".into(),
            json!({ "token": token, "expirationTimestamp": crate::clock::seconds(end) }),
        );
    }
    asked.respond_value(StatusCode::CREATED, &request)
}

/// Fills in what the account says, and checks what was asked for.
fn complete(call: &Call, asked: &Call, request: &mut Value) -> Result<TokenWish> {
    let (group, kind) = (&asked.resource.group, &asked.resource.kind);
    let name = meta::text(request, "name");
    if !name.is_empty() && name != call.target.name {
        let detail = "must match the service account name if specified";
        let cause = Cause::invalid("metadata.name", &name.into(), detail);
        return Err(Failure::invalid(group, kind, &call.target.name, &[cause]));
    }
    let namespace = meta::text(request, "namespace");
    if !namespace.is_empty() && namespace != call.target.namespace {
        let detail = "must match the service account namespace if specified";
        let cause = Cause::invalid("metadata.namespace", &namespace.into(), detail);
        return Err(Failure::invalid(group, kind, &call.target.name, &[cause]));
    }
    let account = call.current()?.value();
    let (uid, wanted) = (meta::text(&account, "uid"), meta::text(request, "uid"));
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the token request ({wanted}) does not match the UID of the service account ({uid})"
        );
        return Err(Failure::conflict(group, kind, &call.target.name, &why));
    }
    let created = call.state.clock.rfc3339();
    meta::edit(request, |metadata| {
        metadata.insert("name".into(), call.target.name.clone().into());
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), created.into());
    });
    if let Some(map) = request.as_object_mut() {
        map.remove("status");
        let spec = map.get_mut("spec").and_then(Value::as_object_mut);
        let audiences = spec.map(|spec| spec.entry("audiences").or_insert(Value::Null));
        if let Some(audiences) = audiences
            && audiences.as_array().is_none_or(Vec::is_empty)
        {
            *audiences = json!([ISSUER]);
        }
    }
    write::default(asked, request)?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let seconds = seconds.unwrap_or_default();
    let limit = if seconds < TEN_MINUTES {
        Some("may not specify a duration less than 10 minutes")
    } else if seconds > LONGEST {
        Some("may not specify a duration larger than 2^32 seconds")
    } else {
        None
    };
    if let Some(limit) = limit {
        let cause = Cause::invalid("spec.expirationSeconds", &seconds.into(), limit);
        return Err(Failure::invalid(group, kind, "", &[cause]));
    }
    let audiences = request.pointer("/spec/audiences").and_then(Value::as_array);
    let audiences = audiences.into_iter().flatten().filter_map(Value::as_str);
    Ok(TokenWish {
        namespace: call.target.namespace.clone(),
        account: Bound {
            name: call.target.name.clone(),
            uid: uid.to_owned(),
        },
        audiences: audiences.map(str::to_owned).collect(),
        seconds,
        ..TokenWish::default()
    })
}

/// Binds the token to the life of an object.
fn bind(call: &Call, request: &Value, mut wish: TokenWish) -> Result<TokenWish> {
    let Some(reference) = request
        .pointer("/spec/boundObjectRef")
        .filter(|value| !value.is_null())
    else {
        return Ok(wish);
    };
    let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version, name, uid) = (text("kind"), text("apiVersion"), text("name"), text("uid"));
    // The real server looks at the group alone.
    let (group, version) = match version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => ("", ""),
    };
    let (table, namespace) = match (group.is_empty(), kind) {
        (true, "Pod") => ("pods", call.target.namespace.as_str()),
        (true, "Secret") => ("secrets", call.target.namespace.as_str()),
        (true, "Node") => ("nodes", ""),
        _ => {
            return Err(Failure::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    if name.is_empty() {
        return Err(Failure::bad_request("Name parameter required."));
    }
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
    let bound = Some(Bound {
        name: name.to_owned(),
        uid: have.to_owned(),
    });
    let spec = |name: &str| {
        let value = object.get("spec").and_then(|spec| spec.get(name));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    match kind {
        "Pod" => {
            if spec("serviceAccountName") != call.target.name {
                return Err(Failure::bad_request(format!(
                    "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                    call.target.name
                )));
            }
            wish.pod = bound;
            // Whoever reads the token learns where the pod runs.
            let node = spec("nodeName");
            wish.node = (!node.is_empty()).then(|| Bound {
                name: node.to_owned(),
                uid: call
                    .state
                    .store
                    .get("nodes", node)
                    .map_or_else(String::new, |node| meta::text(&node.value(), "uid").to_owned()),
            });
        }
        "Secret" => wish.secret = bound,
        _ => wish.node = bound,
    }
    Ok(wish)
}
