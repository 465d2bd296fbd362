//! PersistentVolumeClaims. What a claim asks for stays as it is, but for its size once it has a volume.

use serde_json::{Map, Value};

use super::super::STORAGE_CLASS;
use super::{label_selector, list, text};
use crate::quantity::Quantity;
use crate::resources::{Amounts, amounts};
use crate::schema::{Cause, child, key, names};

pub(super) fn claim(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = spec(new, old, "spec");
    if let Some(old) = old {
        causes.extend(update(new, old));
    }
    causes
}

/// What is claimed, by a claim or by one that is still to be made of this template; `path` is where its `spec` is.
pub(super) fn spec(claim: &Value, old: Option<&Value>, path: &str) -> Vec<Cause> {
    let mut causes = label_selector(claim.pointer("/spec/selector"), &child(path, "selector"));
    causes.extend(access_modes(
        list(claim, "/spec/accessModes"),
        &child(path, "accessModes"),
        "at least 1 access mode is required",
    ));
    let size = key(&child(path, "resources"), "storage");
    match amounts(claim, "/spec/resources/requests").get("storage") {
        None => causes.push(Cause::required(size, "")),
        Some(amount) if *amount <= Quantity::ZERO => {
            let shown = amount.to_string();
            causes.push(Cause::invalid(size, &shown.into(), "must be greater than zero"));
        }
        Some(_) => {}
    }
    causes.extend(class(claim, "storageClassName", path));
    causes.extend(mode(claim, path));
    causes.extend(sources(claim, old, path));
    causes.extend(class(claim, "volumeAttributesClassName", path));
    causes
}

/// How the data of a claim or a volume is seen.
pub(super) fn mode(object: &Value, path: &str) -> Option<Cause> {
    const MODES: [&str; 2] = ["Block", "Filesystem"];
    let mode = text(object, "/spec/volumeMode");
    (!MODES.contains(&mode)).then(|| Cause::not_supported(child(path, "volumeMode"), &mode.into(), &MODES))
}

pub(super) fn access_modes(modes: &[Value], path: &str, none: &str) -> Vec<Cause> {
    const MODES: [&str; 4] = [
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOnce",
        "ReadWriteOncePod",
    ];
    if modes.is_empty() {
        return vec![Cause::required(path, none)];
    }
    let name = |mode: &Value| mode.as_str().unwrap_or_default().to_owned();
    let (known, unknown): (Vec<_>, Vec<_>) =
        modes.iter().map(name).partition(|mode| MODES.contains(&&**mode));
    let mut causes: Vec<Cause> = unknown
        .into_iter()
        .map(|mode| Cause::not_supported(path, &mode.into(), &MODES))
        .collect();
    let of_one_pod = |mode: &String| mode == "ReadWriteOncePod";
    if known.iter().any(of_one_pod) && !known.iter().all(of_one_pod) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        causes.push(Cause::forbidden(path, detail));
    }
    causes
}

pub(super) fn class(claim: &Value, field: &str, path: &str) -> Vec<Cause> {
    let name = text(claim, &format!("/spec/{field}"));
    if name.is_empty() {
        return Vec::new();
    }
    let invalid = |problem: &String| Cause::invalid(child(path, field), &name.into(), problem);
    names::dns_subdomain(name).iter().map(invalid).collect()
}

/// What the volume is filled with.
fn sources(claim: &Value, old: Option<&Value>, path: &str) -> Vec<Cause> {
    let fields = ["dataSource", "dataSourceRef"];
    let of = |claim: &Value, field: &str| claim.pointer(&format!("/spec/{field}")).cloned();
    // A group that was taken once is taken again.
    let lax = fields.iter().any(|field| {
        let before = old.and_then(|old| of(old, field));
        before.is_some_and(|before| before.get("apiGroup").is_some())
    });
    let mut causes = Vec::new();
    for field in fields {
        let Some(source) = of(claim, field) else { continue };
        let path = child(path, field);
        for name in ["name", "kind"] {
            if text(&source, &format!("/{name}")).is_empty() {
                causes.push(Cause::required(child(&path, name), ""));
            }
        }
        let (group, kind) = (text(&source, "/apiGroup"), text(&source, "/kind"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            causes.push(Cause::invalid(path, &kind.into(), detail));
        } else if !group.is_empty() && !lax {
            for problem in names::dns_subdomain(group) {
                causes.push(Cause::invalid(child(&path, "apiGroup"), &group.into(), &problem));
            }
        }
    }
    if let [Some(older), Some(newer)] = fields.map(|field| of(claim, field))
        && older != newer
    {
        causes.push(Cause::invalid(
            path,
            &child(path, "dataSource").into(),
            "must match dataSourceRef",
        ));
    }
    causes
}

fn update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (mut after, mut before) = (Asked::of(new), Asked::of(old));
    if text(old, "/spec/volumeName").is_empty() {
        // Whoever finds a volume for it says which.
        copy(&after.fields, &mut before.fields, "volumeName");
    }
    let annotation = |claim: &Value| {
        let annotations = claim.pointer("/metadata/annotations");
        Some(annotations?.get(STORAGE_CLASS)?.as_str()?.to_owned())
    };
    let (new_class, old_class) = (annotation(new), annotation(old));
    let named = new.pointer("/spec/storageClassName").and_then(Value::as_str);
    let unnamed = !before.fields.contains_key("storageClassName");
    let is_first = named.is_some() && unnamed && old_class.as_deref().is_none_or(|old| named == Some(old));
    if is_first {
        after.fields.remove("storageClassName");
    }
    // The annotation may go when what it says is said by the field.
    let moves = is_first && old_class.is_some() && new_class.is_none();
    if !moves && new_class.clone().unwrap_or_default() != old_class.unwrap_or_default() {
        causes.push(Cause::invalid(
            format!("metadata.annotations.{STORAGE_CLASS}"),
            &new_class.unwrap_or_default().into(),
            "field is immutable",
        ));
    }
    if text(new, "/status/phase") == "Bound" {
        copy(&before.fields, &mut after.fields, "volumeAttributesClassName");
        if let (Some(after), Some(before)) =
            (after.requests.get_mut("storage"), before.requests.get("storage"))
        {
            *after = *before;
        }
    }
    if after != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", detail));
    }
    let size = |claim: &Value, of: &str| {
        let size = amounts(claim, of).get("storage").copied();
        size.unwrap_or(Quantity::ZERO)
    };
    let requested = size(new, "/spec/resources/requests");
    // It may be made smaller again if there was no room for more.
    if requested < size(old, "/spec/resources/requests") && requested <= size(old, "/status/capacity") {
        let detail = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", detail));
    }
    let mode = |claim: &Value| claim.pointer("/spec/volumeMode").cloned().unwrap_or_default();
    if mode(new) != mode(old) {
        causes.push(Cause::invalid("volumeMode", &mode(new), "field is immutable"));
    }
    causes.extend(attributes(new, old));
    causes
}

/// A class of attributes that is in use may be replaced, but not taken away.
fn attributes(new: &Value, old: &Value) -> Option<Cause> {
    let class = |claim: &Value| claim.pointer("/spec/volumeAttributesClassName").cloned();
    let after = class(new);
    let what = match after.as_ref().and_then(Value::as_str) {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return None,
    };
    old.pointer("/status/currentVolumeAttributesClassName")
        .filter(|_| after != class(old))?;
    let detail =
        format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    Some(Cause::forbidden("spec.volumeAttributesClassName", &detail))
}

/// What a claim asks for. Amounts are the same however they are written.
#[derive(PartialEq)]
struct Asked {
    fields: Map<String, Value>,
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn of(claim: &Value) -> Self {
        let fields = claim.get("spec").and_then(Value::as_object);
        let mut fields = fields.cloned().unwrap_or_default();
        fields.remove("resources");
        Self {
            fields,
            requests: amounts(claim, "/spec/resources/requests"),
            limits: amounts(claim, "/spec/resources/limits"),
        }
    }
}

fn copy(from: &Map<String, Value>, to: &mut Map<String, Value>, name: &str) {
    match from.get(name) {
        Some(value) => drop(to.insert(name.to_owned(), value.clone())),
        None => drop(to.remove(name)),
    }
}
