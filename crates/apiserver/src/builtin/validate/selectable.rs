//! Fields of custom resources that selectors and rules name by their places.

use serde_json::Value;

use super::{list, text};
use crate::schema::{Cause, child, index};

/// A place in a schema, such as `.spec.colors['dark blue']`: the names on the way, and what is there.
pub(super) struct Found<'a> {
    pub(super) names: Vec<String>,
    pub(super) schema: &'a Value,
}

/// Finds the place, or says what is wrong with its name.
pub(super) fn find<'a>(path: &str, schema: &'a Value, brackets: bool) -> Result<Found<'a>, String> {
    const END: &str = "unexpected end of JSON path";
    let mut found = Found {
        names: Vec::new(),
        schema,
    };
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        match token {
            "." => found.step(tokens.next().ok_or(END)?)?,
            "[" if !brackets => return Err("array notation is not allowed".into()),
            "[" => {
                let quoted = tokens.next().ok_or(END)?;
                let name = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let name = name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                found.step(&unescaped(name)?)?;
                match tokens.next().ok_or(END)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

impl Found<'_> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        const NOWHERE: &str = "does not refer to a valid field";
        let properties = self.schema.get("properties").and_then(Value::as_object);
        self.schema = match properties.filter(|properties| !properties.is_empty()) {
            Some(properties) => properties.get(name).ok_or(NOWHERE)?,
            None => self
                .schema
                .get("additionalProperties")
                .filter(|others| !others.is_null())
                .ok_or(NOWHERE)?,
        };
        self.names.push(name.to_owned());
        Ok(())
    }
}

/// Delimiters, texts in quotes and what is between them.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = if first == '\'' {
            quoted(rest)
        } else if matches!(first, '.' | '[' | ']') {
            1
        } else {
            rest.find(['.', '[', ']']).unwrap_or(rest.len())
        };
        let (token, tail) = rest.split_at(end);
        tokens.push(token);
        rest = tail;
    }
    tokens
}

/// Where a text in quotes ends.
fn quoted(text: &str) -> usize {
    let mut before = '\'';
    for (i, c) in text.char_indices().skip(1) {
        if c == '\'' && before != '\\' {
            return i + 1;
        }
        before = c;
    }
    text.len()
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        out.push(match letters.next() {
            Some('\\') => '\\',
            Some('\'') => '\'',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('v') => '\u{b}',
            _ => return Err("invalid string literal: unterminated or unknown escape".into()),
        });
    }
    Ok(out)
}

/// What the versions of a definition say of the fields that selectors may name. The real server keeps in one place what
/// is equal in all versions: of schemas and of fields, either both are equal or both differ.
pub(super) fn fields(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let versions = list(new, "/spec/versions");
    let of = |version: &Value| list(version, "/selectableFields").to_vec();
    let same_schema = is_same(versions, |version| version.get("schema").cloned());
    let same_fields = is_same(versions, of);
    let old = old.map(|old| list(old, "/spec/versions")).unwrap_or_default();
    for (i, version) in versions.iter().enumerate() {
        let named = of(version);
        if named.is_empty() || (same_fields && i > 0) {
            continue;
        }
        let path = if same_fields {
            "spec.selectableFields".to_owned()
        } else {
            child(&index("spec.versions", i), "selectableFields")
        };
        if same_schema != same_fields {
            let detail = if same_fields {
                "may only be set when validations.schema is included"
            } else {
                "may only be set when `version.schema.openAPIV3Schema` is not included"
            };
            causes.push(Cause::invalid(path, &"".into(), detail));
            continue;
        }
        let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        let name = text(version, "/name");
        let earlier = old.iter().find(|version| text(version, "/name") == name);
        let unchanged = earlier.is_some_and(|earlier| of(earlier) == named);
        causes.extend(of_schema(&named, schema, &path, unchanged));
    }
}

fn is_same<T: PartialEq>(versions: &[Value], of: impl Fn(&Value) -> T) -> bool {
    let mut all = versions.iter().map(of);
    let first = all.next();
    all.all(|one| Some(one) == first)
}

fn of_schema(fields: &[Value], schema: &Value, path: &str, unchanged: bool) -> Vec<Cause> {
    const MOST: i64 = 8;
    let mut causes = Vec::new();
    let mut seen: Vec<Vec<String>> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let (given, at) = (text(field, "/jsonPath"), child(&index(path, i), "jsonPath"));
        if given.is_empty() {
            causes.push(Cause::required(at, ""));
            continue;
        }
        let wrong = |detail: &str| Cause::invalid(at.as_str(), &given.into(), detail);
        let found = match find(given, schema, false) {
            Ok(found) => found,
            Err(why) => {
                causes.push(wrong(&format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.names.first().is_some_and(|name| name == "metadata") {
            causes.push(wrong("must not point to fields in metadata"));
        }
        if !matches!(text(found.schema, "/type"), "string" | "boolean" | "integer") {
            causes.push(wrong(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ));
        }
        if seen.contains(&found.names) {
            causes.push(Cause::duplicate(at, &given.into()));
        } else {
            seen.push(found.names);
        }
    }
    let count = i64::try_from(seen.len()).unwrap_or(i64::MAX);
    if count > MOST && !unchanged {
        causes.push(Cause::too_many(path, count, MOST));
    }
    causes
}
