//! The characters that YAML is written in: fewer than those of JSON, and one of them ends a line.

use std::borrow::Cow;

/// The end of a line in old terminals, and in YAML 1.1.
const NEXT_LINE: char = '\u{85}';

/// Text of YAML with the ends of its lines as any parser knows them; refuses what YAML does not have.
pub(super) fn yaml_text(body: &[u8]) -> Result<Cow<'_, str>, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("yaml parse error: {error}"))?;
    if !text.chars().all(is_allowed) {
        return Err("yaml: control characters are not allowed".into());
    }
    Ok(if text.contains(NEXT_LINE) {
        Cow::Owned(text.replace(NEXT_LINE, "\n"))
    } else {
        Cow::Borrowed(text)
    })
}

fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | NEXT_LINE | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..='\u{10ffff}')
}
