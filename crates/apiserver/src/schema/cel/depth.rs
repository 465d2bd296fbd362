//! How deep expressions go: parser and evaluator are recursive, and a stack that overflows ends the process.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::macros;
use super::text::{self, Token};

/// What is within each other, as the reference implementation allows it at most.
pub(super) const NESTED: u16 = 250;
/// Levels of what was parsed. The limits of the text keep it lower; this is what the stack is made for.
const LEVELS: usize = 4_000;
/// What has fewer levels runs on any stack.
const SHALLOW: usize = 24;
/// Texts that are shorter cannot be deep.
const SHORT: usize = 64;
/// The stack for the others; only what is used of it becomes memory.
const STACK: usize = 256 << 20;

/// What a pair of brackets belongs to.
enum Bracket {
    /// A value of its own: a group, a list, a map, a call of a function.
    Value,
    /// A call on a value, or a place in one, that is so deep.
    Member(usize),
}

/// What is within one pair of brackets so far: how deep its parts are.
///
/// The reference implementation counts twice. Its parser counts the rules that are open, each kind for itself: an
/// expression in brackets or after the colon of a choice is within another, and so is what stands to the right of an
/// operator. Then it walks through what was parsed, and counts choices, comparisons, arithmetic, selections and calls
/// on values together.
struct Open {
    bracket: Bracket,
    /// The open rules outside: expressions, comparisons, arithmetic.
    outside: [usize; 3],
    /// The choices that have come to their colon, and the conditions of all.
    chosen: usize,
    choices: Vec<usize>,
    /// The deepest of what is separated by commas, then by `||` and `&&`.
    items: usize,
    parts: usize,
    /// What is to the left of an operator.
    compared: Option<usize>,
    summed: Option<usize>,
    multiplied: Option<usize>,
    /// The value at the end.
    member: usize,
}

impl Open {
    fn new(bracket: Bracket, outside: [usize; 3]) -> Self {
        Self {
            bracket,
            outside,
            chosen: 0,
            choices: Vec::new(),
            items: 0,
            parts: 0,
            compared: None,
            summed: None,
            multiplied: None,
            member: 0,
        }
    }

    /// The open rules where a value is expected.
    fn rules(&self) -> [usize; 3] {
        let right = |left: Option<usize>| usize::from(left.is_some());
        let [expressions, comparisons, sums] = self.outside;
        [
            expressions + 1 + self.chosen,
            comparisons + 1 + right(self.compared),
            sums + 1 + right(self.summed) + right(self.multiplied),
        ]
    }

    fn product(&mut self) -> usize {
        let right = std::mem::take(&mut self.member);
        within(self.multiplied.take(), right)
    }

    fn sum(&mut self) -> usize {
        let right = self.product();
        within(self.summed.take(), right)
    }

    fn comparison(&mut self) -> usize {
        let right = self.sum();
        within(self.compared.take(), right)
    }

    /// Ends what `||` and `&&` join.
    fn condition(&mut self) -> usize {
        let last = self.comparison();
        std::mem::take(&mut self.parts).max(last)
    }

    /// Ends what a comma or a bracket ends.
    fn expression(&mut self) -> usize {
        let last = self.condition();
        self.chosen = 0;
        let choices = self.choices.drain(..).rev();
        choices.fold(last, |deepest, condition| 1 + deepest.max(condition))
    }
}

/// How deep an operator is with what is to its left, if it has one, and right.
fn within(left: Option<usize>, right: usize) -> usize {
    left.map_or(right, |left| 1 + left.max(right))
}

/// How deep a text is.
struct Depth {
    open: Vec<Open>,
    deepest: usize,
    /// Whether a value has just ended.
    operand: bool,
    /// The sign before.
    last: String,
}

impl Depth {
    fn new() -> Self {
        Self {
            open: vec![Open::new(Bracket::Value, [0; 3])],
            deepest: 0,
            operand: false,
            last: String::new(),
        }
    }

    fn see(&mut self, token: &Token<'_>) -> Result<(), String> {
        let depth = self.open.len();
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        let sign = match token {
            Token::Gap => return Ok(()),
            Token::Sign(sign) => *sign,
            Token::Word("in") if self.operand && self.last != "." => "in",
            _ => "",
        };
        let closes = matches!(sign, ")" | "]" | "}");
        if !closes && open.rules().into_iter().any(|rule| rule > usize::from(NESTED)) {
            return Err(format!(
                "ERROR: <input>:-1:0: expression recursion limit exceeded: {NESTED}"
            ));
        }
        let called = self.operand && !matches!(sign, "{");
        let mut operand = false;
        match sign {
            "(" | "[" | "{" => {
                let bracket = match sign {
                    // Of a function, and of a method: the latter was counted when its name was selected.
                    "(" if called => Bracket::Member(std::mem::take(&mut open.member)),
                    "[" if called => Bracket::Member(1 + std::mem::take(&mut open.member)),
                    _ => Bracket::Value,
                };
                let outside = open.rules();
                self.open.push(Open::new(bracket, outside));
            }
            ")" | "]" | "}" if depth > 1 => {
                let inside = open.expression().max(open.items);
                let whole = match open.bracket {
                    // A method is one level above what it is given, a function is none.
                    Bracket::Value | Bracket::Member(0) => inside,
                    Bracket::Member(value) => value.max(1 + inside),
                };
                self.open.pop();
                if let Some(open) = self.open.last_mut() {
                    open.member = whole;
                }
                operand = true;
            }
            "." => {
                open.member += usize::from(self.operand);
            }
            "*" | "/" | "%" => open.multiplied = Some(open.product()),
            "+" => open.summed = Some(open.sum()),
            "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" => open.compared = Some(open.comparison()),
            "&&" | "||" => open.parts = open.comparison().max(open.parts),
            "?" if self.operand && self.last != "." => {
                let condition = open.condition();
                open.choices.push(condition);
            }
            ":" if open.choices.len() > open.chosen => {
                let chosen = open.condition();
                open.chosen += 1;
                if let Some(condition) = open.choices.last_mut() {
                    *condition = chosen.max(*condition);
                }
            }
            ":" | "," => open.items = open.expression().max(open.items),
            _ => match token {
                // The first stands between two values, the others belong to the second.
                Token::Signs('-', _) if self.operand => open.summed = Some(open.sum()),
                Token::Signs(..) | Token::Sign(_) => {}
                _ => operand = true,
            },
        }
        let open = self.open.last();
        self.deepest = open.map_or(0, |open| open.member).max(self.deepest);
        self.operand = operand;
        sign.clone_into(&mut self.last);
        Ok(())
    }

    fn end(mut self) -> Result<(), String> {
        let open = std::mem::take(&mut self.open);
        let ended = open.into_iter().map(|mut open| open.expression().max(open.items));
        if ended.max().unwrap_or(0).max(self.deepest) > usize::from(NESTED) {
            return Err("ERROR: <input>:-1:0: max recursion depth exceeded".into());
        }
        Ok(())
    }
}

/// The text as the parser understands it, if it is not too deep to be parsed.
pub(super) fn readable(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len());
    let mut depth = Depth::new();
    let mut rest = source;
    while let Some((token, after)) = text::first(rest)? {
        let called = || after.trim_start().starts_with('(');
        match token {
            // To the parser this is a macro with one variable, too.
            Token::Word("existsOne") if called() => out.push_str(macros::EXISTS_ONE),
            _ => token.write(depth.operand, &mut out),
        }
        depth.see(&token)?;
        rest = after;
    }
    depth.end()?;
    Ok(out)
}

/// Runs something that parses this text. Nothing if it failed.
pub(super) fn parsing<T: Send>(source: &str, run: impl FnOnce() -> T + Send) -> Option<T> {
    if source.len() <= SHORT {
        return Some(run());
    }
    elsewhere(run)
}

/// Runs something that walks through an expression of so many levels. Nothing if it failed.
pub(super) fn walking<T: Send>(levels: usize, run: impl FnOnce() -> T + Send) -> Option<T> {
    if levels <= SHALLOW {
        return Some(run());
    }
    elsewhere(run)
}

fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, run).ok()?.join().ok()
    })
}

/// The levels of an expression, if they are not too many.
pub(super) fn levels(expression: &IdedExpr) -> Result<usize, String> {
    let levels = deepest(expression);
    if levels > LEVELS {
        return Err(format!("expression has more than {LEVELS} levels"));
    }
    Ok(levels)
}

/// The most levels, one within the other.
fn deepest(expression: &IdedExpr) -> usize {
    let below = match &expression.expr {
        Expr::Call(call) => {
            let parts = call.target.as_deref().into_iter().chain(&call.args);
            parts.map(deepest).max()
        }
        Expr::Comprehension(all) => {
            let parts = [
                &all.iter_range,
                &all.accu_init,
                &all.loop_cond,
                &all.loop_step,
                &all.result,
            ];
            parts.into_iter().map(deepest).max()
        }
        Expr::List(list) => list.elements.iter().map(deepest).max(),
        Expr::Map(map) => {
            let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some(deepest(&entry.key).max(deepest(&entry.value))),
                EntryExpr::StructField(_) => None,
            });
            entries.max()
        }
        Expr::Select(select) => Some(deepest(&select.operand)),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => None,
    };
    1 + below.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression, Scope};
    use super::*;

    /// Each of these once ended the process.
    #[test]
    fn no_expression_overflows_the_stack() {
        for source in [
            format!("{}true{}", "(".repeat(8000), ")".repeat(8000)),
            format!("{}true{}", "(".repeat(249), ")".repeat(249)),
            format!("size({}{}) == 1", "[".repeat(248), "]".repeat(248)),
            format!("{}1{} == '1'", "string(".repeat(249), ")".repeat(249)),
            format!("{}a{} == '1'", "string(".repeat(248), ".a)".repeat(248)),
            format!("{}true{}", "[1].all(x, ".repeat(249), ")".repeat(249)),
            format!("{}true", "!".repeat(16_000)),
            format!("{}1 == 1", "-".repeat(1_900)),
            format!("{}{} == []", "[".repeat(8000), "]".repeat(8000)),
            format!("{}true", "true ? true : ".repeat(900)),
            format!("{}true", "true ? true : ".repeat(40)),
            format!("a{} == 1", ".a".repeat(7000)),
            format!("a{} == 1", ".a".repeat(4900)),
            format!("a{} == 1", "[0]".repeat(4900)),
            format!("{}true", "true || ".repeat(12_000)),
            format!("size([{}1]) == 1", "1, ".repeat(30_000)),
            format!("{}1", "1 + ".repeat(4_900)),
            format!("{}1", "-".repeat(4_900)),
            format!("a{}", "(".repeat(240)),
            ")".repeat(90_000),
            "a b ".repeat(20_000),
            "[?".repeat(200),
            "? :".repeat(20_000),
            format!("a{} == 1", ".a".repeat(1900)),
            format!("a{} == 1", ".a".repeat(250)),
            format!("{}true", "true && ".repeat(900)),
            format!("{}1 == 1", "1 + ".repeat(1900)),
            format!("{}1 == 251", "1 + ".repeat(250)),
            format!("size({}x{}) == 1", "[1].map(x, ".repeat(248), ")".repeat(248)),
            format!(
                "size({}x{}) == 1",
                "[1].map(x, true, ".repeat(248),
                ")".repeat(248)
            ),
            format!(
                "size({}x{}) == 1",
                "[1].filter(x, true || ".repeat(240),
                ")".repeat(240)
            ),
            format!(
                "{}true{}",
                "!(true || true && [1].exists_one(x, ".repeat(124),
                "))".repeat(124)
            ),
            format!("{}true{}", "[true || true && !(".repeat(124), ")][0]".repeat(124)),
            format!(
                "{}a{}.hasValue()",
                "optional.of(1).optMap(x, ".repeat(240),
                ")".repeat(240)
            ),
            format!("{}a{} == 1", "cel.bind(x, 1, ".repeat(240), ")".repeat(240)),
            format!("r'\\' == ''{}", " + ''".repeat(20_000)),
            format!("// it's\n{}1", "1 + ".repeat(20_000)),
        ] {
            let Ok(expression) = Expression::compile(&source) else {
                continue;
            };
            let _ = expression.check(&Scope::new([("a", super::super::Ty::Dyn)]));
            let _ = expression.cost(&Activation::default(), 1_000_000);
            let _ = expression.evaluate(&Activation::default());
        }
    }

    #[test]
    fn an_even_number_of_negations_is_none() {
        for (source, value) in [
            ("!!true", true),
            ("!!!true", false),
            ("! ! true", true),
            ("1 != 2", true),
        ] {
            let found = Expression::compile(source)
                .unwrap()
                .evaluate_bool(&Activation::default());
            assert_eq!(found, Ok(value), "{source}");
        }
        for (source, read) in [
            ("'!!' != a", "\"!!\" != a"),
            ("!(!!a)", "!(a)"),
            ("--a", "a"),
            ("a---b", "a-b"),
            ("a - - b", "a - - b"),
            ("1 in --[a]", "1 in [a]"),
        ] {
            assert_eq!(readable(source).unwrap(), read, "{source}");
        }
    }
}
