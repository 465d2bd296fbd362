//! Admission: who else has a say before an object is stored.
//!
//! The server calls [`Admission::mutate`] with a new or changed object, then validates it, then calls
//! [`Admission::validate`]. Mutating webhooks run one after the other, in order of their
//! configurations' names, and again where their reinvocation policy asks for it; policies and validating
//! webhooks only say yes or no.

mod accounts;
mod answer;
mod classes;
mod client;
mod expressions;
mod limits;
mod params;
mod pod_security;
mod pods;
mod policy;
mod priority;
pub(crate) mod quota;
mod request;
mod resize;
mod rules;
mod secrets;
mod target;
#[cfg(test)]
mod tests;
mod topology;
mod trust;
mod webhook;

use std::sync::Arc;

use serde_json::Value;

pub use crate::schema::Authorize;
pub use request::{Operation, Rejection, Request, User};

/// What admission reads from the server it serves.
pub trait Source: Send + Sync {
    /// All objects of a resource.
    fn list(&self, group: &str, plural: &str) -> Vec<Arc<Value>>;
    /// All objects of a resource in a namespace.
    fn list_in(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
    /// One object; the namespace is empty for cluster-scoped ones.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// The resource behind a kind of parameters.
    fn resource(&self, api_version: &str, kind: &str) -> Option<ParamResource>;
    /// A stored object of a kind, as it is in a version, for those who only read it.
    fn shown(&self, _api_version: &str, _kind: &str, object: &Value) -> Value {
        object.clone()
    }
    /// The versions in which a resource is served, for rules that match equivalent ones.
    fn versions(&self, group: &str, plural: &str) -> Vec<String>;
    /// The `authorizer` of expressions.
    fn authorizer(&self) -> Arc<dyn Authorize>;
    /// Tells the client something, whatever becomes of the request.
    fn warn(&self, warning: &str);
}

/// A resource whose objects may be the parameters of policies.
#[derive(Clone, Debug)]
pub struct ParamResource {
    /// Its name.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether it has objects that can be listed: reviews are only answered.
    pub listed: bool,
}

/// Reads objects that a webhook changed.
pub trait Reader: Sync {
    /// Reads one: it may have become another one, or none at all.
    fn read(&self, object: &mut Value) -> Result<(), Rejection>;
    /// Whether the object is the same as before, to those who are asked again if it is not.
    fn same(&self, before: &Value, after: &Value) -> bool;
    /// Fills in the defaults of a version.
    fn fill(&self, object: &mut Value, version: &str) -> Result<(), Rejection>;
    /// Puts in its place what is only shown to webhooks, when all of them have seen it.
    fn settle(&self, _object: &mut Value) -> Result<(), Rejection> {
        Ok(())
    }
    /// Whether the object was never read since times were put into it. They lose their fractions by that, so that it counts as
    /// changed even if nothing else is.
    fn has_exact_times(&self) -> bool;
}

/// The admission chain of one server.
#[derive(Debug, Default)]
pub struct Admission {
    client: client::Client,
}

const GROUP: &str = "admissionregistration.k8s.io";

impl Admission {
    /// A chain without any state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets plugins and mutating webhooks change the object. `reader` reads what a webhook made of it as the server reads
    /// what a client sends. For a deletion the object is null: webhooks are asked, but have nothing to change. Answers
    /// whether a webhook patched the object.
    pub async fn mutate(
        &self,
        source: &dyn Source,
        request: &Request,
        object: &mut Value,
        reader: &dyn Reader,
    ) -> Result<bool, Rejection> {
        plugins(source, request, object)?;
        if exempt(request) {
            return Ok(false);
        }
        let configurations = sorted(source.list(GROUP, "mutatingwebhookconfigurations"));
        let (mut patched, mut changed) = (false, false);
        // Webhooks to call again: those that ran before another one changed the object. One that changes it in the second round
        // calls those after it again, too.
        let mut again: Vec<(usize, usize)> = Vec::new();
        let mut invoked: Vec<(usize, usize)> = Vec::new();
        for round in 0..2 {
            if round == 1 {
                // What webhooks changed is for the plugins to see; what those change then, for the webhooks.
                let before = object.clone();
                plugins(source, request, object)?;
                if *object != before {
                    again.append(&mut invoked);
                }
            }
            for (i, configuration) in configurations.iter().enumerate() {
                for (j, hook) in webhook::hooks(configuration).enumerate() {
                    let shown = (request.operation != Operation::Delete).then_some(&*object);
                    // Of those that are not called again, too: what was made of the object may be what their conditions fail on.
                    let Some(call) = webhook::matching(source, request, hook, shown)? else {
                        continue;
                    };
                    if round == 1 && !again.contains(&(i, j)) {
                        continue;
                    }
                    let asked = webhook::mutate(&self.client, source, request, hook, &call, object, reader);
                    if let Some(differs) = asked.await? {
                        if differs || (reader.has_exact_times() && !patched) {
                            changed = true;
                            again.append(&mut invoked);
                        }
                        patched = true;
                    }
                    if hook.get("reinvocationPolicy").and_then(Value::as_str) == Some("IfNeeded") {
                        invoked.push((i, j));
                    }
                }
            }
            if patched {
                reader.settle(object)?;
            }
            if !changed {
                break;
            }
        }
        Ok(patched)
    }

    /// Asks plugins, policies and validating webhooks.
    pub async fn validate(
        &self,
        source: &dyn Source,
        request: &Request,
        object: Option<&Value>,
    ) -> Result<(), Rejection> {
        limits::validate(source, request, object)?;
        accounts::validate(source, request, object)?;
        pod_security::validate(source, request, object)?;
        priority::validate(source, request, object)?;
        resize::validate(source, request, object)?;
        pods::validate(request, object)?;
        policy::validate(source, request, object)?;
        if exempt(request) {
            return Ok(());
        }
        let configurations = sorted(source.list(GROUP, "validatingwebhookconfigurations"));
        let mut calls = Vec::new();
        for configuration in &configurations {
            for hook in webhook::hooks(configuration) {
                if let Some(call) = webhook::matching(source, request, hook, object)? {
                    calls.push((hook, call));
                }
            }
        }
        let calls = calls
            .iter()
            .map(|(hook, call)| webhook::validate(&self.client, source, request, hook, call, object));
        futures::future::join_all(calls).await.into_iter().collect()
    }
}

/// The server's own part.
fn plugins(source: &dyn Source, request: &Request, object: &mut Value) -> Result<(), Rejection> {
    limits::mutate(source, request, object);
    classes::mutate(source, request, object);
    pods::mutate(source, request, object)
}

/// Nobody may lock the door to the lock: webhooks are never asked about these kinds.
fn exempt(request: &Request) -> bool {
    request.group == GROUP
}

fn sorted(mut objects: Vec<Arc<Value>>) -> Vec<Arc<Value>> {
    objects.sort_by_key(|o| request::text(o, "/metadata/name").to_owned());
    objects
}
