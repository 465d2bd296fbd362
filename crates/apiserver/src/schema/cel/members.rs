//! Functions that look for items in lists: `sets.contains` and the like, `distinct`. The engine finds no items that a schema describes.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::equality::same;
use super::unreadable;

type List = Arc<Vec<Cel>>;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("sets.contains", |list: List, items: List| contain(&list, &items));
    context.add_function("sets.equivalent", |a: List, b: List| {
        Ok(contain(&a, &b)? && contain(&b, &a)?)
    });
    context.add_function("sets.intersects", |a: List, b: List| {
        a.iter().any(|item| b.iter().any(|other| same(item, other)))
    });
    context.add_function("distinct", |This(list): This<List>| -> ResolveResult {
        let mut kept: Vec<Cel> = Vec::new();
        for item in list.iter() {
            if !kept.iter().any(|other| same(item, other)) {
                kept.push(item.clone());
            }
        }
        Ok(Cel::List(Arc::new(kept)))
    });
}

/// Whether all items are in a list. As everywhere, the left side of a comparison says how to compare, and that is the item.
fn contain(list: &[Cel], items: &[Cel]) -> Result<bool, ExecutionError> {
    for item in items {
        if !list.iter().any(|other| same(item, other)) {
            // It may have been one that cannot be read.
            list.iter().try_for_each(unreadable::read)?;
            return Ok(false);
        }
    }
    Ok(true)
}
