//! What controllers delete and change passes admission, like everybody's requests.

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::MANAGER;
use crate::api::{self, Call, DeleteWish, Propagation};
use crate::auth::User;
use crate::http::{Query, Target};
use crate::registry::Resource;
use crate::state::State;
use crate::status::Result;
use crate::store::Object;

/// The account of the garbage collector.
const COLLECTOR: &str = "generic-garbage-collector";
/// The account of what ends namespaces.
const NAMESPACES: &str = "namespace-controller";

/// Those who may have a say.
const ASKED: [&str; 3] = [
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
];

/// Whether anybody may have a say at all.
pub(super) fn is_anybody_asked(state: &State) -> bool {
    ASKED.iter().any(|table| state.store.count(table) > 0)
}

/// The request of a controller; none about what is not served.
fn call(
    state: &Arc<State>,
    account: &str,
    method: Method,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
) -> Option<Call> {
    let version = resource.versions.iter().find(|version| version.served)?;
    let target = Target {
        group: resource.group.clone(),
        version: version.name.clone(),
        namespace: namespace.to_owned(),
        resource: resource.plural.clone(),
        name: name.to_owned(),
        inside: !namespace.is_empty(),
        ..Target::default()
    };
    let user = User::service_account("kube-system", account, "");
    Some(Call::new(
        state.clone(),
        user,
        method,
        target,
        Query::default(),
        HeaderMap::new(),
        resource.clone(),
    ))
}

/// Something that is gone already is as good as deleted.
fn or_gone<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// Deletes an object that the garbage collector has looked at, as it was then.
pub(super) async fn collect(
    state: &Arc<State>,
    resource: &Arc<Resource>,
    object: &Object,
    propagation: Propagation,
) -> Result<()> {
    let delete = Method::DELETE;
    let Some(call) = call(
        state,
        COLLECTOR,
        delete,
        resource,
        object.namespace(),
        object.name(),
    ) else {
        return Ok(());
    };
    let value = object.value();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (uid, rv) = (text("/metadata/uid"), text("/metadata/resourceVersion"));
    let wish = DeleteWish {
        propagation: Some(propagation),
        shown: json!({
            "preconditions": { "uid": uid, "resourceVersion": rv },
            "propagationPolicy": propagation.as_str(),
        }),
        uid,
        rv,
        dry_run: false,
    };
    or_gone(api::remove(&call, object, &wish).await)
}

/// Changes the metadata of an object for the garbage collector.
pub(super) async fn tidy(
    state: &Arc<State>,
    object: &Object,
    edit: impl Fn(&mut Value) + Send + Sync,
) -> Result<()> {
    let snapshot = state.registry.snapshot();
    let call = snapshot.by_table(&object.table).and_then(|resource| {
        let patch = Method::PATCH;
        call(
            state,
            COLLECTOR,
            patch,
            resource,
            object.namespace(),
            object.name(),
        )
    });
    let Some(call) = call else { return Ok(()) };
    let make = |live: Option<&Value>| {
        let mut value = live.ok_or_else(|| call.not_found())?.clone();
        edit(&mut value);
        Ok(value)
    };
    or_gone(api::change_as(&call, MANAGER, &make).await)
}

/// Deletes all objects of one resource in a namespace; the first that somebody wants to keep ends it.
pub(super) async fn empty(state: &Arc<State>, resource: &Arc<Resource>, namespace: &str) -> Result<()> {
    let wish = DeleteWish {
        propagation: Some(Propagation::Background),
        shown: json!({ "propagationPolicy": Propagation::Background.as_str() }),
        ..DeleteWish::default()
    };
    let at_once = resource.allows("deletecollection");
    let (objects, _) = state.store.list(&resource.table, Some(namespace));
    for object in objects.iter().filter(|object| !object.deleting) {
        // Who deletes all of them names none.
        let name = if at_once { "" } else { object.name() };
        let outcome = match call(state, NAMESPACES, Method::DELETE, resource, namespace, name) {
            Some(call) => api::remove(&call, object, &wish).await,
            // What is not served goes with its namespace.
            None => api::delete_object(&state.store, &state.clock, resource, object, &wish),
        };
        or_gone(outcome)?;
    }
    Ok(())
}
