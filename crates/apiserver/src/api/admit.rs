//! Admission: the server's own checks, then policies and webhooks.

use serde_json::{Value, json};
use writ_authz::{Escalation, Write};

use super::write::Options;
use super::{Call, meta};
use crate::status::{Failure, Result};

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// Refuses to create in a namespace that is not there, or on its way out.
pub(super) fn namespace(call: &Call, value: &Value) -> Result<()> {
    if !call.resource.namespaced || !call.resource.allows("get") {
        return Ok(());
    }
    let namespace = call.target.namespace.as_str();
    let found = call.state.store.get("namespaces", namespace);
    let Some(found) = found else {
        return Err(Failure::not_found("", "namespaces", namespace));
    };
    if !found.deleting {
        return Ok(());
    }
    let (resource, name) = (&call.resource, meta::text(value, "name"));
    let mut details = json!({
        "kind": resource.plural,
        "causes": [{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }],
    });
    if let Some(map) = details.as_object_mut() {
        for (key, value) in [("name", name), ("group", resource.group.as_str())] {
            if !value.is_empty() {
                map.insert(key.into(), value.into());
            }
        }
    }
    Err(Failure::forbidden(
        &resource.group,
        &resource.plural,
        name,
        &format!("unable to create new content in namespace {namespace} because it is being terminated"),
    )
    .with_details(details))
}

/// Namespaces that a cluster cannot do without.
pub(super) fn forbid_delete(call: &Call, old: &Value) -> Result<()> {
    let name = meta::text(old, "name");
    if &*call.resource.table == "namespaces" && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(Failure::forbidden(
            "",
            "namespaces",
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// Lets plugins and webhooks change the object.
#[expect(clippy::unused_async, reason = "webhooks will be asked here")]
pub(super) async fn mutate(
    call: &Call,
    operation: Operation,
    value: &mut Value,
    old: Option<&Value>,
    options: &Options,
) -> Result<()> {
    let _ = (old, options);
    escalation(call, operation, value)?;
    Ok(())
}

/// Lets plugins, policies and webhooks refuse the object.
#[expect(clippy::unused_async, reason = "webhooks will be asked here")]
pub(super) async fn validate(
    call: &Call,
    operation: Operation,
    value: &Value,
    old: Option<&Value>,
    options: &Options,
) -> Result<()> {
    let _ = (call, operation, value, old, options);
    Ok(())
}

/// Nobody gives away rights that they do not have, unless they may.
fn escalation(call: &Call, operation: Operation, value: &Value) -> Result<()> {
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
    use serde::Deserialize;
    if call.resource.group != "rbac.authorization.k8s.io" {
        return Ok(());
    }
    let write = if operation == Operation::Create {
        Write::Create
    } else {
        Write::Update
    };
    let index = call.state.authorizer.index();
    let (user, groups) = (&call.user.name, &call.user.groups);
    let unreadable = |error: serde_json::Error| Failure::bad_request(error.to_string());
    let answer = match call.resource.kind.as_str() {
        "Role" => index.may_write(
            user,
            groups,
            write,
            &Role::deserialize(value).map_err(unreadable)?,
        ),
        "ClusterRole" => index.may_write(
            user,
            groups,
            write,
            &ClusterRole::deserialize(value).map_err(unreadable)?,
        ),
        "RoleBinding" => index.may_write(
            user,
            groups,
            write,
            &RoleBinding::deserialize(value).map_err(unreadable)?,
        ),
        _ => index.may_write(
            user,
            groups,
            write,
            &ClusterRoleBinding::deserialize(value).map_err(unreadable)?,
        ),
    };
    answer.map_err(|escalation| {
        let (resource, name) = (&call.resource, meta::text(value, "name"));
        match &escalation {
            Escalation::NoRole { kind, name } => {
                let plural = if kind == "ClusterRole" {
                    "clusterroles"
                } else {
                    "roles"
                };
                Failure::not_found(&resource.group, plural, name)
            }
            _ => Failure::forbidden(&resource.group, &resource.plural, name, &escalation.to_string()),
        }
    })
}
