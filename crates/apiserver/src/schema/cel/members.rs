//! Functions of lists: `sets.contains` and the like, `distinct`, of which the engine's own find no items that a schema describes,
//! and `lists.range`.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::equality::same;
use super::{meter, unreadable};

type List = Arc<Vec<Cel>>;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("sets.contains", |list: List, items: List| contain(&list, &items));
    context.add_function("sets.equivalent", |a: List, b: List| {
        Ok(contain(&a, &b)? && contain(&b, &a)?)
    });
    context.add_function("sets.intersects", |a: List, b: List| {
        a.iter().any(|item| b.iter().any(|other| same(item, other)))
    });
    context.add_function("lists.range", |end: i64| -> ResolveResult {
        // Nobody could pay for a longer one, and it should not be made before that is found out.
        if u64::try_from(end).is_ok_and(|end| end > meter::PER_CALL) {
            return Err(ExecutionError::function_error("lists.range", meter::EXCEEDED));
        }
        Ok(Cel::List(Arc::new((0..end).map(Cel::Int).collect())))
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
