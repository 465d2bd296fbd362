//! The part of jq that names places.

use super::{Path, PathError, Step, Test, scan::Scan};

/// How deep expressions may nest.
const DEPTH: usize = 32;

pub(super) fn parse(text: &str) -> Result<Path, PathError> {
    let mut scan = Scan::new("jq path expression", text);
    let alternatives = alternatives(&mut scan, 0)?;
    if !scan.done() {
        return Err(scan.problem("only paths, `|`, `,` and `select` are understood"));
    }
    Ok(Path { alternatives })
}

/// `pipe , pipe , ...`
fn alternatives(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    if depth > DEPTH {
        return Err(scan.problem("it is nested too deeply"));
    }
    let mut all = pipe(scan, depth)?;
    while scan.take(",") {
        all.extend(pipe(scan, depth)?);
    }
    Ok(all)
}

/// `term | term | ...`: every way through.
fn pipe(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    let mut ways = term(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take("|") {
            return Ok(ways);
        }
        let next = term(scan, depth)?;
        ways = ways
            .iter()
            .flat_map(|way| next.iter().map(move |more| [way.clone(), more.clone()].concat()))
            .collect();
    }
}

fn term(scan: &mut Scan<'_>, depth: usize) -> Result<Vec<Vec<Step>>, PathError> {
    scan.skip_spaces();
    if scan.take("(") {
        let inner = alternatives(scan, depth + 1)?;
        scan.skip_spaces();
        scan.expect(")")?;
        let suffix = suffix(scan)?;
        return Ok(inner
            .into_iter()
            .map(|way| [way, suffix.clone()].concat())
            .collect());
    }
    if scan.take("select") {
        scan.skip_spaces();
        scan.expect("(")?;
        let test = or(scan, depth + 1)?;
        scan.skip_spaces();
        scan.expect(")")?;
        return Ok(vec![[vec![Step::Select(test)], suffix(scan)?].concat()]);
    }
    if scan.take("..") {
        return Ok(vec![[vec![Step::Descend], suffix(scan)?].concat()]);
    }
    path(scan).map(|steps| vec![steps])
}

fn path(scan: &mut Scan<'_>) -> Result<Vec<Step>, PathError> {
    if scan.peek() != Some('.') {
        return Err(scan.problem("a path that begins with a dot is missing"));
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
    let step = if scan.peek() == Some('"') {
        Step::Key(scan.quoted()?)
    } else {
        let from = scan.integer();
        scan.skip_spaces();
        if scan.take(":") {
            Step::Slice(from, scan.integer(), 1)
        } else {
            Step::Index(from.ok_or_else(|| scan.problem("an index or a quoted key is missing"))?)
        }
    };
    scan.skip_spaces();
    scan.expect("]")?;
    Ok(step)
}

fn or(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    if depth > DEPTH {
        return Err(scan.problem("it is nested too deeply"));
    }
    let mut test = and(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take("or ") {
            return Ok(test);
        }
        test = Test::Or(Box::new(test), Box::new(and(scan, depth)?));
    }
}

fn and(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    let mut test = comparison(scan, depth)?;
    loop {
        scan.skip_spaces();
        if !scan.take("and ") {
            return Ok(test);
        }
        test = Test::And(Box::new(test), Box::new(comparison(scan, depth)?));
    }
}

fn comparison(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    scan.skip_spaces();
    if scan.take("(") {
        let inner = or(scan, depth + 1)?;
        scan.skip_spaces();
        scan.expect(")")?;
        return negated(scan, inner);
    }
    let steps = path(scan)?;
    scan.skip_spaces();
    let Some(operator) = scan.operator() else {
        return negated(scan, Test::Exists(steps));
    };
    scan.skip_spaces();
    let wanted = scan.literal()?;
    negated(scan, Test::Compare(steps, operator, wanted))
}

/// `| not` after a test.
fn negated(scan: &mut Scan<'_>, test: Test) -> Result<Test, PathError> {
    scan.skip_spaces();
    if !scan.rest().starts_with('|') {
        return Ok(test);
    }
    scan.expect("|")?;
    scan.skip_spaces();
    scan.expect("not")?;
    Ok(Test::Not(Box::new(test)))
}
