//! Questions that are answered and forgotten: who am I, is this token good, may they.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use writ_authz::{Attributes, ResourceAttributes};

use super::{Call, meta, write};
use crate::auth::{ISSUER, MASTERS, User, review_token};
use crate::http::Body;
use crate::registry::Resource;
use crate::schema::Cause;
use crate::status::{Failure, Result};

pub(super) fn is_review(resource: &Resource) -> bool {
    resource.verbs == ["create"]
}

pub(super) fn answer(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    let accept = call.accept()?;
    let options = write::options(call, "CreateOptions")?;
    let mut review = write::read_object(call, body, &options)?;
    let status = match call.resource.kind.as_str() {
        "SelfSubjectReview" => json!({ "userInfo": call.user.to_json() }),
        "TokenReview" => token(call, &review)?,
        "SelfSubjectRulesReview" => rules(call, &review)?,
        "SelfSubjectAccessReview" => access(call, &review, &call.user)?,
        "SubjectAccessReview" => {
            let user = subject(call, &review)?;
            access(call, &review, &user)?
        }
        "LocalSubjectAccessReview" => {
            local(call, &mut review)?;
            let user = subject(call, &review)?;
            access(call, &review, &user)?
        }
        _ => return Err(Failure::no_such_method()),
    };
    match call.resource.kind.as_str() {
        "SelfSubjectReview" => {
            let now = call.state.clock.rfc3339();
            meta::edit(&mut review, |metadata| {
                metadata.insert("creationTimestamp".into(), now.into())
            });
        }
        "SelfSubjectRulesReview" => {
            if let Some(map) = review.as_object_mut() {
                map.insert("spec".into(), json!({}));
            }
        }
        _ => super::ownership::track(call, &options, None, &mut review)?,
    }
    if let Some(map) = review.as_object_mut() {
        map.insert("status".into(), status);
    }
    accept
        .media
        .respond(StatusCode::CREATED, review.to_string().into())
}

fn invalid(call: &Call, causes: &[Cause]) -> Failure {
    // The real server leaves the kind out here.
    Failure::invalid(&call.resource.group, "", "", causes)
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

fn token(call: &Call, review: &Value) -> Result<Value> {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let mut audiences = texts(review, "/spec/audiences");
    let asked = !audiences.is_empty();
    if !asked {
        audiences.push(ISSUER.into());
    }
    Ok(match review_token(&call.state, token, &audiences) {
        Ok((user, good)) => {
            let mut status = json!({ "authenticated": true, "user": user.to_json() });
            if let Some(map) = status.as_object_mut() {
                map.insert("audiences".into(), good.into());
            }
            status
        }
        Err(error) => {
            let mut status = Map::new();
            status.insert("user".into(), json!({}));
            status.insert(
                "error".into(),
                if error == "invalid bearer token" {
                    error.to_owned()
                } else {
                    format!("[invalid bearer token, {error}]")
                }
                .into(),
            );
            Value::Object(status)
        }
    })
}

/// The user of a review of somebody else.
fn subject(call: &Call, review: &Value) -> Result<User> {
    let name = review
        .pointer("/spec/user")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let groups = texts(review, "/spec/groups");
    if name.is_empty() && groups.is_empty() {
        return Err(invalid(
            call,
            &[Cause::invalid(
                "spec.user",
                &"".into(),
                "at least one of user or group must be specified",
            )],
        ));
    }
    Ok(User {
        name,
        groups,
        ..User::default()
    })
}

fn local(call: &Call, review: &mut Value) -> Result<()> {
    let namespace = call.target.namespace.clone();
    let given = meta::text(review, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let asked = review
        .pointer("/spec/resourceAttributes/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if review.pointer("/spec/resourceAttributes").is_some() && asked != namespace {
        return Err(invalid(
            call,
            &[Cause::invalid(
                "spec.resourceAttributes.namespace",
                &asked.into(),
                "must match metadata.namespace",
            )],
        ));
    }
    if let Some(path) = review
        .pointer("/spec/nonResourceAttributes")
        .filter(|value| !value.is_null())
    {
        let detail = "disallowed on this kind of request";
        return Err(invalid(
            call,
            &[Cause::invalid("spec.nonResourceAttributes", path, detail)],
        ));
    }
    meta::edit(review, |metadata| {
        metadata.insert("namespace".into(), namespace.into())
    });
    Ok(())
}

/// A selector is given as text or as requirements, not both.
fn selectors(attributes: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["fieldSelector", "labelSelector"] {
        let given = |part: &str| {
            attributes
                .pointer(&format!("/{name}/{part}"))
                .filter(|value| !value.is_null() && **value != json!("") && **value != json!([]))
        };
        if let (Some(raw), Some(_)) = (given("rawSelector"), given("requirements")) {
            causes.push(Cause::invalid(
                format!("spec.resourceAttributes.{name}.rawSelector"),
                raw,
                "may not specified at the same time as requirements",
            ));
        }
    }
    causes
}

fn access(call: &Call, review: &Value, user: &User) -> Result<Value> {
    let resource = review
        .pointer("/spec/resourceAttributes")
        .filter(|value| !value.is_null());
    let path = review
        .pointer("/spec/nonResourceAttributes")
        .filter(|value| !value.is_null());
    let part = |value: &'_ Value, name: &str| -> String {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let verdict = match (resource, path) {
        (Some(value), None) => {
            let causes = selectors(value);
            if !causes.is_empty() {
                return Err(invalid(call, &causes));
            }
            let (verb, group, resource) =
                (part(value, "verb"), part(value, "group"), part(value, "resource"));
            let (subresource, namespace, name) = (
                part(value, "subresource"),
                part(value, "namespace"),
                part(value, "name"),
            );
            let attributes = ResourceAttributes {
                verb: &verb,
                group: &group,
                resource: &resource,
                subresource: &subresource,
                namespace: &namespace,
                name: &name,
            };
            let attributes = Attributes::Resource(attributes);
            // Whoever has all rights asks out of curiosity; a controller asks to decide something.
            if !call.user.groups.iter().any(|group| group == MASTERS) {
                call.state.authorizer.used(user, &attributes);
            }
            call.state.authorizer.explain(user, &attributes)
        }
        (None, Some(value)) => {
            let (verb, path) = (part(value, "verb"), part(value, "path"));
            call.state
                .authorizer
                .explain(user, &Attributes::non_resource(&verb, &path))
        }
        (Some(_), Some(_)) => {
            return Err(invalid(
                call,
                &[Cause::invalid(
                    "spec.nonResourceAttributes",
                    path.unwrap_or(&Value::Null),
                    "cannot be specified in combination with resourceAttributes",
                )],
            ));
        }
        (None, None) => {
            return Err(invalid(
                call,
                &[Cause::invalid(
                    "spec.resourceAttributes",
                    &Value::Null,
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )],
            ));
        }
    };
    let mut status = json!({ "allowed": verdict.allowed });
    if let Some(map) = status.as_object_mut()
        && !verdict.reason.is_empty()
    {
        map.insert("reason".into(), verdict.reason.into());
    }
    Ok(status)
}

fn rules(call: &Call, review: &Value) -> Result<Value> {
    let namespace = review
        .pointer("/spec/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace.is_empty() {
        return Err(Failure::bad_request("no namespace on request"));
    }
    let user = &call.user;
    let mut found = call
        .state
        .authorizer
        .index()
        .rules_for(&user.name, &user.groups, namespace);
    if user.groups.iter().any(|group| group == crate::auth::MASTERS) {
        // Above RBAC, which is asked all the same.
        for everything in [
            json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }),
            json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }),
        ] {
            let rule = serde_json::from_value(everything).map_err(Failure::internal)?;
            if !found.contains(&rule) {
                found.insert(0, rule);
            }
        }
    }
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for rule in found {
        let list = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
        if let Some(urls) = list(rule.non_resource_urls) {
            paths.push(json!({ "verbs": rule.verbs, "nonResourceURLs": urls }));
            continue;
        }
        let mut entry = json!({ "verbs": rule.verbs });
        if let Some(map) = entry.as_object_mut() {
            for (name, values) in [
                ("apiGroups", list(rule.api_groups)),
                ("resources", list(rule.resources)),
                ("resourceNames", list(rule.resource_names)),
            ] {
                if let Some(values) = values {
                    map.insert(name.into(), values.into());
                }
            }
        }
        resources.push(entry);
    }
    Ok(json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false }))
}
