//! Admission: the server's own checks, then policies and webhooks.

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use writ_authz::{Escalation, Write};

use super::call::Scaling;
use super::write::Options;
use super::{Call, meta, patched};
pub(crate) use crate::admission::Operation;
use crate::admission::{Authorize, ParamResource, Rejection, Request, Source, User};
use crate::controllers::quotas::{self, Charge};
use crate::controllers::{CRDS, TERMINATING};
use crate::registry::{Resource, has_condition};
use crate::ssa;
use crate::status::{Failure, Result};
use crate::store::{key_of, new_uid};

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
    let resource = &call.resource;
    let names = [
        call.target.name.as_str(),
        meta::text(value, "name"),
        meta::text(value, "generateName"),
    ];
    let name = names
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("Unknown");
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

/// Refuses to create custom resources of a definition that is on its way out: it waits for the last one to go.
pub(super) fn definition(call: &Call, value: &Value) -> Result<()> {
    let resource = &call.resource;
    let ending = resource.builtin.is_none()
        && call
            .state
            .store
            .get(CRDS, &resource.table)
            .is_some_and(|crd| crd.deleting && has_condition(&crd.value(), TERMINATING));
    if !ending {
        return Ok(());
    }
    Err(Failure::forbidden(
        &resource.group,
        &resource.plural,
        meta::text(value, "name"),
        "create not allowed while custom resource definition is terminating",
    ))
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

/// Classes that a cluster cannot do without; not even asked whether they are there.
pub(super) fn forbid_delete_named(call: &Call) -> Result<()> {
    let (resource, name) = (&call.resource, call.target.name.as_str());
    if &*resource.table == "priorityclasses.scheduling.k8s.io"
        && matches!(name, "system-node-critical" | "system-cluster-critical")
    {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Failure::forbidden(&resource.group, &resource.plural, name, why));
    }
    Ok(())
}

/// Whether there are webhooks that may patch objects. Where there are none, nothing needs to be kept for them.
pub(super) fn may_patch(call: &Call) -> bool {
    const WEBHOOKS: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
    call.state.store.count(WEBHOOKS) > 0
}

/// Lets plugins and webhooks change the object; says whether webhooks did. `applied` says of an apply whether it changed anything.
pub(super) async fn mutate(
    call: &Call,
    operation: Operation,
    value: &mut Value,
    old: Option<&Value>,
    options: &Options,
    applied: Option<bool>,
) -> Result<bool> {
    if let Some(mut scaling) = scaling(call) {
        let request = request(call, operation, &scaling.after, Some(&scaling.before), options);
        let source = Stored(call);
        let reader = patched::Scales {
            schema: super::ownership::scale_schema(),
            new_times: patched::has_new_times(&scaling.after, Some(&scaling.before), applied),
        };
        let admission = &call.state.admission;
        let mutated = admission.mutate(&source, &request, &mut scaling.after, &reader);
        let changed = mutated.await.map_err(refused)?;
        if let Some(scale) = call.version()?.scale.as_ref().filter(|_| changed) {
            super::scale::apply(call, scale, &scaling.after, value, false)?;
        }
        *call.scale.lock().unwrap_or_else(PoisonError::into_inner) = Some(scaling);
        return Ok(changed);
    }
    let request = request(call, operation, value, old, options);
    let may_patch = may_patch(call);
    let owners = value
        .pointer("/metadata/managedFields")
        .filter(|_| may_patch)
        .cloned();
    let reader = patched::Objects {
        call,
        new_times: may_patch && patched::has_new_times(value, old, applied),
    };
    // What admission changed belongs to nobody: ownership was recorded before.
    let changed = call
        .state
        .admission
        .mutate(&Stored(call), &request, value, &reader)
        .await
        .map_err(refused)?;
    if changed {
        patched::tidy(call, value)?;
    }
    if changed && let Some(problem) = ssa::owners_problem(value.pointer("/metadata/managedFields")) {
        call.warn(&format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
             admission controller; please fix your requests: {problem}"
        ));
        meta::edit(value, |metadata| match owners {
            Some(owners) => metadata.insert("managedFields".into(), owners),
            None => metadata.remove("managedFields"),
        });
    }
    Ok(changed)
}

/// Lets policies and webhooks refuse the object, and takes what it needs from the quotas of its namespace. What is returned is
/// to be kept until the object is stored.
pub(super) async fn validate(
    call: &Call,
    operation: Operation,
    value: &Value,
    old: Option<&Value>,
    options: &Options,
) -> Result<Option<Charge>> {
    // The answer to the client is what they may refuse.
    let shown = scaling(call).and(call.version()?.scale.as_ref()).map(|scale| {
        let show = |value: &Value| super::scale::show(scale, value);
        (show(value), old.map(show))
    });
    let (value, old) = match &shown {
        Some((value, old)) => (value, old.as_ref()),
        None => (value, old),
    };
    let request = request(call, operation, value, old, options);
    let object = (operation != Operation::Delete).then_some(value);
    call.state
        .admission
        .validate(&Stored(call), &request, object)
        .await
        .map_err(refused)?;
    match object {
        Some(object) if call.resource.namespaced => quotas::charge(&call.state, &request, object)
            .await
            .map_err(refused),
        _ => Ok(None),
    }
}

/// Those who are asked about a change through `/scale` see the Scale, not the object behind it.
fn scaling(call: &Call) -> Option<Scaling> {
    call.scale.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn refused(rejection: Rejection) -> Failure {
    let failure = Failure::new(rejection.code, rejection.reason, rejection.message);
    match rejection.details {
        Some(details) => failure.with_details(details),
        None => failure,
    }
}

fn request(
    call: &Call,
    operation: Operation,
    value: &Value,
    old: Option<&Value>,
    options: &Options,
) -> Request {
    let name = match call.target.name.as_str() {
        "" => meta::text(value, "name"),
        name => name,
    };
    // A patch is an update to those who look at it.
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Delete => "DeleteOptions",
        _ => "UpdateOptions",
    };
    let mut shown = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    if let Some(map) = shown.as_object_mut() {
        if options.dry_run {
            map.insert("dryRun".into(), json!(["All"]));
        }
        if let Some(Value::Object(delete)) = &options.delete {
            map.extend(delete.clone());
        } else {
            for name in ["fieldManager", "fieldValidation"] {
                if let Some(value) = call.query.get(name) {
                    map.insert(name.into(), value.into());
                }
            }
        }
    }
    let scaled = scaling(call).map(|_| ("autoscaling", "v1", "Scale"));
    // A namespace is in itself.
    let namespace = if &*call.resource.table == "namespaces" {
        name
    } else {
        &call.target.namespace
    };
    Request {
        uid: new_uid(),
        operation,
        custom: call.resource.builtin.is_none(),
        group: call.target.group.clone(),
        version: call.target.version.clone(),
        kind: scaled.map_or_else(|| call.resource.kind.clone(), |(_, _, kind)| kind.to_owned()),
        kind_group: scaled.map_or_else(|| call.resource.group.clone(), |(group, ..)| group.to_owned()),
        kind_version: scaled.map(|(_, version, _)| version),
        resource: call.target.resource.clone(),
        subresource: call.target.subresource.clone(),
        namespaced: call.resource.namespaced,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        prefix: meta::text(value, "generateName").to_owned(),
        user: User {
            username: call.user.name.clone(),
            uid: call.user.uid.clone(),
            groups: call.user.groups.clone(),
            extra: call
                .user
                .extra
                .iter()
                .map(|(key, values)| (key.clone(), json!(values)))
                .collect(),
        },
        old_object: old.cloned(),
        options: shown,
        dry_run: options.dry_run,
    }
}

/// What admission may read, and the client it may warn.
struct Stored<'a>(&'a Call);

impl Source for Stored<'_> {
    fn list(&self, group: &str, plural: &str) -> Vec<Arc<Value>> {
        let table = crate::status::qualified(group, plural);
        self.0
            .state
            .store
            .list(&table, None)
            .0
            .iter()
            .map(|object| Arc::new(object.value()))
            .collect()
    }

    fn list_in(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let table = crate::status::qualified(group, plural);
        let (objects, _) = self.0.state.store.list(&table, Some(namespace));
        objects.iter().map(|object| Arc::new(object.value())).collect()
    }

    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let table = crate::status::qualified(group, plural);
        Some(Arc::new(
            self.0.state.store.get(&table, &key_of(namespace, name))?.value(),
        ))
    }

    fn resource(&self, api_version: &str, kind: &str) -> Option<ParamResource> {
        let snapshot = self.0.state.registry.snapshot();
        let resource = snapshot.of_kind(api_version, kind)?;
        Some(ParamResource {
            plural: resource.plural.clone(),
            namespaced: resource.namespaced,
            listed: resource.allows("list"),
        })
    }

    fn shown(&self, api_version: &str, kind: &str, object: &Value) -> Value {
        let (_, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut object = object.clone();
        let snapshot = self.0.state.registry.snapshot();
        let Some(resource) = snapshot.of_kind(api_version, kind) else {
            return object;
        };
        let rv = meta::text(&object, "resourceVersion").parse().unwrap_or_default();
        self.0
            .reading(resource.clone(), version)
            .to_request_version(&mut object, rv);
        // The real server keeps those of built-in kinds in memory without their owners.
        if resource.builtin.is_some() {
            meta::edit(&mut object, |metadata| metadata.remove("managedFields"));
        }
        object
    }

    fn versions(&self, group: &str, plural: &str) -> Vec<String> {
        let snapshot = self.0.state.registry.snapshot();
        let found = snapshot.group(group).filter(|resource| resource.plural == plural);
        let versions = found.flat_map(|resource| &resource.versions);
        versions
            .filter(|version| version.served)
            .map(|version| version.name.clone())
            .collect()
    }

    fn authorizer(&self) -> Arc<dyn Authorize> {
        self.0.state.authorizer.clone()
    }

    fn warn(&self, warning: &str) {
        self.0.warn(warning);
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Whether an update can give rights away: not if it is about nothing but who owns the object and who waits for its
/// end. One that leaves out what the server fills in, such as the uid, is about more.
pub(super) fn may_grant(call: &Call, old: &Value, new: &Value) -> bool {
    call.resource.group == RBAC && !only_for_garbage_collection(old, new)
}

fn only_for_garbage_collection(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| {
        let mut value = value.clone();
        meta::edit(&mut value, |metadata| {
            for name in ["ownerReferences", "finalizers", "managedFields"] {
                metadata.remove(name);
            }
        });
        value
    };
    rest(old) == rest(new)
}

/// Nobody gives away rights that they do not have, unless they may.
pub(super) fn escalation(call: &Call, value: &Value, write: Write) -> Result<()> {
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
    use serde::Deserialize;
    if call.resource.group != RBAC {
        return Ok(());
    }
    let unreadable = |error: serde_json::Error| Failure::bad_request(error.to_string());
    match call.resource.kind.as_str() {
        "Role" => may_write(call, write, &Role::deserialize(value).map_err(unreadable)?),
        "ClusterRole" => may_write(call, write, &ClusterRole::deserialize(value).map_err(unreadable)?),
        "RoleBinding" => may_write(call, write, &RoleBinding::deserialize(value).map_err(unreadable)?),
        _ => may_write(
            call,
            write,
            &ClusterRoleBinding::deserialize(value).map_err(unreadable)?,
        ),
    }
    .map_err(|escalation| {
        let (resource, name) = (&call.resource, meta::text(value, "name"));
        match &escalation {
            Escalation::NoRole { kind, name } => no_role(resource, kind, name),
            _ => Failure::forbidden(&resource.group, &resource.plural, name, &escalation.to_string()),
        }
    })
}

/// A binding to a role that cannot be found, in the words of whoever looked for it.
fn no_role(binding: &Resource, kind: &str, name: &str) -> Failure {
    match kind {
        "Role" if !binding.namespaced => Failure::bad_request("Namespace parameter required."),
        "Role" | "ClusterRole" if name.is_empty() => Failure::bad_request("Name parameter required."),
        "Role" | "ClusterRole" => Failure::not_found(&binding.group, &binding.plural, name),
        other => Failure::new(500, "", format!("unsupported role reference kind: {other:?}")),
    }
}

fn may_write<'a>(
    call: &Call,
    write: Write,
    object: impl Into<writ_authz::Object<'a>>,
) -> std::result::Result<(), Escalation> {
    let (authorizer, user, object) = (&call.state.authorizer, &call.user, object.into());
    authorizer
        .index()
        .may_write(&user.name, &user.groups, write, object)?;
    authorizer.granted(user, write, object);
    Ok(())
}
