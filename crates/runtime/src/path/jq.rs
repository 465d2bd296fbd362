//! The part of jq that names places.

use regex::RegexBuilder;
use serde_json::Value;

use super::{DEPTH, Path, PathError, Pattern, Step, Test, scan::Scan};

/// How many ways an expression may spell out: each `,` in each part of a `|` multiplies them.
const WAYS: usize = 1000;

/// How many steps all these ways together may have: each part of a `|` is copied behind each way to it.
const STEPS: usize = 4000;

/// How large a regular expression may become.
const PATTERN: usize = 1 << 18;

const UNDERSTOOD: &str =
    "only paths, `|`, `,`, `..`, `if`, `empty`, `getpath`, `recurse` and `select` are understood";

pub(super) fn parse(text: &str) -> Result<Path, PathError> {
    let mut scan = Scan::new("jq path expression", text);
    let alternatives = alternatives(&mut scan, 0)?;
    if !scan.done() {
        return Err(scan.problem(UNDERSTOOD));
    }
    Ok(Path { alternatives })
}

/// `commas | commas | ...`: every way through.
fn alternatives(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    if depth > DEPTH {
        return Err(scan.problem("it is nested too deeply"));
    }
    let mut ways = commas(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take("|") {
            return Ok(ways);
        }
        let next = commas(scan, depth)?;
        ways = then(scan, &ways, &next)?;
    }
}

/// `term , term , ...`, which binds closer than `|`.
fn commas(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    let mut all = term(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take(",") {
            return Ok(all);
        }
        all.extend(term(scan, depth)?);
    }
}

/// Every way of the first, and from there every way of the second.
fn then(scan: &Scan<'_>, first: &[Vec<Step>], second: &[Vec<Step>]) -> Result<Vec<Vec<Step>>, PathError> {
    if first.len() * second.len() > WAYS {
        return Err(scan.problem("it has too many alternatives"));
    }
    if steps(first) * second.len() + steps(second) * first.len() > STEPS {
        return Err(scan.problem("it has too many steps"));
    }
    let ways = first.iter().flat_map(|way| {
        second
            .iter()
            .map(move |more| [way.clone(), more.clone()].concat())
    });
    Ok(ways.collect())
}

fn steps(ways: &[Vec<Step>]) -> usize {
    ways.iter().map(Vec::len).sum()
}

fn term(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    scan.skip_spaces();
    if scan.take("(") {
        let inner = alternatives(scan, depth + 1)?;
        scan.skip_spaces();
        scan.expect(")")?;
        let suffix = [suffix(scan)?];
        return then(scan, &inner, &suffix);
    }
    if scan.take_word("select") {
        let test = in_brackets(scan, |scan| test(scan, depth + 1))?;
        return Ok(vec![[vec![Step::Select(test)], suffix(scan)?].concat()]);
    }
    if scan.take_word("if") {
        return condition(scan, depth + 1);
    }
    if scan.take_word("empty") {
        return Ok(Vec::new());
    }
    if scan.take_word("getpath") {
        let keys = in_brackets(scan, getpath)?;
        return Ok(vec![[keys, suffix(scan)?].concat()]);
    }
    if scan.take("..") || scan.take_word("recurse") {
        return Ok(vec![[vec![Step::Descend], suffix(scan)?].concat()]);
    }
    path(scan).map(|steps| vec![steps])
}

/// `( inner )`
fn in_brackets<T>(
    scan: &mut Scan<'_>,
    inner: impl FnOnce(&mut Scan<'_>) -> Result<T, PathError>,
) -> Result<T, PathError> {
    scan.skip_spaces();
    scan.expect("(")?;
    let inner = inner(scan)?;
    scan.skip_spaces();
    scan.expect(")")?;
    Ok(inner)
}

/// After `if`: the ways through `then` where the test holds, those through `else` where it does not.
fn condition(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    let test = test(scan, depth)?;
    scan.skip_spaces();
    scan.expect("then")?;
    let yes = alternatives(scan, depth)?;
    scan.skip_spaces();
    let no = if scan.take_word("elif") {
        condition(scan, depth + 1)?
    } else if scan.take_word("else") {
        let no = alternatives(scan, depth)?;
        scan.skip_spaces();
        scan.expect("end")?;
        no
    } else {
        scan.expect("end")?;
        vec![Vec::new()]
    };
    let select = |test: Test| vec![vec![Step::Select(test)]];
    let mut ways = then(scan, &select(test.clone()), &yes)?;
    ways.extend(then(scan, &select(Test::Not(Box::new(test))), &no)?);
    Ok(ways)
}

/// `["key", 0]`
fn getpath(scan: &mut Scan<'_>) -> Result<Vec<Step>, PathError> {
    scan.skip_spaces();
    scan.expect("[")?;
    let mut steps = Vec::new();
    loop {
        scan.skip_spaces();
        steps.push(selector(scan)?);
        scan.skip_spaces();
        if !scan.take(",") {
            scan.expect("]")?;
            return Ok(steps);
        }
    }
}

fn path(scan: &mut Scan<'_>) -> Result<Vec<Step>, PathError> {
    if scan.peek() != Some('.') {
        return Err(scan.problem(UNDERSTOOD));
    }
    let mut steps = suffix(scan)?;
    if steps.is_empty() {
        scan.take(".");
        steps = suffix(scan)?;
    }
    Ok(steps)
}

/// `.key`, `."key"`, `[0]`, `["key"]`, `[1:2]`, `[]` and `?`, as many as there are.
fn suffix(scan: &mut Scan<'_>) -> Result<Vec<Step>, PathError> {
    let mut steps = Vec::new();
    loop {
        let rest = scan.rest();
        let mut ahead = rest.chars();
        match (ahead.next(), ahead.next()) {
            (Some('.'), Some('"')) => {
                scan.next();
                steps.push(Step::Key(scan.quoted()?));
            }
            (Some('.'), Some(next)) if next.is_alphabetic() || next == '_' => {
                scan.next();
                let mut key = String::new();
                while let Some(next) = scan.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
                    scan.next();
                    key.push(next);
                }
                steps.push(Step::Key(key));
            }
            (Some('['), _) => {
                scan.next();
                steps.push(bracket(scan)?);
            }
            (Some('?'), _) | (Some('.'), Some('[')) => {
                scan.next();
            }
            _ => return Ok(steps),
        }
    }
}

fn bracket(scan: &mut Scan<'_>) -> Result<Step, PathError> {
    scan.skip_spaces();
    if scan.take("]") {
        return Ok(Step::Each);
    }
    let mut steps = vec![selector(scan)?];
    scan.skip_spaces();
    while scan.take(",") {
        steps.push(selector(scan)?);
        scan.skip_spaces();
    }
    scan.expect("]")?;
    Ok(match steps.pop() {
        Some(only) if steps.is_empty() => only,
        last => Step::Union(steps.into_iter().chain(last).collect()),
    })
}

/// One of `0`, `"key"` and `1:2`.
fn selector(scan: &mut Scan<'_>) -> Result<Step, PathError> {
    scan.skip_spaces();
    if scan.peek() == Some('"') {
        return Ok(Step::Key(scan.quoted()?));
    }
    let from = scan.integer();
    scan.skip_spaces();
    if scan.take(":") {
        scan.skip_spaces();
        return Ok(Step::Slice(from, scan.integer(), 1));
    }
    let index = from.ok_or_else(|| scan.problem("an index or a quoted key is missing"))?;
    Ok(Step::Index(index))
}

/// `or | or | ...`: a path and what is tested of it, or a test and `not`.
fn test(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    let mut test = or(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take("|") {
            return Ok(test);
        }
        scan.skip_spaces();
        if scan.take_word("not") {
            test = Test::Not(Box::new(test));
            continue;
        }
        let Test::Exists(steps) = test else {
            return Err(scan.problem("after a test there is nothing to test but `not`"));
        };
        test = Test::On(steps, Box::new(self::test(scan, depth + 1)?));
    }
}

fn or(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    if depth > DEPTH {
        return Err(scan.problem("it is nested too deeply"));
    }
    let mut test = and(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take_word("or") {
            return Ok(test);
        }
        test = Test::Or(Box::new(test), Box::new(and(scan, depth)?));
    }
}

fn and(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    let mut test = comparison(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take_word("and") {
            return Ok(test);
        }
        test = Test::And(Box::new(test), Box::new(comparison(scan, depth)?));
    }
}

fn comparison(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    scan.skip_spaces();
    if scan.rest().starts_with('(') {
        return in_brackets(scan, |scan| test(scan, depth + 1));
    }
    if let Some(test) = function(scan, depth)? {
        return Ok(test);
    }
    let steps = if scan.take("..") {
        [vec![Step::Descend], suffix(scan)?].concat()
    } else {
        path(scan)?
    };
    scan.skip_spaces();
    let Some(operator) = scan.operator() else {
        return Ok(Test::Exists(steps));
    };
    scan.skip_spaces();
    Ok(Test::Compare(steps, operator, scan.literal()?))
}

/// A test of the value itself, by the name of a function.
fn function(scan: &mut Scan<'_>, depth: usize) -> Result<Option<Test>, PathError> {
    for (word, make) in [
        ("startswith", Test::StartsWith as fn(String) -> Test),
        ("endswith", Test::EndsWith),
        ("contains", Test::Contains),
    ] {
        if scan.take_word(word) {
            return in_brackets(scan, text).map(make).map(Some);
        }
    }
    Ok(Some(if scan.take_word("has") {
        let key = in_brackets(scan, literal)?;
        if !key.is_string() && key.as_u64().is_none() {
            return Err(scan.problem("`has` takes a key or an index"));
        }
        Test::Has(key)
    } else if scan.take_word("test") {
        Test::Matches(in_brackets(scan, pattern)?)
    } else if scan.take_word("IN") {
        Test::OneOf(in_brackets(scan, literals)?)
    } else if scan.take_word("any") {
        Test::Any(Box::new(in_brackets(scan, |scan| test(scan, depth + 1))?))
    } else if scan.take_word("all") {
        Test::All(Box::new(in_brackets(scan, |scan| test(scan, depth + 1))?))
    } else if scan.take_word("length") {
        scan.skip_spaces();
        let operator = scan.operator();
        let operator = operator.ok_or_else(|| scan.problem("`length` is compared with a number"))?;
        Test::Length(operator, literal(scan)?)
    } else {
        return Ok(None);
    }))
}

fn literal(scan: &mut Scan<'_>) -> Result<Value, PathError> {
    scan.skip_spaces();
    scan.literal()
}

fn literals(scan: &mut Scan<'_>) -> Result<Vec<Value>, PathError> {
    let mut all = vec![literal(scan)?];
    loop {
        scan.skip_spaces();
        if !scan.take(",") {
            return Ok(all);
        }
        all.push(literal(scan)?);
    }
}

fn text(scan: &mut Scan<'_>) -> Result<String, PathError> {
    scan.skip_spaces();
    scan.quoted()
}

/// `"regex"` and, if it has any, `; "flags"`.
fn pattern(scan: &mut Scan<'_>) -> Result<Pattern, PathError> {
    let pattern = text(scan)?;
    scan.skip_spaces();
    let flags = if scan.take(";") {
        text(scan)?
    } else {
        String::new()
    };
    let mut builder = RegexBuilder::new(&pattern);
    builder.size_limit(PATTERN);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            's' => builder.dot_matches_new_line(true),
            _ => return Err(scan.problem(&format!("{flag:?} is not one of the flags i, x and s"))),
        };
    }
    let made = builder.build();
    made.map(Pattern)
        .map_err(|_| scan.problem("it is not a regular expression"))
}
