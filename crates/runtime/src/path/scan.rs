//! A cursor over the characters of a path.

use serde_json::Value;

use super::{Operator, PathError};

pub(super) struct Scan<'t> {
    language: &'static str,
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    pub(super) fn new(language: &'static str, text: &'t str) -> Self {
        Self {
            language,
            text,
            at: 0,
        }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn done(&self) -> bool {
        self.rest().is_empty()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    pub(super) fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// Takes the token, if it comes next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let here = self.rest().starts_with(token);
        if here {
            self.at += token.len();
        }
        here
    }

    /// Takes the word, if it comes next and ends there.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let after = self.rest().strip_prefix(word);
        let here = after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        if here {
            self.at += word.len();
        }
        here
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<(), PathError> {
        if self.take(token) {
            return Ok(());
        }
        Err(self.problem(&format!("{token:?} is missing")))
    }

    pub(super) fn problem(&self, problem: &str) -> PathError {
        PathError {
            language: self.language,
            path: self.text.into(),
            problem: problem.into(),
            position: self.text.get(..self.at).unwrap_or_default().chars().count() + 1,
        }
    }

    /// A text between the quotes that come next.
    pub(super) fn quoted(&mut self) -> Result<String, PathError> {
        let Some(quote @ ('"' | '\'')) = self.next() else {
            return Err(self.problem("a quoted text is missing"));
        };
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(self.problem("the quoted text does not end")),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(other) => text.push(other),
                    None => return Err(self.problem("the quoted text does not end")),
                },
                Some(end) if end == quote => return Ok(text),
                Some(other) => text.push(other),
            }
        }
    }

    pub(super) fn integer(&mut self) -> Option<i64> {
        let rest = self.rest();
        let digits = rest
            .char_indices()
            .take_while(|(at, c)| c.is_ascii_digit() || (*at == 0 && *c == '-'))
            .count();
        let number = rest.get(..digits)?.parse().ok()?;
        self.at += digits;
        Some(number)
    }

    /// A text, a number, `true`, `false` or `null`.
    pub(super) fn literal(&mut self) -> Result<Value, PathError> {
        if matches!(self.peek(), Some('"' | '\'')) {
            return self.quoted().map(Value::String);
        }
        let word: String = self
            .rest()
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'))
            .collect();
        let value = serde_json::from_str(&word)
            .map_err(|_| self.problem("a text, a number, true, false or null is missing"))?;
        self.at += word.len();
        Ok(value)
    }

    pub(super) fn operator(&mut self) -> Option<Operator> {
        [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ]
        .into_iter()
        .find_map(|(token, operator)| self.take(token).then_some(operator))
    }
}
