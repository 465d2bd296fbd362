//! How expensive an expression can become at most, told without evaluating it.

use kube_cel::cel::Value as Cel;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use super::meter::{AUTHORIZER_CHECK, LIST, MAP, len};

/// How large values are: the longest list or map, and the longest text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    length: u64,
    text: u64,
}

impl Extent {
    /// The extent of a value and all that is in it.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self {
                length: 0,
                text: len(text.len()),
            },
            Value::Array(list) => Self::all(list.len(), list.iter().map(Self::of)),
            Value::Object(map) => Self::all(
                map.len(),
                map.iter().map(|(name, value)| {
                    let inside = Self::of(value);
                    Self {
                        text: inside.text.max(len(name.len())),
                        ..inside
                    }
                }),
            ),
            _ => Self::default(),
        }
    }

    /// The same of a CEL value.
    pub(crate) fn of_cel(value: &Cel) -> Self {
        match value {
            Cel::String(text) => Self {
                length: 0,
                text: len(text.len()),
            },
            Cel::List(list) => Self::all(list.len(), list.iter().map(Self::of_cel)),
            Cel::Map(map) => Self::all(map.map.len(), map.map.values().map(Self::of_cel)),
            _ => Self::default(),
        }
    }

    fn all(length: usize, parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(
            Self {
                length: len(length),
                text: 0,
            },
            Self::or,
        )
    }

    /// The larger of each.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            length: self.length.max(other.length),
            text: self.text.max(other.text),
        }
    }
}

/// How expensive an expression can become.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bound {
    nodes: u64,
    loops: u32,
    texts: u64,
    checks: u64,
}

impl Bound {
    /// Reads it off an expression.
    pub(super) fn of(expression: &IdedExpr) -> Self {
        let mut bound = Self::default();
        bound.read(expression, 0);
        bound
    }

    fn read(&mut self, expression: &IdedExpr, loops: u32) {
        self.nodes += 1;
        self.loops = self.loops.max(loops);
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                self.texts = self.texts.max(len(text.inner().len()));
            }
            Expr::Call(call) => {
                if call.func_name == "check" {
                    self.checks += 1;
                }
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.read(part, loops);
                }
            }
            Expr::Comprehension(all) => {
                for outside in [&all.iter_range, &all.accu_init, &all.result] {
                    self.read(outside, loops);
                }
                for inside in [&all.loop_cond, &all.loop_step] {
                    self.read(inside, loops + 1);
                }
            }
            Expr::List(list) => {
                self.nodes += LIST;
                for part in &list.elements {
                    self.read(part, loops);
                }
            }
            Expr::Map(map) => {
                self.nodes += MAP;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.read(&entry.key, loops);
                        self.read(&entry.value, loops);
                    }
                }
            }
            Expr::Select(select) => self.read(&select.operand, loops),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
        }
    }

    /// No evaluation with values of this extent costs more. Lists that an expression makes are no longer than what it
    /// loops over, or than itself.
    pub(crate) fn with(self, extent: Extent) -> u64 {
        let length = extent.length.max(self.nodes);
        let text = 1 + extent.text.max(self.texts);
        // The dearest functions cost a fortieth of the product of two texts.
        let step = length.saturating_add(1 + text.saturating_mul(text) / 40);
        let rounds = length.saturating_pow(self.loops);
        let walked = self.nodes.saturating_mul(rounds).saturating_mul(step);
        walked.saturating_add(
            self.checks
                .saturating_mul(rounds)
                .saturating_mul(AUTHORIZER_CHECK),
        )
    }
}
