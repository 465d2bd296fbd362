//! How deep expressions go: parser and evaluator are recursive, and a stack that overflows ends the process.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Brackets within brackets, as the parser allows them at most.
const BRACKETS: usize = 90;
/// Operators and selections, each of which may be one level.
const OPERATORS: usize = 2_000;
/// Levels of what was parsed.
const LEVELS: usize = 300;
/// What has fewer levels runs on any stack.
const SHALLOW: usize = 24;
/// Texts that are shorter cannot be deep.
const SHORT: usize = 64;
/// The stack for the others; only what is used of it becomes memory.
const STACK: usize = 128 << 20;

/// The text as the parser understands it, if it is not too deep to be parsed.
///
/// The parser takes an even number of `!` for one: pairs are left out.
pub(super) fn readable(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len());
    let (mut open, mut operators) = (0usize, 0usize);
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
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '?' | ':' | '&' | '|' | ',' => {
                operators += 1;
            }
            _ => {}
        }
        if open > BRACKETS {
            return Err(format!("expression recursion limit exceeded: {BRACKETS}"));
        }
        if operators > OPERATORS {
            return Err(format!("expression has more than {OPERATORS} operators"));
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
    let levels = deepest(expression);
    if levels > LEVELS {
        return Err(format!("expression has more than {LEVELS} levels"));
    }
    Ok(levels)
}

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
            format!("{}true{}", "(".repeat(90), ")".repeat(90)),
            format!("{}true", "!".repeat(16_000)),
            format!("{}1 == 1", "-".repeat(1_900)),
            format!("{}{} == []", "[".repeat(8000), "]".repeat(8000)),
            format!("{}true", "true ? true : ".repeat(900)),
            format!("{}true", "true ? true : ".repeat(40)),
            format!("a{} == 1", ".a".repeat(7000)),
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
