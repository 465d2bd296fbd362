//! Which requests a webhook or policy wants to see.

use serde_json::Value;

use super::request::text;
use super::{Rejection, Request, Source};
use crate::selector::LabelSelector;
use crate::status::Failure;

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn any(value: &Value, name: &str, wanted: &str) -> bool {
    list(value, name).any(|v| v == "*" || v == wanted)
}

fn resource_matches(rule: &Value, request: &Request) -> bool {
    list(rule, "resources").any(|pattern| {
        let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
        // A lone `*` means every resource and no subresource.
        let resource = resource == "*" || resource == request.resource;
        resource && (subresource == request.subresource || (pattern.contains('/') && subresource == "*"))
    })
}

fn scope_matches(rule: &Value, request: &Request) -> bool {
    // A namespace counts as cluster-scoped although requests for it carry its name.
    match rule.get("scope").and_then(Value::as_str).unwrap_or("*") {
        "Namespaced" => request.namespaced,
        "Cluster" => !request.namespaced,
        _ => true,
    }
}

/// A group and version in which a resource may be spoken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub group: String,
    pub version: String,
}

impl Place {
    fn new(group: &str, version: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }

    /// Where the request itself speaks.
    pub fn of(request: &Request) -> Self {
        Self::new(&request.group, &request.version)
    }
}

fn rule_matches(rule: &Value, request: &Request, place: &Place) -> bool {
    any(rule, "operations", request.operation.as_str())
        && any(rule, "apiGroups", &place.group)
        && any(rule, "apiVersions", &place.version)
        && resource_matches(rule, request)
        && scope_matches(rule, request)
}

/// Where one of the rules matches: where the request speaks, or where an equivalent resource is.
pub(super) fn matching_place(
    source: &dyn Source,
    rules: &[&Value],
    request: &Request,
    policy: &str,
) -> Option<Place> {
    let matches = |place: &Place| rules.iter().any(|rule| rule_matches(rule, request, place));
    let own = Place::of(request);
    if matches(&own) {
        return Some(own);
    }
    if policy == "Exact" {
        return None;
    }
    let versions = source.versions(&request.group, &request.resource).into_iter();
    let mut places: Vec<Place> = versions
        .map(|version| Place::new(&request.group, &version))
        .collect();
    match (request.group.as_str(), request.resource.as_str()) {
        ("", "events") => places.push(Place::new("events.k8s.io", "v1")),
        ("events.k8s.io", "events") => places.push(Place::new("", "v1")),
        _ => {}
    }
    // The first rule counts, not the first version.
    rules.iter().find_map(|rule| {
        let mut places = places.iter();
        places.find(|place| rule_matches(rule, request, place)).cloned()
    })
}

/// What the two selectors of a webhook or policy say of a request.
pub(super) enum Selected {
    No,
    Yes,
    /// One of them could not be asked. That matters only to those who want the request otherwise.
    Failed(Rejection),
}

/// Whether the namespace and the object of the request are selected.
pub(super) fn selected(
    source: &dyn Source,
    selectors: &Value,
    request: &Request,
    object: Option<&Value>,
) -> Selected {
    let namespace = namespace_matches(source, selectors.get("namespaceSelector"), request, object);
    let object = object_matches(selectors.get("objectSelector"), request, object);
    match (namespace, object) {
        (Ok(false), _) | (_, Ok(false)) => Selected::No,
        (Err(why), _) | (_, Err(why)) => Selected::Failed(why),
        (Ok(true), Ok(true)) => Selected::Yes,
    }
}

fn read(selector: Option<&Value>) -> Result<LabelSelector, Rejection> {
    LabelSelector::from_object(selector).map_err(|why| Rejection::internal(&why))
}

/// Whether the namespace of the request has the labels.
fn namespace_matches(
    source: &dyn Source,
    selector: Option<&Value>,
    request: &Request,
    object: Option<&Value>,
) -> Result<bool, Rejection> {
    let selector = read(selector)?;
    if selector.is_everything() {
        return Ok(true);
    }
    // Whatever is called so is taken for a namespace.
    let is_namespace = request.resource == "namespaces";
    if !request.namespaced && !is_namespace {
        return Ok(true);
    }
    let namespace = if is_namespace {
        &request.name
    } else {
        &request.namespace
    };
    let labels = |object: &Value| {
        object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .cloned()
    };
    let labels = match object.filter(|_| is_namespace && request.subresource.is_empty()) {
        Some(object) => labels(object),
        // A review may be about a namespace that is not there.
        None => match source.get("", "namespaces", "", namespace) {
            Some(stored) => labels(&stored),
            None => return Err(Failure::not_found("", "namespaces", namespace).into()),
        },
    };
    Ok(selector.matches(labels.as_ref()))
}

/// Whether the object, as it is or as it was, has the labels.
fn object_matches(
    selector: Option<&Value>,
    request: &Request,
    object: Option<&Value>,
) -> Result<bool, Rejection> {
    let selector = read(selector)?;
    if selector.is_everything() {
        return Ok(true);
    }
    Ok([object, request.old_object.as_ref()]
        .into_iter()
        .flatten()
        .any(|o| selector.matches(o.pointer("/metadata/labels").and_then(Value::as_object))))
}

/// Whether `matchConstraints` or `matchResources` of a policy want the request; where they speak.
pub(super) fn resources_match(
    source: &dyn Source,
    resources: &Value,
    request: &Request,
    object: Option<&Value>,
) -> Result<Option<Place>, Rejection> {
    let selected = selected(source, resources, request, object);
    if matches!(selected, Selected::No) {
        return Ok(None);
    }
    let named = |name: &str| -> Vec<&Value> {
        let rules = resources
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        rules
            .filter(|rule| {
                let mut names = list(rule, "resourceNames").peekable();
                names.peek().is_none() || names.any(|n| n == request.name)
            })
            .collect()
    };
    let policy = text(resources, "/matchPolicy");
    let excluded = named("excludeResourceRules");
    if matching_place(source, &excluded, request, policy).is_some() {
        return Ok(None);
    }
    let has_rules = resources
        .get("resourceRules")
        .and_then(Value::as_array)
        .is_some_and(|r| !r.is_empty());
    let place = if has_rules {
        matching_place(source, &named("resourceRules"), request, policy)
    } else {
        Some(Place::of(request))
    };
    match selected {
        Selected::Failed(why) if place.is_some() => Err(why),
        _ => Ok(place),
    }
}
