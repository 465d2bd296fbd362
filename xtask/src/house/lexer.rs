//! Splits Rust source into tokens. It knows what the checks need: comments, strings, attributes' brackets and paths.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword; a raw one without its `r#`.
    Word,
    /// `::`.
    Separator,
    /// Any other single character of punctuation.
    Punctuation(char),
    /// A string, a number, a character or a lifetime.
    Literal,
    /// A comment of either form, with its marks.
    Comment,
}

/// A piece of source.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: &'a str,
    /// The line it begins on, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Whether this is that character of punctuation.
    pub fn is(&self, character: char) -> bool {
        self.kind == Kind::Punctuation(character)
    }

    /// Whether this is that word.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    /// The line it ends on.
    pub fn last_line(&self) -> usize {
        self.line + self.text.matches('\n').count()
    }
}

/// The tokens of a file, comments included, white space left out.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut rest, mut line, mut found) = (source, 1, Vec::new());
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if first.is_whitespace() {
            (None, first.len_utf8())
        } else {
            let (kind, length) = next(rest, first);
            (Some(kind), length)
        };
        let (text, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        if let Some(kind) = kind {
            let text = text
                .strip_prefix("r#")
                .filter(|_| kind == Kind::Word)
                .unwrap_or(text);
            found.push(Token { kind, text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    found
}

/// The kind and the length in bytes of the token at the start of `text`.
fn next(text: &str, first: char) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment(text));
    }
    if let Some(length) = string(text) {
        return (Kind::Literal, length);
    }
    if first == '\'' {
        return (Kind::Literal, quote(text));
    }
    if let Some(byte) = text.strip_prefix('b').filter(|rest| rest.starts_with('\'')) {
        return (Kind::Literal, 1 + quote(byte));
    }
    if first.is_ascii_digit() {
        return (Kind::Literal, word(text));
    }
    if first == '_' || first.is_alphabetic() {
        let raw = text.strip_prefix("r#").map_or(0, |_| 2);
        return (Kind::Word, raw + word(text.get(raw..).unwrap_or_default()));
    }
    if text.starts_with("::") {
        return (Kind::Separator, 2);
    }
    (Kind::Punctuation(first), first.len_utf8())
}

/// How many bytes at the start of `text` are of one identifier or number.
fn word(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(text.len())
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a string of any form (`"…"`, `b"…"`, `c"…"`, `r#"…"#`, `br"…"`), if one begins here.
fn string(text: &str) -> Option<usize> {
    let prefix = text
        .find(|c| !matches!(c, 'b' | 'c' | 'r'))
        .filter(|length| *length <= 2)?;
    let (letters, after) = text.split_at_checked(prefix)?;
    if letters.ends_with('r') {
        let hashes = after.find(|c| c != '#')?;
        let opened = after.get(hashes..)?.strip_prefix('"')?;
        let end = format!("\"{}", after.get(..hashes)?);
        let inside = opened.find(&end).map_or(opened.len(), |at| at + end.len());
        return Some(prefix + hashes + 1 + inside);
    }
    let opened = after.strip_prefix('"')?;
    Some(prefix + 1 + closing(opened, '"'))
}

/// The length of a character or of a lifetime.
fn quote(text: &str) -> usize {
    let opened = text.get(1..).unwrap_or_default();
    let mut characters = opened.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => 1 + closing(opened, '\''),
        _ => 1 + word(opened),
    }
}

/// How many bytes there are up to and including the mark that ends a literal, escapes skipped.
fn closing(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        let all = tokens(source);
        all.iter()
            .filter(|token| token.kind == Kind::Word)
            .map(|token| token.text)
            .collect()
    }

    #[test]
    fn comments_and_strings_hold_no_words() {
        let source = r##"a /* b /* c */ d */ "e \" f" r#"g " h"# b'i' b"j" 'k' '\'' 'l x // m"##;
        assert_eq!(words(source), ["a", "x"]);
        assert_eq!(words("let r#type = r\"x\"; 1_000u64"), ["let", "type"]);
    }

    #[test]
    fn comments_keep_their_text_and_line() {
        let found = tokens("fn a() {}\n/* b\nc */ // d\n\"e\nf\" // g");
        let comments: Vec<_> = found.iter().filter(|token| token.kind == Kind::Comment).collect();
        let shown: Vec<_> = comments
            .iter()
            .map(|token| (token.line, token.last_line(), token.text))
            .collect();
        assert_eq!(shown, [(2, 3, "/* b\nc */"), (3, 3, "// d"), (5, 5, "// g")]);
    }

    #[test]
    fn paths_are_words_and_separators() {
        let kinds: Vec<_> = tokens("a::b:c").iter().map(|token| token.kind).collect();
        let word = Kind::Word;
        assert_eq!(kinds, [word, Kind::Separator, word, Kind::Punctuation(':'), word]);
    }
}
