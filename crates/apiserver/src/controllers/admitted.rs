//! What controllers make, change and delete passes admission, like everybody's requests.

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::MANAGER;
use crate::api::{self, Call, DeleteWish, How, Propagation};
use crate::auth::{AUTHENTICATED, MASTERS, User};
use crate::http::{Query, Target};
use crate::registry::Resource;
use crate::state::State;
use crate::status::Result;
use crate::store::Object;

/// Who writes by itself, as those who have a say are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// A controller with an account of its own.
    Account(&'static str),
    /// All controllers as one: the signer of tokens has no account, it is what accounts need.
    Manager,
    /// The server, which looks after definitions itself.
    Server,
}

impl Who {
    pub const COLLECTOR: Self = Self::Account("generic-garbage-collector");
    pub const NAMESPACES: Self = Self::Account("namespace-controller");
    pub const ACCOUNTS: Self = Self::Account("service-account-controller");
    pub const ROOT_CA: Self = Self::Account("root-ca-cert-publisher");
    pub const SIGNER: Self = Self::Account("certificate-controller");
    pub const ROLES: Self = Self::Account("clusterrole-aggregation-controller");
    pub const POLICIES: Self = Self::Account("validatingadmissionpolicy-status-controller");
    pub const QUOTAS: Self = Self::Account("resourcequota-controller");

    fn user(self, state: &State) -> User {
        match self {
            Self::Account(name) => User::service_account("kube-system", name, ""),
            Self::Manager => User::new("system:kube-controller-manager", [] as [&str; 0]),
            Self::Server => User {
                uid: state.own_uid.clone(),
                ..User::new("system:apiserver", [AUTHENTICATED, MASTERS])
            },
        }
    }

    /// Who owns what it writes.
    pub fn owner(self) -> &'static str {
        match self {
            Self::Server => "kube-apiserver",
            Self::Account(_) | Self::Manager => MANAGER,
        }
    }
}

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
    who: Who,
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
    Some(Call::new(
        state.clone(),
        who.user(state),
        method,
        target,
        Query::default(),
        HeaderMap::new(),
        resource.clone(),
    ))
}

/// The request of a controller about an object that it has seen.
fn call_about(state: &Arc<State>, who: Who, method: Method, object: &Object) -> Option<Call> {
    let snapshot = state.registry.snapshot();
    let resource = snapshot.by_table(&object.table)?;
    call(state, who, method, resource, object.namespace(), object.name())
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
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
        Who::COLLECTOR,
        delete,
        resource,
        object.namespace(),
        object.name(),
    ) else {
        return Ok(());
    };
    let value = object.value();
    let (uid, rv) = (
        text(&value, "/metadata/uid"),
        text(&value, "/metadata/resourceVersion"),
    );
    let wish = DeleteWish {
        propagation: Some(propagation),
        shown: json!({
            "preconditions": { "uid": uid, "resourceVersion": rv },
            "propagationPolicy": propagation.as_str(),
        }),
        uid,
        rv,
        ..DeleteWish::default()
    };
    or_gone(api::remove(&call, object, &wish).await)
}

/// Changes the metadata of an object.
pub(super) async fn tidy(
    state: &Arc<State>,
    who: Who,
    object: &Object,
    edit: impl Fn(&mut Value) + Send + Sync,
) -> Result<()> {
    let Some(call) = call_about(state, who, Method::PATCH, object) else {
        return Ok(());
    };
    let make = |live: Option<&Value>| {
        let mut value = live.ok_or_else(|| call.not_found())?.clone();
        edit(&mut value);
        Ok(value)
    };
    or_gone(api::change_as(&call, who.owner(), How::Patch, &make).await)
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
        let outcome = match call(state, Who::NAMESPACES, Method::DELETE, resource, namespace, name) {
            Some(call) => api::remove(&call, object, &wish).await,
            // What is not served goes with its namespace.
            None => api::delete_object(&state.store, &state.clock, resource, object, &wish),
        };
        or_gone(outcome)?;
    }
    Ok(())
}

/// Makes an object.
pub(super) async fn create(state: &Arc<State>, who: Who, table: &str, value: Value) -> Result<()> {
    let snapshot = state.registry.snapshot();
    let namespace = text(&value, "/metadata/namespace").unwrap_or_default();
    let call = snapshot
        .by_table(table)
        .and_then(|resource| call(state, who, Method::POST, resource, &namespace, ""));
    let Some(call) = call else { return Ok(()) };
    // In a box, as below: a server that nobody has a say in does without the room for it.
    Box::pin(api::create_as(&call, who.owner(), value)).await
}

/// Replaces an object, as it was when the controller looked at it, through one of its doors.
pub(super) async fn put(
    state: &Arc<State>,
    who: Who,
    door: &str,
    current: &Object,
    value: Value,
) -> Result<()> {
    let Some(mut call) = call_about(state, who, Method::PUT, current) else {
        return Ok(());
    };
    door.clone_into(&mut call.target.subresource);
    let make = |_: Option<&Value>| Ok(value.clone());
    Box::pin(api::change_as(&call, who.owner(), How::Replace, &make)).await
}

/// Applies a configuration to an object through one of its doors; `make` knows how, and whose it is then.
pub(super) async fn apply(
    state: &Arc<State>,
    who: Who,
    owner: &str,
    door: &str,
    current: &Object,
    make: impl Fn(&Value) -> Value + Send + Sync,
) -> Result<()> {
    let Some(mut call) = call_about(state, who, Method::PATCH, current) else {
        return Ok(());
    };
    door.clone_into(&mut call.target.subresource);
    call.query = Query::parse(Some(&format!("fieldManager={owner}&force=true")));
    let make = |live: Option<&Value>| live.map(&make).ok_or_else(|| call.not_found());
    Box::pin(api::change_as(&call, owner, How::Apply, &make)).await
}

/// Deletes an object, and no other of its name.
pub(super) async fn delete(state: &Arc<State>, who: Who, object: &Object) -> Result<()> {
    let Some(call) = call_about(state, who, Method::DELETE, object) else {
        return Ok(());
    };
    let uid = text(&object.value(), "/metadata/uid");
    let wish = DeleteWish {
        shown: json!({ "preconditions": { "uid": uid } }),
        uid,
        ..DeleteWish::default()
    };
    Box::pin(api::remove(&call, object, &wish)).await.map(drop)
}
