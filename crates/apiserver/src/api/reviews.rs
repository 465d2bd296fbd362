//! Questions that are answered and forgotten: who am I, is this token good, may they.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use writ_authz::{Attributes, ResourceAttributes};

use super::admit::{self, Operation};
use super::review_rules::{self, About};
use super::{Call, meta, write};
use crate::auth::{INVALID, ISSUER, MASTERS, User, review_authorization};
use crate::http::{Body, Shape};
use crate::registry::Resource;
use crate::schema::Cause;
use crate::status::{Failure, Result};

pub(super) fn is_review(resource: &Resource) -> bool {
    resource.verbs == ["create"]
}

/// What is not stored has no table.
pub(super) fn check_shape(call: &Call) -> Result<()> {
    match call.accept()?.shape {
        Shape::Table(_) => Err(Failure::other_shape(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf".into(),
        )),
        _ => Ok(()),
    }
}

pub(super) async fn answer(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    check_shape(call)?;
    let options = write::options(call, "CreateOptions")?;
    let mut review = write::read_object(call, body, &options)?;
    drop_made(call, &mut review)?;
    super::ownership::track(call, &options, None, &mut review)?;
    admit::mutate(call, Operation::Create, &mut review, None, &options, None).await?;
    let status = match call.resource.kind.as_str() {
        "SelfSubjectReview" => json!({ "userInfo": call.user.to_json() }),
        "TokenReview" => token(call, &review)?,
        "SelfSubjectRulesReview" => rules(call, &review)?,
        "SelfSubjectAccessReview" => access(call, &review, About::Oneself)?,
        "SubjectAccessReview" => access(call, &review, About::Anybody)?,
        "LocalSubjectAccessReview" => access(call, &review, About::Within(&call.target.namespace))?,
        _ => return Err(Failure::no_such_method()),
    };
    admit::validate(call, Operation::Create, &review, None, &options).await?;
    match call.resource.kind.as_str() {
        "SelfSubjectReview" => {
            let now = call.state.clock.rfc3339();
            if let Some(map) = review.as_object_mut() {
                map.insert("metadata".into(), json!({ "creationTimestamp": now }));
            }
        }
        "SelfSubjectRulesReview" => {
            if let Some(map) = review.as_object_mut() {
                map.insert("metadata".into(), json!({}));
                map.insert("spec".into(), json!({}));
            }
        }
        _ => {}
    }
    if let Some(map) = review.as_object_mut() {
        map.insert("status".into(), status);
    }
    call.respond_value(StatusCode::CREATED, &review)
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
    // What the client wrote there stays where the server has nothing to say.
    let given = review.get("status").and_then(Value::as_object);
    let mut status = given.cloned().unwrap_or_default();
    status.remove("authenticated");
    match review_authorization(&call.state, token, audiences) {
        Ok(known) => {
            status.insert("authenticated".into(), true.into());
            status.insert("user".into(), known.user.to_json());
            status.insert("audiences".into(), known.audiences.into());
        }
        Err(error) => {
            status.entry("user").or_insert_with(|| json!({}));
            let error = if error == INVALID {
                error.into_owned()
            } else {
                format!("[{INVALID}, {error}]")
            };
            status.insert("error".into(), error.into());
        }
    }
    Ok(status.into())
}

/// The user whom a review asks about.
fn subject(call: &Call, review: &Value, about: About<'_>) -> User {
    if about == About::Oneself {
        return call.user.clone();
    }
    let name = review.pointer("/spec/user").and_then(Value::as_str);
    User {
        name: name.unwrap_or_default().to_owned(),
        groups: texts(review, "/spec/groups"),
        ..User::default()
    }
}

/// Metadata that clients cannot set; a namespace is that of the path.
fn drop_made(call: &Call, review: &mut Value) -> Result<()> {
    let namespace = call.target.namespace.as_str();
    let given = meta::text(review, "namespace");
    if call.resource.namespaced && !given.is_empty() && given != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::wipe(review);
    meta::edit(review, |metadata| {
        metadata.remove("namespace");
        if call.resource.namespaced {
            metadata.insert("namespace".into(), namespace.into());
        }
    });
    Ok(())
}

fn access(call: &Call, review: &Value, about: About<'_>) -> Result<Value> {
    let causes = review_rules::problems(review, about);
    if !causes.is_empty() {
        return Err(invalid(call, &causes));
    }
    let user = &subject(call, review, about);
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
    let verdict = match (resource, path.unwrap_or(&Value::Null)) {
        (Some(value), _) => {
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
        (None, value) => {
            let (verb, path) = (part(value, "verb"), part(value, "path"));
            call.state
                .authorizer
                .explain(user, &Attributes::non_resource(&verb, &path))
        }
    };
    let mut status = json!({ "allowed": verdict.allowed });
    if let Some(map) = status.as_object_mut()
        && !verdict.reason.is_empty()
    {
        map.insert("reason".into(), verdict.reason.into());
    }
    if let Some(map) = status.as_object_mut()
        && let Some(said) = resource.and_then(review_rules::ignored)
    {
        map.insert("evaluationError".into(), said.into());
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
