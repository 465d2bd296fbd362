//! Field selectors: the text form of `?fieldSelector=`.

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's dotted path, such as `metadata.name`.
    pub field: String,
    /// The value compared with.
    pub value: String,
    /// True for `!=`.
    pub negated: bool,
}

/// A conjunction of requirements on fields. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses `a.b=c,d!=e`; a backslash escapes `,`, `=` and itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut terms = split_terms(text);
        // Of two that ask for one name each, the first counts; the real server sorts them.
        terms.sort_unstable();
        for term in terms {
            if term.is_empty() {
                continue;
            }
            let (field, negated, value) = split_term(term)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            let value = unescape(value)?;
            // Nothing is nothing.
            if field.is_empty() && value.is_empty() {
                continue;
            }
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                value,
                negated,
            });
        }
        Ok(Self { requirements })
    }

    /// The requirements, sorted.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field must have.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let mut exact = self
            .requirements
            .iter()
            .filter(|requirement| !requirement.negated);
        exact
            .find(|requirement| requirement.field == field)
            .map(|requirement| requirement.value.as_str())
    }

    /// Whether the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether every requirement holds; `get` reads a field, absent fields compare as empty text.
    pub fn matches(&self, get: impl Fn(&str) -> Option<String>) -> bool {
        self.requirements
            .iter()
            .all(|r| (get(&r.field).unwrap_or_default() == r.value) != r.negated)
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(text.get(start..i).unwrap_or_default());
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(text.get(start..).unwrap_or_default());
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(i, _)| {
        let (field, rest) = term.split_at_checked(i)?;
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((field, negated, value));
            }
        }
        None
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{next}"
                    ));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {c}"
                ));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}
