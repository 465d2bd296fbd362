//! Parameters of admission policies: whoever makes a policy read objects must be able to read them, for its messages tell what is
//! in them.

use serde_json::Value;
use writ_authz::{Attributes, ResourceAttributes};

use super::Call;
use crate::schema::Cause;
use crate::store::key_of;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
const ALL: &str = "*";

fn part<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object
        .get("spec")
        .and_then(|spec| spec.get(name))
        .filter(|part| !part.is_null())
}

fn text<'a>(part: &'a Value, name: &str) -> &'a str {
    part.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What is said of a policy or a binding that is good otherwise.
pub(super) fn problem(call: &Call, new: &Value, old: Option<&Value>) -> Option<Cause> {
    match &*call.resource.table {
        POLICIES => {
            let kind = part(new, "paramKind")?;
            let known = old.and_then(|old| part(old, "paramKind")) == Some(kind);
            let (group, resource) = resource_of(call, Some(kind));
            let right = ResourceAttributes::new("get", &group, &resource)
                .in_namespace(ALL)
                .named(ALL);
            let why = "must have \"get\" permission on all objects of the referenced paramKind";
            (!known && !may(call, right)).then(|| forbidden(call, "spec.paramKind", why))
        }
        // Asked again at every change: other objects may be meant by now.
        BINDINGS => {
            let reference = part(new, "paramRef")?;
            let name = part(new, "policyName").and_then(Value::as_str);
            let policy = call
                .state
                .store
                .get(POLICIES, &key_of("", name.unwrap_or_default()));
            let policy = policy.map(|policy| policy.value());
            let kind = policy.as_ref().and_then(|policy| part(policy, "paramKind"));
            let (group, resource) = resource_of(call, kind);
            let name = text(reference, "name");
            let verb = if name.is_empty() { "list" } else { "get" };
            let right = ResourceAttributes::new(verb, &group, &resource)
                .in_namespace(text(reference, "namespace"))
                .named(name);
            let why = format!("does not have {verb:?} permission on the object referenced by paramRef");
            (!may(call, right)).then(|| forbidden(call, "spec.paramRef", &why))
        }
        _ => None,
    }
}

/// The group and the name of a kind's resource; all that cannot be told is all there is.
fn resource_of(call: &Call, kind: Option<&Value>) -> (String, String) {
    let Some(kind) = kind else {
        return (ALL.into(), ALL.into());
    };
    let version = text(kind, "apiVersion");
    let snapshot = call.state.registry.snapshot();
    let found = snapshot.of_kind(version, text(kind, "kind"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    (
        group.to_owned(),
        found.map_or_else(|| ALL.to_owned(), |resource| resource.plural.clone()),
    )
}

fn may(call: &Call, right: ResourceAttributes<'_>) -> bool {
    call.state
        .authorizer
        .allows(&call.user, &Attributes::Resource(right))
}

fn forbidden(call: &Call, field: &str, why: &str) -> Cause {
    Cause::forbidden(field, &format!("user {:?} {why}", call.user.name))
}
