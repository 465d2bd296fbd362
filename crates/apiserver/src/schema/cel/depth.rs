//! How deep expressions go: parser and evaluator are recursive, and a stack that overflows ends the process.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};

/// Expressions within expressions, as the reference implementation allows them at most: the outermost one counts, and so
/// does what is in brackets, and after the colon of a choice. Selections, calls on values, comparisons and arithmetic
/// within each other are limited by the same number.
pub(super) const NESTED: u16 = 250;
/// Operators and selections in a row, each of which may be one level to the parser. The limit above is lower, but known
/// only when all is parsed.
const OPERATORS: usize = 5_000;
/// Levels of what was parsed: both kinds of nesting together, and some that are not counted there.
const LEVELS: usize = 600;
/// What has fewer levels runs on any stack.
const SHALLOW: usize = 24;
/// Texts that are shorter cannot be deep.
const SHORT: usize = 64;
/// The stack for the others; only what is used of it becomes memory.
const STACK: usize = 128 << 20;

/// What is within one pair of brackets so far.
#[derive(Default)]
struct Open {
    /// Choices that have come to their colon, and choices that have not.
    chosen: usize,
    choices: usize,
    /// Operators since the last thing that ends a row of them.
    row: usize,
}

/// The text as the parser understands it, if it is not too deep to be parsed.
///
/// The parser takes an even number of `!` for one: pairs are left out.
pub(super) fn readable(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len());
    let mut open = vec![Open::default()];
    let mut last = '(';
    let mut quote: Option<char> = None;
    let mut negations = 0usize;
    let mut characters = source.chars().peekable();
    while let Some(character) = characters.next() {
        if let Some(end) = quote {
            out.push(character);
            if character == '\\' {
                out.extend(characters.next());
            } else if character == end {
                quote = None;
            }
            continue;
        }
        if character == '!' && characters.peek() != Some(&'=') {
            negations += 1;
            continue;
        }
        if negations > 0 {
            if character.is_whitespace() {
                continue;
            }
            if negations % 2 == 1 {
                out.push('!');
            }
            negations = 0;
        }
        match character {
            '\'' | '"' => quote = Some(character),
            '(' | '[' | '{' => open.push(Open::default()),
            ')' | ']' | '}' if open.len() > 1 => drop(open.pop()),
            _ => {}
        }
        let optional = matches!(last, '(' | '[' | '{' | ',') || characters.peek() == Some(&'.');
        if let Some(open) = open.last_mut() {
            match character {
                '?' if !optional => (open.choices, open.row) = (open.choices + 1, 0),
                ':' if open.choices > 0 => {
                    (open.chosen, open.choices, open.row) = (open.chosen + 1, open.choices - 1, 0);
                }
                ',' => *open = Open::default(),
                '&' | '|' => open.row = 0,
                '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '[' => open.row += 1,
                _ => {}
            }
            if open.row > OPERATORS {
                return Err(format!("expression has more than {OPERATORS} operators in a row"));
            }
        }
        if !character.is_whitespace() {
            last = character;
        }
        let nested = open.iter().map(|open| 1 + open.chosen).sum::<usize>();
        if nested > usize::from(NESTED) {
            return Err(format!("expression recursion limit exceeded: {NESTED}"));
        }
        out.push(character);
    }
    if negations % 2 == 1 {
        out.push('!');
    }
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
    let levels = deepest(expression, &|_| true);
    if levels > LEVELS {
        return Err(format!("expression has more than {LEVELS} levels"));
    }
    Ok(levels)
}

/// Whether operators within each other are not too many. To be asked of what the parser gave.
pub(super) fn nested_operators(expression: &IdedExpr) -> Result<(), String> {
    let counts = |expr: &Expr| match expr {
        Expr::Select(_) | Expr::Comprehension(_) => true,
        Expr::Call(call) => call.target.is_some() || counted(&call.func_name),
        _ => false,
    };
    if deepest(expression, &counts) > usize::from(NESTED) {
        return Err(format!("expression recursion limit exceeded: {NESTED}"));
    }
    Ok(())
}

fn counted(operator: &str) -> bool {
    matches!(
        operator,
        operators::CONDITIONAL
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
            | operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::INDEX
            | operators::OPT_INDEX
            | operators::OPT_SELECT
    )
}

/// The most levels that count, one within the other.
fn deepest(expression: &IdedExpr, counts: &dyn Fn(&Expr) -> bool) -> usize {
    let deepest = |expression: &IdedExpr| deepest(expression, counts);
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
    usize::from(counts(&expression.expr)) + below.unwrap_or(0)
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
        assert_eq!(readable("'!!' != a").unwrap(), "'!!' != a");
        assert_eq!(readable("!(!!a)").unwrap(), "!(a)");
    }
}
