//! What an expression can cost at most, told before it runs.
//!
//! The engine has no budget of its own: loops in loops over a long list, or a text that is doubled again and again,
//! would keep the process busy or eat its memory. So every expression is weighed against the very values that it
//! will see; the weight is an upper bound of the work and of the memory.

use kube_cel::cel::{
    Value,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
    objects::Key,
};

use super::optionals::{FIRST, ITEMS};

/// The most that an expression may cost: some thousandths of a second, some megabytes.
const BUDGET: u64 = 2_000_000;
/// What no expression may cost.
const TOO_MUCH: Size = Size {
    count: u64::MAX,
    total: u64::MAX,
    element: u64::MAX,
};
/// Functions whose result is one number, one truth or one thing of bounded size, whatever they are given.
const SMALL_RESULTS: [&str; 39] = [
    "_&&_",
    "_||_",
    "!_",
    "-_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "_==_",
    "_!=_",
    "_>=_",
    "_<=_",
    "_>_",
    "_<_",
    "@in",
    "@not_strictly_false",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "indexOf",
    "lastIndexOf",
    "isSemver",
    "isQuantity",
    "isURL",
    "isIP",
    "isCIDR",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "hasConditions",
    "hasValue",
    "int",
    "uint",
    "double",
    "bool",
    "isInteger",
    "isSorted",
];

/// Says no to an expression that may cost too much with these values.
pub(super) fn check(
    expression: &Expr,
    variables: &[(&str, &Value)],
    tables: &[(&str, Size)],
) -> Result<(), String> {
    let mut scale = Scale {
        scope: variables
            .iter()
            .map(|(name, value)| (*name, Seen::Value(value)))
            .collect(),
        tables,
    };
    let (_, cost) = scale.weigh(expression);
    if cost > BUDGET {
        return Err("it may cost too much here: loops in loops, or texts that grow and grow".into());
    }
    Ok(())
}

/// How large a value is at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// How many elements a loop over it sees; 0 for what is no list and no map.
    count: u64,
    /// How many elements and bytes it has in all.
    total: u64,
    /// How many of these its largest element has.
    element: u64,
}

impl Size {
    const ONE: Self = Self {
        count: 0,
        total: 1,
        element: 1,
    };

    /// The size of a value.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::text(text.len()),
            Value::Bytes(bytes) => Self::text(bytes.len()),
            Value::List(list) => list
                .iter()
                .fold(Self::ONE, |sum, item| sum.with_element(Self::of(item))),
            Value::Map(map) => map.map.iter().fold(Self::ONE, |sum, (key, value)| {
                let mut entry = Self::of(value);
                entry.total = entry.total.saturating_add(key_length(key));
                sum.with_element(entry)
            }),
            _ => Self::ONE,
        }
    }

    fn text(length: usize) -> Self {
        Self {
            total: 1 + number(length),
            ..Self::ONE
        }
    }

    /// Of something of which nothing else is known.
    fn at_most(total: u64) -> Self {
        Self {
            count: total,
            total,
            element: total,
        }
    }

    fn with_element(self, element: Self) -> Self {
        Self {
            count: self.count.saturating_add(1),
            total: self.total.saturating_add(element.total),
            element: self.element.max(element.total),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            count: self.count.max(other.count),
            total: self.total.max(other.total),
            element: self.element.max(other.element),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            total: self.total.saturating_add(other.total),
            element: self.element.max(other.element),
        }
    }
}

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn key_length(key: &Key) -> u64 {
    match key {
        Key::String(text) => 1 + number(text.len()),
        _ => 1,
    }
}

/// What is known of a value before the expression runs.
#[derive(Clone, Copy)]
enum Seen<'a> {
    Value(&'a Value),
    Size(Size),
}

impl Seen<'_> {
    fn size(self) -> Size {
        match self {
            Self::Value(value) => Size::of(value),
            Self::Size(size) => size,
        }
    }

    fn field(self, name: &str) -> Self {
        match self {
            Self::Value(Value::Map(map)) => map
                .map
                .get(&Key::from(name))
                .map_or(Self::Size(Size::ONE), Self::Value),
            Self::Value(_) => Self::Size(Size::ONE),
            Self::Size(size) => Self::Size(size),
        }
    }

    /// The largest of what a loop over it, or an index into it, can give.
    fn element(self) -> Size {
        match self {
            Self::Value(Value::List(list)) => list.iter().map(Size::of).fold(Size::ONE, Size::max),
            Self::Value(Value::Map(map)) => map.map.iter().fold(Size::ONE, |most, (key, value)| {
                let key = Size {
                    total: key_length(key),
                    ..Size::ONE
                };
                most.max(key).max(Size::of(value))
            }),
            Self::Value(_) => Size::ONE,
            // The element may be a list itself, with as many elements as fit in it.
            Self::Size(size) => Size::at_most(size.element),
        }
    }
}

struct Scale<'a> {
    scope: Vec<(&'a str, Seen<'a>)>,
    tables: &'a [(&'a str, Size)],
}

impl<'a> Scale<'a> {
    fn weigh(&mut self, expression: &'a Expr) -> (Seen<'a>, u64) {
        match expression {
            Expr::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name);
                (known.map_or(Seen::Size(Size::ONE), |(_, seen)| *seen), 1)
            }
            Expr::Literal(literal) => {
                let size = match literal {
                    LiteralValue::String(text) => Size::text(text.inner().len()),
                    LiteralValue::Bytes(bytes) => Size::text(bytes.inner().len()),
                    _ => Size::ONE,
                };
                (Seen::Size(size), 1)
            }
            Expr::Select(select) => {
                let (operand, cost) = self.weigh(&select.operand.expr);
                let field = operand.field(&select.field);
                (field, cost.saturating_add(field.size().total))
            }
            Expr::List(list) => {
                let parts = list.elements.iter().map(|element| &element.expr);
                self.weigh_literal(parts)
            }
            Expr::Map(map) => {
                let parts = map.entries.iter().flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key.expr, &entry.value.expr],
                    EntryExpr::StructField(field) => vec![&field.value.expr],
                });
                self.weigh_literal(parts)
            }
            Expr::Call(call) => self.weigh_call(call),
            Expr::Comprehension(comprehension) => self.weigh_loop(comprehension),
            Expr::Struct(_) | Expr::Unspecified => (Seen::Size(TOO_MUCH), u64::MAX),
        }
    }

    fn weigh_literal(&mut self, parts: impl Iterator<Item = &'a Expr>) -> (Seen<'a>, u64) {
        let (mut size, mut cost) = (Size::ONE, 1_u64);
        for part in parts {
            let (seen, of_part) = self.weigh(part);
            size = size.with_element(seen.size());
            cost = cost.saturating_add(of_part);
        }
        (Seen::Size(size), cost.saturating_add(size.total))
    }

    fn weigh_call(&mut self, call: &'a CallExpr) -> (Seen<'a>, u64) {
        let mut cost = 1_u64;
        let mut parts = Vec::new();
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            let (seen, of_part) = self.weigh(&part.expr);
            cost = cost.saturating_add(of_part);
            parts.push(seen);
        }
        let name = call.func_name.as_str();
        if let Some((_, size)) = self.tables.iter().find(|(table, _)| *table == name) {
            return (Seen::Size(*size), cost.saturating_add(size.total));
        }
        let size = match (name, parts.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => yes.size().max(no.size()),
            (operators::ADD, [left, right]) => left.size().plus(right.size()),
            (operators::INDEX | operators::OPT_INDEX, [list, _]) => {
                return index(call, *list, cost);
            }
            (operators::OPT_SELECT, [operand, ..]) => operand.size(),
            // An optional weighs what it holds.
            ("value", [optional]) | ("of" | "ofNonZeroValue", [_, optional]) => {
                return (*optional, cost.saturating_add(optional.size().total));
            }
            ("or" | "orValue", [optional, other]) => optional.size().max(other.size()),
            (ITEMS, [optional]) => Size::ONE.with_element(optional.size()),
            (FIRST, [items]) => items.element(),
            ("range", _) => range(call),
            // The digits that it asks for are nowhere else to be seen.
            ("format", _) if !is_plain_format(call) => TOO_MUCH,
            _ => {
                let product = parts.iter().fold(1_u64, |product, part| {
                    product.saturating_mul(part.size().total.saturating_add(1))
                });
                cost = cost.saturating_add(product);
                if SMALL_RESULTS.contains(&name) {
                    Size::ONE
                } else {
                    Size::at_most(product)
                }
            }
        };
        (Seen::Size(size), cost.saturating_add(size.total))
    }

    fn weigh_loop(&mut self, of: &'a ComprehensionExpr) -> (Seen<'a>, u64) {
        // What an optional holds is known as well as the optional.
        let held = match &of.iter_range.expr {
            Expr::Call(call) if call.func_name == ITEMS => call.args.first(),
            _ => None,
        };
        let (range, range_cost) = self.weigh(held.map_or(&of.iter_range.expr, |held| &held.expr));
        let (start, start_cost) = self.weigh(&of.accu_init.expr);
        let (rounds, seen) = match held {
            Some(_) => (1, range),
            None => (range.size().count, Seen::Size(range.element())),
        };
        let element = seen.size();
        let depth = self.scope.len();
        self.scope.push((&of.accu_var, Seen::Size(Size::ONE)));
        self.scope.push((&of.iter_var, seen));
        if let Some(second) = &of.iter_var2 {
            self.scope.push((second, Seen::Size(element)));
        }
        let (_, condition_cost) = self.weigh(&of.loop_cond.expr);
        let (step, step_cost) = self.weigh(&of.loop_step.expr);
        self.scope.truncate(depth);
        // What each round adds, all rounds add together.
        let step = step.size();
        let grown = if step.count == 0 {
            start.size().max(Size::ONE)
        } else {
            Size {
                count: start
                    .size()
                    .count
                    .saturating_add(rounds.saturating_mul(step.count)),
                total: start
                    .size()
                    .total
                    .saturating_add(rounds.saturating_mul(step.total)),
                element: step.element,
            }
        };
        self.scope.push((&of.accu_var, Seen::Size(grown)));
        let (result, result_cost) = self.weigh(&of.result.expr);
        self.scope.truncate(depth);
        // The engine copies the element and what was collected so far in every round.
        let round = [condition_cost, step_cost, element.total, grown.total]
            .into_iter()
            .fold(1_u64, u64::saturating_add);
        let cost = [range_cost, start_cost, rounds.saturating_mul(round), result_cost]
            .into_iter()
            .fold(1_u64, u64::saturating_add);
        (result, cost)
    }
}

fn index<'a>(call: &CallExpr, list: Seen<'a>, cost: u64) -> (Seen<'a>, u64) {
    let field = match call.args.get(1).map(|key| &key.expr) {
        Some(Expr::Literal(LiteralValue::String(name))) => list.field(name.inner()),
        _ => Seen::Size(list.element()),
    };
    (field, cost.saturating_add(field.size().total))
}

fn range(call: &CallExpr) -> Size {
    match call.args.first().map(|end| &end.expr) {
        Some(Expr::Literal(LiteralValue::Int(end))) => {
            let end = u64::try_from(*end.inner()).unwrap_or_default();
            Size {
                count: end,
                total: end.saturating_add(1),
                element: 1,
            }
        }
        _ => TOO_MUCH,
    }
}

fn is_plain_format(call: &CallExpr) -> bool {
    let pattern = call.target.as_deref().map(|target| &target.expr);
    matches!(pattern, Some(Expr::Literal(LiteralValue::String(text))) if !text.inner().contains("%."))
}
