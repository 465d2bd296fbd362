//! Owners and schemas that change: what somebody owns inside of a list or a map that is one value now, becomes
//! ownership of that value. The other way nothing is done: who owned the whole owns its place, and nothing inside.

use super::fieldset::{Element, Set};
use super::managed::Managers;
use super::types::{Form, TypeRef};
use super::{Manager, variants};

/// Lets all owners own what there is to own, each in the schema of the version in which it wrote.
pub(super) fn owners(managers: &mut Managers, manager: &Manager<'_>, ty: TypeRef<'_>) {
    for owned in managers.fields.values_mut() {
        let ty = variants::type_in(manager.variant(&owned.api_version), ty);
        if let Some(set) = below(&owned.set, ty) {
            owned.set = set;
        }
    }
}

/// What is owned below a place; nothing if that is as it was.
fn below(set: &Set, ty: TypeRef<'_>) -> Option<Set> {
    let mut changed: Option<Set> = None;
    for (element, inner) in set.children.iter().filter(|(_, inner)| !inner.is_empty()) {
        let Some(ty) = step(ty, element) else { continue };
        if is_one_value(ty) {
            let out = changed.get_or_insert_with(|| set.clone());
            out.children.remove(element);
            out.members.insert(element.clone());
        } else if let Some(inner) = below(inner, ty) {
            let out = changed.get_or_insert_with(|| set.clone());
            out.children.insert(element.clone(), inner);
        }
    }
    changed
}

fn is_one_value(ty: TypeRef<'_>) -> bool {
    match ty.atom().form(None) {
        Some(Form::Map(fields)) => fields.atomic && !fields.is_free(),
        Some(Form::List(list)) => list.atomic,
        Some(Form::Scalar(_)) | None => false,
    }
}

/// The type one step further; none where the schema says nothing of it.
fn step<'a>(ty: TypeRef<'a>, element: &Element) -> Option<TypeRef<'a>> {
    match (ty.atom().form(None)?, element) {
        (Form::Map(fields), _) if fields.is_free() => None,
        (Form::Map(fields), Element::Field(name)) => fields.field(name),
        (Form::Map(fields), _) => fields.other,
        (Form::List(list), _) => Some(list.item),
        (Form::Scalar(_), _) => None,
    }
}
