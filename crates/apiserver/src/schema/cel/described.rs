//! Values that a schema describes: lists and objects that know what the schema says of them.
//!
//! To the reference implementation a list may be a set, or a map of its items' keys, which shows when it is compared or added. And
//! none of these values can be compared with what is no list or object at all. The evaluator's own lists and maps cannot say what
//! they are, so these are values of our own. Paths, comparisons and sums know them; everything else gets what they hold ([`open`]).

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, operators};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::convert::escape;
use super::unreadable::{self, Items};
use super::{equality, macros, signatures};

/// What such a value holds.
const OPENED: &str = "@opened";
/// The same, and of its items what they hold.
const ITEMS_OPENED: &str = "@itemsOpened";
/// The same, all the way down.
const LAID_OPEN: &str = "@laidOpen";
const TYPE: &str = "@described";

/// What tells the items of a list apart.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    /// Their places.
    Place,
    /// Themselves. These are the items as they were written: a time is a text.
    Item(Arc<Vec<Cel>>),
    /// Some of their fields.
    Fields(Arc<[Box<str>]>),
}

impl Identity {
    /// Fields by their names. One whose name is spelled otherwise in rules is never found, and tells nothing apart.
    pub(super) fn fields(names: &[Box<str>]) -> Self {
        let found = |name: &str| escape(name).as_deref() == Some(name);
        Self::Fields(names.iter().filter(|name| found(name)).cloned().collect())
    }
}

/// A list or an object of a schema.
#[derive(Clone, Debug)]
pub(super) enum Described {
    List(Identity, Items, Arc<Vec<Cel>>),
    Object(Arc<HashMap<Key, Cel>>),
}

impl PartialEq for Described {
    fn eq(&self, other: &Self) -> bool {
        equality::same(&self.clone().into(), &other.clone().into())
    }
}

// As other values: nobody looks for `NaN`.
impl Eq for Described {}

impl Opaque for Described {
    fn runtime_type_name(&self) -> &'static str {
        TYPE
    }
}

impl From<Described> for Cel {
    fn from(value: Described) -> Self {
        Self::Opaque(Arc::new(value))
    }
}

impl Described {
    /// A value as one of these, if it is one.
    pub(super) fn of(value: &Cel) -> Option<&Self> {
        match value {
            Cel::Opaque(opaque) => opaque.downcast_ref(),
            _ => None,
        }
    }

    /// The same of a value as the evaluator has it.
    pub(super) fn of_val(value: &dyn Val) -> Option<Self> {
        if value.get_type().name() != TYPE {
            return None;
        }
        Self::of(&Cel::try_from(value).ok()?).cloned()
    }

    /// What it holds, as the evaluator knows it.
    pub(super) fn held(&self) -> Cel {
        match self {
            Self::List(.., items) => Cel::List(items.clone()),
            Self::Object(fields) => Cel::Map(Map { map: fields.clone() }),
        }
    }
}

pub(super) fn opened(value: &Cel) -> Cel {
    Described::of(value).map_or_else(|| value.clone(), Described::held)
}

fn items_opened(value: &Cel) -> Cel {
    match opened(value) {
        Cel::List(items) => Cel::List(Arc::new(items.iter().map(opened).collect())),
        other => other,
    }
}

/// A value in which nothing is described by a schema any more.
pub(super) fn laid_open(value: &Cel) -> Cel {
    match opened(value) {
        Cel::List(items) => Cel::List(Arc::new(items.iter().map(laid_open).collect())),
        Cel::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| (key.clone(), laid_open(value)));
            Cel::Map(Map {
                map: Arc::new(entries.collect()),
            })
        }
        other => other,
    }
}

/// How a function wants its lists and objects.
fn wanted(function: &str) -> Option<&'static str> {
    Some(match function {
        // Those that take any value for what it is.
        "of" | "ofNonZeroValue" | "or" | "orValue" | "value" | "hasValue" => return None,
        macros::PAIRS | macros::SORT_BY => OPENED,
        // Operators, and functions of our own.
        name if name.contains(['@', '_']) => return None,
        "flatten" => ITEMS_OPENED,
        "format" => LAID_OPEN,
        _ => OPENED,
    })
}

/// Lets everything that knows nothing of these values have what they hold, in an expression that is lowered already.
pub(super) fn open(expression: &mut IdedExpr) {
    for part in macros::below(expression) {
        open(part);
    }
    match &mut expression.expr {
        Expr::Comprehension(all) => wrap(OPENED, &mut all.iter_range),
        Expr::Call(call) => {
            let Some(how) = wanted(&call.func_name) else {
                return;
            };
            for argument in &mut call.args {
                wrap(how, argument);
            }
            if let Some(target) = call.target.as_deref_mut() {
                let prefix = matches!(&target.expr, Expr::Ident(prefix)
                    if signatures::known(&format!("{prefix}.{}", call.func_name)));
                if !prefix {
                    wrap(how, target);
                }
            }
        }
        _ => {}
    }
}

fn wrap(how: &str, value: &mut IdedExpr) {
    let made = match &value.expr {
        Expr::Literal(_) | Expr::Comprehension(_) => true,
        // Its own items may be of a schema.
        Expr::List(list) => list.elements.is_empty() || how == OPENED,
        Expr::Call(call) => matches!(
            call.func_name.as_str(),
            operators::EQUALS | operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT
        ),
        _ => false,
    };
    if made {
        return;
    }
    let held = std::mem::take(value);
    value.expr = Expr::Call(CallExpr {
        func_name: how.to_owned(),
        target: None,
        args: vec![held],
    });
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(OPENED, |value: Cel| -> ResolveResult {
        unreadable::read(&value)?;
        Ok(opened(&value))
    });
    context.add_function(ITEMS_OPENED, |value: Cel| -> ResolveResult {
        Ok(items_opened(&value))
    });
    context.add_function(LAID_OPEN, |value: Cel| -> ResolveResult { Ok(laid_open(&value)) });
}

/// What a list becomes with more items.
pub(super) fn extended(
    identity: &Identity,
    kind: Items,
    items: &[Cel],
    more: &[Cel],
) -> Result<Described, ExecutionError> {
    let mut all = items.to_vec();
    let added = |item: &Cel| kind.added(item);
    let identity = match identity {
        Identity::Place => {
            all.extend(more.iter().map(added));
            Identity::Place
        }
        Identity::Item(members) => {
            let mut members = members.to_vec();
            members.iter().chain(more).try_for_each(hashable)?;
            for item in more {
                if !members.iter().any(|member| identical(member, item)) {
                    members.push(item.clone());
                    all.push(added(item));
                }
            }
            Identity::Item(Arc::new(members))
        }
        Identity::Fields(fields) => {
            for item in more {
                let known = items.iter().rposition(|other| same_fields(fields, other, item));
                match known.and_then(|at| all.get_mut(at)) {
                    Some(place) => *place = added(item),
                    None => all.push(added(item)),
                }
            }
            Identity::Fields(fields.clone())
        }
    };
    Ok(Described::List(identity, kind, Arc::new(all)))
}

/// Lists and objects cannot be members of a set there, nor can bytes, and whoever tries fails.
pub(super) fn hashable(member: &Cel) -> Result<(), ExecutionError> {
    let kind = match opened(member) {
        Cel::Bytes(_) => "[]uint8",
        Cel::List(_) => "[]interface {}",
        Cel::Map(_) => "map[string]interface {}",
        _ => return Ok(()),
    };
    let why = format!("internal error: runtime error: hash of unhashable type {kind}");
    Err(ExecutionError::function_error("set", why))
}

/// Whether two members of sets are one: numbers of two types are two.
pub(super) fn identical(a: &Cel, b: &Cel) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b) && a == b
}

/// Whether items of a list are told apart by none of the fields.
pub(super) fn same_fields(fields: &[Box<str>], a: &Cel, b: &Cel) -> bool {
    match (Described::of(a), Described::of(b)) {
        (Some(Described::Object(a)), Some(Described::Object(b))) => fields.iter().all(|field| {
            let key = Key::String(Arc::new(field.to_string()));
            a.get(&key) == b.get(&key)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Schema;

    /// All rules here hold there, too.
    #[test]
    fn lists_are_what_their_schema_says() {
        let rules = [
            "self.s == ['b', 'a'] && self.s == ['a', 'a'] && self.s != ['a', 'c']",
            "['b', 'a'] != self.s && self.s.map(x, x) != ['b', 'a']",
            "self.s + ['c', 'a', 'c'] == ['c', 'b', 'a'] && (self.s + ['c'])[2] == 'c'",
            "['a'] + self.s == ['a', 'a', 'b'] && size(self.s) == 2 && 'a' in self.s",
            "self.m == self.m.filter(x, x.k == 'b') + self.m.filter(x, x.k == 'a')",
            "self.m.filter(x, true) != self.m.filter(x, x.k == 'b') + self.m.filter(x, x.k == 'a')",
            "size(self.m + self.m) == 2 && self.m[0].s == ['y', 'x']",
            "[self.s] == [['b', 'a']] && [dyn(self.s)] == [dyn(1)] && dyn(self.s) != 1",
            "!(['b', 'a'] in [self.s]) && sets.contains([['b', 'a']], [self.s])",
            "optional.of(self.s).value() == ['b', 'a'] && self.?s.optMap(x, x).value() != ['b', 'a']",
        ];
        let rules: Vec<_> = rules.iter().map(|rule| json!({"rule": rule})).collect();
        let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
        let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "s": set}});
        let schema = Schema::compile(&json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "s": set,
            "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
        }}))
        .unwrap();
        let object = json!({"s": ["a", "b"], "m": [{"k": "a", "s": ["x", "y"]}, {"k": "b"}]});
        let causes = schema.validate(&object, None);
        assert!(causes.is_empty(), "{causes:#?}");
    }
}
