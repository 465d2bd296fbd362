//! Expressions as texts. The parser is given what it understands as the reference implementation does: plain
//! literals, no comments, no signs that cancel each other out.

/// A part of an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    Number(&'a str),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'a str),
    /// So many `!` or `-` in a row.
    Signs(char, usize),
    /// What is between the others: space and comments.
    Gap,
}

impl Token<'_> {
    /// As the parser is to read it; `operand` tells whether a value comes before it.
    pub(super) fn write(&self, operand: bool, out: &mut String) {
        match self {
            Token::Word(text) | Token::Number(text) | Token::Sign(text) => out.push_str(text),
            Token::Text(text) => quote(text, out),
            Token::Bytes(bytes) => {
                out.push_str("b\"");
                for byte in bytes {
                    out.push_str("\\x");
                    hex(u32::from(*byte), 2, out);
                }
                out.push('"');
            }
            // Two of them are none, whatever the value is.
            Token::Signs('!', count) => out.push_str(if count % 2 == 1 { "!" } else { "" }),
            Token::Signs(_, count) => {
                let between = usize::from(operand);
                let signs = between + (count - between) % 2;
                // Three are not one: a number has a sign of its own.
                let signs = if signs == 1 && !operand && *count > 2 {
                    3
                } else {
                    signs
                };
                // Two in a row would be none to it.
                out.push_str(["", "-", "- -", "---"].get(signs).copied().unwrap_or_default());
            }
            Token::Gap => out.push(' '),
        }
    }
}

fn hex(value: u32, digits: u32, out: &mut String) {
    let digit = |at: u32| char::from_digit(value >> (4 * at) & 15, 16);
    out.extend((0..digits).rev().filter_map(digit));
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                out.push_str("\\u");
                hex(u32::from(control), 4, out);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "&&", "||"];

/// The first part of a text, and what comes after it. Nothing at the end.
pub(super) fn first(text: &str) -> Result<Option<(Token<'_>, &str)>, String> {
    let Some(start) = text.chars().next() else {
        return Ok(None);
    };
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}');
    if space(start) {
        return Ok(Some((Token::Gap, text.trim_start_matches(space))));
    }
    if let Some(comment) = text.strip_prefix("//") {
        let end = comment.find('\n').unwrap_or(comment.len());
        return Ok(Some((Token::Gap, comment.get(end..).unwrap_or_default())));
    }
    if let Some(literal) = literal(text)? {
        return Ok(Some(literal));
    }
    let split = |at: usize| text.split_at_checked(at).unwrap_or((text, ""));
    if start.is_ascii_alphabetic() || start == '_' {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = split(end.unwrap_or(text.len()));
        return Ok(Some((Token::Word(word), rest)));
    }
    if let Some(length) = number(text) {
        let (number, rest) = split(length);
        return Ok(Some((Token::Number(number), rest)));
    }
    if PAIRS.iter().any(|pair| text.starts_with(pair)) {
        let (pair, rest) = split(2);
        return Ok(Some((Token::Sign(pair), rest)));
    }
    if matches!(start, '!' | '-') {
        return Ok(Some(signs(start, text)));
    }
    if "()[]{}.,?:+*/%<>".contains(start) {
        let (sign, rest) = split(1);
        return Ok(Some((Token::Sign(sign), rest)));
    }
    if start == '`' {
        return Err("ERROR: <input>:1:1: unsupported syntax: '`'".into());
    }
    Err(format!(
        "ERROR: <input>:1:1: Syntax error: token recognition error at: '{start}'"
    ))
}

/// A row of one sign, with what may be between them.
fn signs(sign: char, text: &str) -> (Token<'_>, &str) {
    let (mut count, mut rest) = (0, text);
    loop {
        match rest.strip_prefix(sign) {
            Some(after) if !(sign == '!' && after.starts_with('=')) => (count, rest) = (count + 1, after),
            _ => return (Token::Signs(sign, count), rest),
        }
        // What is between two of them belongs to none.
        let mut next = rest;
        while let Ok(Some((Token::Gap, after))) = first_gap(next) {
            next = after;
        }
        let more = next.starts_with(sign) && !(sign == '!' && next.starts_with("!="));
        if more {
            rest = next;
        }
    }
}

/// Space or a comment, and nothing else.
fn first_gap(text: &str) -> Result<Option<(Token<'_>, &str)>, String> {
    let gap = text.starts_with(char::is_whitespace) || text.starts_with("//");
    if gap { first(text) } else { Ok(None) }
}

/// How long the number at the beginning is.
fn number(text: &str) -> Option<usize> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_digit());
        end.unwrap_or(rest.len())
    };
    let at = |from: usize, what: &[char]| text.get(from..).is_some_and(|rest| rest.starts_with(what));
    if let Some(rest) = text.strip_prefix("0x") {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if end > 0 {
            return Some(2 + end + usize::from(at(2 + end, &['u', 'U'])));
        }
    }
    let whole = digits(0);
    let mut length = whole;
    let mut float = false;
    if at(length, &['.']) && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        float = true;
    }
    if length == 0 {
        return None;
    }
    if at(length, &['e', 'E']) {
        let signed = usize::from(at(length + 1, &['+', '-']));
        let exponent = digits(length + 1 + signed);
        if exponent > 0 {
            return Some(length + 1 + signed + exponent);
        }
    }
    Some(length + usize::from(!float && at(length, &['u', 'U'])))
}

/// The text or the bytes at the beginning.
fn literal(text: &str) -> Result<Option<(Token<'_>, &str)>, String> {
    let after = text.strip_prefix(['b', 'B']);
    let (bytes, rest) = (after.is_some(), after.unwrap_or(text));
    let after = rest.strip_prefix(['r', 'R']);
    let (raw, rest) = (after.is_some(), after.unwrap_or(rest));
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        return Ok(None);
    };
    let odd = || {
        let shown: String = text.chars().take(20).collect();
        Err(format!(
            "ERROR: <input>:1:1: Syntax error: token recognition error at: '{shown}'"
        ))
    };
    let triple = if quote == '"' { "\"\"\"" } else { "'''" };
    let long = rest.starts_with(triple);
    let end = if long {
        triple
    } else {
        triple.get(..1).unwrap_or_default()
    };
    let mut rest = rest.get(end.len()..).unwrap_or_default();
    let mut out = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(end) {
            rest = after;
            break;
        }
        let mut characters = rest.chars();
        let Some(character) = characters.next() else {
            return odd();
        };
        match character {
            '\n' | '\r' if !long => return odd(),
            // Lines end as they do elsewhere.
            '\r' => {
                let after = characters.as_str();
                rest = after.strip_prefix('\n').unwrap_or(after);
                out.push(b'\n');
            }
            '\\' if !raw => match escape(characters.as_str(), bytes) {
                Some((value, after)) => {
                    out.extend(value);
                    rest = after;
                }
                None => return odd(),
            },
            other => {
                out.extend(other.encode_utf8(&mut [0; 4]).as_bytes());
                rest = characters.as_str();
            }
        }
    }
    let token = if bytes {
        Token::Bytes(out)
    } else {
        // Of characters alone.
        Token::Text(String::from_utf8_lossy(&out).into_owned())
    };
    Ok(Some((token, rest)))
}

/// What stands after a backslash means, and what comes after that.
fn escape(text: &str, bytes: bool) -> Option<(Vec<u8>, &str)> {
    let start = text.chars().next()?;
    let (digits, radix) = match start {
        'x' | 'X' => (2, 16),
        'u' if !bytes => (4, 16),
        'U' if !bytes => (8, 16),
        '0'..='3' => (3, 8),
        _ => {
            let plain = match start {
                'a' => 7,
                'b' => 8,
                'f' => 12,
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'v' => 11,
                '"' => b'"',
                '\'' => b'\'',
                '\\' => b'\\',
                '?' => b'?',
                '`' => b'`',
                _ => return None,
            };
            return Some((vec![plain], text.get(1..)?));
        }
    };
    let from = usize::from(radix == 16);
    let written = text.get(from..from + digits)?;
    if !written.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let value = u32::from_str_radix(written, radix).ok()?;
    let rest = text.get(from + digits..)?;
    if bytes {
        return Some((vec![u8::try_from(value).ok()?], rest));
    }
    let character = char::from_u32(value)?;
    Some((character.encode_utf8(&mut [0; 4]).as_bytes().to_vec(), rest))
}
