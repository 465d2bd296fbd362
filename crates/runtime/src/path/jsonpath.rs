//! kubectl's JSONPath.

use super::{DEPTH, Path, PathError, Step, Test, scan::Scan};

pub(super) fn parse(text: &str) -> Result<Path, PathError> {
    let mut scan = Scan::new("JSONPath", text);
    scan.skip_spaces();
    let braced = scan.take("{");
    scan.skip_spaces();
    scan.take("$");
    let path = steps(&mut scan, true, 0)?;
    scan.skip_spaces();
    if braced {
        scan.expect("}")?;
        scan.skip_spaces();
    }
    if !scan.done() {
        return Err(scan.problem("only one expression is understood"));
    }
    Ok(Path {
        alternatives: vec![path],
    })
}

fn steps(scan: &mut Scan<'_>, bare_key_first: bool, depth: usize) -> Result<Vec<Step>, PathError> {
    if depth > DEPTH {
        return Err(scan.problem("it is nested too deeply"));
    }
    let mut steps = Vec::new();
    if bare_key_first && scan.peek().is_some_and(starts_key) {
        steps.push(Step::Key(key(scan)?));
    }
    loop {
        if scan.take("..") {
            steps.push(Step::Descend);
            if scan.take("*") {
                steps.push(Step::Each);
            } else if scan.peek().is_some_and(starts_key) {
                steps.push(Step::Key(key(scan)?));
            } else if scan.peek() != Some('[') {
                return Err(scan.problem("a key is missing"));
            }
        } else if scan.take(".") {
            if scan.take("*") {
                steps.push(Step::Each);
            } else if scan.peek().is_some_and(starts_key) {
                steps.push(Step::Key(key(scan)?));
            } else if scan.peek() != Some('[') && !(steps.is_empty() && ends(scan)) {
                return Err(scan.problem("a key is missing"));
            }
        } else if scan.take("[") {
            steps.push(bracket(scan, depth)?);
        } else {
            return Ok(steps);
        }
    }
}

fn ends(scan: &Scan<'_>) -> bool {
    scan.peek().is_none_or(|next| next == '}' || next.is_whitespace())
}

fn starts_key(next: char) -> bool {
    !matches!(
        next,
        '.' | '['
            | ']'
            | '{'
            | '}'
            | '*'
            | '?'
            | '('
            | ')'
            | '@'
            | '\''
            | '"'
            | ','
            | '$'
            | '='
            | '!'
            | '<'
            | '>'
    ) && !next.is_whitespace()
}

fn key(scan: &mut Scan<'_>) -> Result<String, PathError> {
    let mut key = String::new();
    while let Some(next) = scan.peek() {
        if next == '\\' {
            scan.next();
            let escaped = scan
                .next()
                .ok_or_else(|| scan.problem("the path ends in a backslash"))?;
            key.push(escaped);
        } else if starts_key(next) {
            scan.next();
            key.push(next);
        } else {
            break;
        }
    }
    Ok(key)
}

fn bracket(scan: &mut Scan<'_>, depth: usize) -> Result<Step, PathError> {
    scan.skip_spaces();
    if scan.take("?(") {
        let test = test(scan, depth + 1)?;
        scan.expect(")")?;
        scan.skip_spaces();
        scan.expect("]")?;
        return Ok(Step::Filter(test));
    }
    let mut union = Vec::new();
    loop {
        scan.skip_spaces();
        union.push(element(scan)?);
        scan.skip_spaces();
        if !scan.take(",") {
            break;
        }
    }
    scan.expect("]")?;
    match <[Step; 1]>::try_from(union) {
        Ok([only]) => Ok(only),
        Err(union) => Ok(Step::Union(union)),
    }
}

fn element(scan: &mut Scan<'_>) -> Result<Step, PathError> {
    if scan.take("*") {
        return Ok(Step::Each);
    }
    if matches!(scan.peek(), Some('\'' | '"')) {
        return scan.quoted().map(Step::Key);
    }
    let from = scan.integer();
    if !scan.take(":") {
        return from
            .map(Step::Index)
            .ok_or_else(|| scan.problem("an index, a quoted key, `*` or `?(` is missing"));
    }
    let to = scan.integer();
    let step = if scan.take(":") {
        scan.integer().unwrap_or(1)
    } else {
        1
    };
    if step < 1 {
        return Err(scan.problem("the step of a range must be positive"));
    }
    Ok(Step::Slice(from, to, step))
}

fn test(scan: &mut Scan<'_>, depth: usize) -> Result<Test, PathError> {
    scan.skip_spaces();
    scan.expect("@")?;
    let path = steps(scan, false, depth)?;
    scan.skip_spaces();
    let Some(operator) = scan.operator() else {
        return Ok(Test::Exists(path));
    };
    scan.skip_spaces();
    let wanted = scan.literal()?;
    scan.skip_spaces();
    Ok(Test::Compare(path, operator, wanted))
}
