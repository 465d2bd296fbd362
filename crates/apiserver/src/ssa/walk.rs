//! Walks over typed values: their field sets, the difference of two, removal of paths, validation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fieldset::{Element, Set};
use super::types::{Form, List, Scalar, TypeRef, item_element};

type Path = Vec<Element>;

static NO_FIELDS: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// JSON equality where 1 equals 1.0.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|o| equal(v, o)))
        }
        _ => a == b,
    }
}

/// The fields a value sets.
pub(super) fn field_set(value: &Value, ty: TypeRef<'_>) -> Set {
    let mut set = Set::default();
    collect(value, ty, &mut Path::new(), &mut set);
    set
}

fn collect(value: &Value, ty: TypeRef<'_>, path: &mut Path, set: &mut Set) {
    match ty.atom().form(Some(value)) {
        Some(Form::Scalar(_)) => set.insert(path),
        Some(Form::List(list)) if list.atomic => set.insert(path),
        Some(Form::Map(map)) if map.atomic => set.insert(path),
        Some(Form::List(list)) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut seen: BTreeMap<Element, usize> = BTreeMap::new();
            for item in items {
                if let Ok(element) = item_element(&list, item) {
                    *seen.entry(element).or_default() += 1;
                }
            }
            for item in items {
                let Ok(element) = item_element(&list, item) else {
                    continue;
                };
                let once = seen.get(&element) == Some(&1);
                path.push(element);
                if once {
                    collect(item, list.item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Some(Form::Map(fields)) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let named = fields.named(name);
                path.push(Element::Field(name.clone()));
                if let Some(ty) = named.or(fields.other) {
                    collect(value, ty, path, set);
                }
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || named.is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        None => {}
    }
}

/// What changed between two values.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
    /// Whether a value does not have its type, or a list has an item that lacks its keys. The real server does not read
    /// such an object. It may have been made when the schema was another.
    pub(super) unreadable: bool,
}

/// Compares two values of one type.
pub(super) fn compare(old: &Value, new: &Value, ty: TypeRef<'_>) -> Comparison {
    let mut out = Comparison::default();
    compare_at(Some(old), Some(new), ty, &mut Path::new(), &mut out);
    out
}

fn compare_at(
    old: Option<&Value>,
    new: Option<&Value>,
    ty: TypeRef<'_>,
    path: &mut Path,
    out: &mut Comparison,
) {
    let atom = ty.atom();
    let (Some(old_form), Some(new_form)) = (atom.form(old), atom.form(new)) else {
        return;
    };
    let fits = |value: Option<&Value>, form: Form<'_>| value.is_none_or(|value| form.fits(value));
    out.unreadable |= !fits(old, old_form) || !fits(new, new_form);
    let leaf = if new.is_none() {
        compare_as(old_form, old, new, path, out)
    } else if old.is_none() || old_form.same_kind(&new_form) {
        compare_as(new_form, old, new, path, out)
    } else {
        compare_as(old_form, old, new, path, out);
        compare_as(new_form, old, new, path, out)
    };
    if !leaf {
        if old.is_none() {
            out.added.insert(path);
        } else if new.is_none() {
            out.removed.insert(path);
        }
    }
}

/// Answers whether the place was compared as one value.
fn compare_as(
    form: Form<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Path,
    out: &mut Comparison,
) -> bool {
    let leaf = |out: &mut Comparison| {
        match (old, new) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            (Some(old), Some(new)) if !equal(old, new) => out.modified.insert(path),
            _ => {}
        }
        true
    };
    match form {
        Form::Scalar(_) => leaf(out),
        Form::List(list) => {
            let items = |v: Option<&'_ Value>| v.and_then(Value::as_array).cloned().unwrap_or_default();
            let (old_items, new_items) = (items(old), items(new));
            if list.atomic || (old_items.is_empty() && new_items.is_empty()) {
                return leaf(out);
            }
            compare_items(&list, &old_items, &new_items, path, out);
            false
        }
        Form::Map(fields) => {
            let old_map = old.and_then(Value::as_object).unwrap_or(&NO_FIELDS);
            let new_map = new.and_then(Value::as_object).unwrap_or(&NO_FIELDS);
            if fields.atomic || (old_map.is_empty() && new_map.is_empty()) {
                return leaf(out);
            }
            let names: BTreeSet<&String> = old_map.keys().chain(new_map.keys()).collect();
            for name in names {
                path.push(Element::Field(name.clone()));
                let ty = fields.field(name).unwrap_or(TypeRef::Deduced);
                compare_at(old_map.get(name), new_map.get(name), ty, path, out);
                path.pop();
            }
            false
        }
    }
}

fn compare_items(list: &List<'_>, old: &[Value], new: &[Value], path: &mut Path, out: &mut Comparison) {
    let mut index = |items: &'_ [Value]| {
        let mut map: BTreeMap<Element, Vec<Value>> = BTreeMap::new();
        for item in items {
            match item_element(list, item) {
                Ok(element) => map.entry(element).or_default().push(item.clone()),
                Err(_) => out.unreadable = true,
            }
        }
        map
    };
    let (old, new) = (index(old), index(new));
    let elements: BTreeSet<&Element> = old.keys().chain(new.keys()).collect();
    for element in elements {
        let side = |map: &BTreeMap<Element, Vec<Value>>| map.get(element).cloned().unwrap_or_default();
        let (before, after) = (side(&old), side(&new));
        path.push(element.clone());
        match (before.as_slice(), after.as_slice()) {
            ([] | [_], [] | [_]) => compare_at(before.first(), after.first(), list.item, path, out),
            ([_, _, ..], [_, _, ..]) => {
                if before.len() != after.len() || !before.iter().zip(&after).all(|(a, b)| equal(a, b)) {
                    out.modified.insert(path);
                }
            }
            ([_, _, ..], rest) => {
                if let Some(after) = rest.first() {
                    compare_at(None, Some(after), list.item, path, out);
                }
                out.removed.insert(path);
            }
            (rest, _) => {
                if let Some(before) = rest.first() {
                    compare_at(Some(before), None, list.item, path, out);
                }
                out.added.insert(path);
            }
        }
        path.pop();
    }
}

/// The value without these paths; what becomes empty becomes null.
pub(super) fn remove(value: &Value, set: &Set, ty: TypeRef<'_>) -> Value {
    match ty.atom().form(Some(value)) {
        Some(Form::List(list)) if !list.atomic => {
            let mut out = Vec::new();
            for item in value.as_array().into_iter().flatten() {
                match item_element(&list, item) {
                    Ok(element) if set.has(&element) => {}
                    Ok(element) => out.push(match set.below(&element) {
                        Some(below) => remove(item, below, list.item),
                        None => item.clone(),
                    }),
                    Err(_) => out.push(item.clone()),
                }
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Array(out)
            }
        }
        Some(Form::Map(fields)) if !fields.atomic => {
            let mut out = Map::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                let element = Element::Field(name.clone());
                if set.has(&element) {
                    continue;
                }
                let kept = match (set.below(&element), fields.field(name)) {
                    (Some(below), Some(ty)) => remove(value, below, ty),
                    _ => value.clone(),
                };
                out.insert(name.clone(), kept);
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Object(out)
            }
        }
        Some(Form::Scalar(_)) => value.clone(),
        _ => Value::Null,
    }
}

/// What keeps a value from having the type, such as `.spec.a: field not declared in schema`.
pub(super) fn type_errors(value: &Value, ty: TypeRef<'_>) -> Vec<String> {
    let mut out = Vec::new();
    check(value, ty, "", &mut out);
    out
}

fn check(value: &Value, ty: TypeRef<'_>, path: &str, out: &mut Vec<String>) {
    let mut fail = |detail: String| {
        out.push(if path.is_empty() {
            detail
        } else {
            format!("{path}: {detail}")
        });
    };
    match ty.atom().form(Some(value)) {
        _ if value.is_null() => {}
        None => fail("schema error: invalid atom".into()),
        Some(Form::Scalar(scalar)) => {
            if !scalar.fits(value) {
                let wanted = match scalar {
                    Scalar::Numeric => "numeric (int or float)",
                    Scalar::Text => "string",
                    Scalar::Boolean => "boolean",
                    Scalar::Untyped => "any scalar",
                };
                fail(format!("expected {wanted}, got {value}"));
            }
        }
        Some(Form::List(list)) => {
            let Some(items) = value.as_array() else {
                fail(format!("expected list, got {value}"));
                return;
            };
            let mut seen = BTreeSet::new();
            for (i, item) in items.iter().enumerate() {
                let element = if list.atomic {
                    Element::Index(i64::try_from(i).unwrap_or(i64::MAX))
                } else {
                    match item_element(&list, item) {
                        Ok(element) => element,
                        Err(e) => {
                            out.push(format!("{path}: element {i}: {e}"));
                            return;
                        }
                    }
                };
                if !seen.insert(element.clone()) {
                    out.push(format!("{path}: duplicate entries for key {}", element.shown()));
                }
                check(item, list.item, &format!("{path}{}", element.shown()), out);
            }
        }
        Some(Form::Map(fields)) => {
            let Some(map) = value.as_object() else {
                fail(format!("expected map, got {value}"));
                return;
            };
            for (name, value) in map {
                match fields.field(name) {
                    Some(ty) => check(value, ty, &format!("{path}.{name}"), out),
                    None => out.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
    }
}
