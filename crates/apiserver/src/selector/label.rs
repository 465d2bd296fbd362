//! Label selectors: the text form of `?labelSelector=` and the object form of API fields.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::names;

/// What a requirement asks of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is there and its value is one of the set (`=`, `==`, `in`).
    In,
    /// The label is absent or its value is not in the set (`!=`, `notin`).
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label's value is a number above the given one.
    GreaterThan,
    /// The label's value is a number below the given one.
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// What is asked of it.
    pub operator: Operator,
    /// The values the operator works with.
    pub values: BTreeSet<String>,
}

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    nothing: bool,
}

impl LabelSelector {
    /// Parses the text form: `a=b,c!=d,e in (f,g),!h,i>5`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::new(text).parse().map(|requirements| Self {
            requirements,
            nothing: false,
        })
    }

    /// Reads the object form: `matchLabels` and `matchExpressions`. An absent selector matches nothing,
    /// an empty one everything, as everywhere in the API.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else {
            return Ok(Self {
                requirements: Vec::new(),
                nothing: true,
            });
        };
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value = value
                    .as_str()
                    .ok_or_else(|| format!("matchLabels[{key}] is not a string"))?;
                requirements.push(requirement(
                    key,
                    Operator::In,
                    BTreeSet::from([value.to_owned()]),
                )?);
            }
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            let operator = match expression
                .get("operator")
                .and_then(Value::as_str)
                .unwrap_or_default()
            {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("\"{other}\" is not a valid label selector operator")),
            };
            let values = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            requirements.push(requirement(key, operator, values)?);
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Whether every requirement holds for these labels.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether the selector matches every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The requirements, in the order written.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }
}

impl LabelRequirement {
    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                let limit = self.values.first().and_then(|v| number(v));
                match (value.and_then(number), limit) {
                    (Some(have), Some(limit)) if self.operator == Operator::GreaterThan => have > limit,
                    (Some(have), Some(limit)) => have < limit,
                    _ => false,
                }
            }
        }
    }
}

fn requirement(key: &str, operator: Operator, values: BTreeSet<String>) -> Result<LabelRequirement, String> {
    let problems = names::qualified_name(key);
    if !problems.is_empty() {
        return Err(format!("key: Invalid value: {key:?}: {}", problems.join("; ")));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            return Err(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into(),
            );
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            return Err(
                "values: Invalid value: values set must be empty for exists and does not exist".into(),
            );
        }
        Operator::GreaterThan | Operator::LessThan => {
            if let Some(bad) = values.iter().find(|v| v.parse::<i64>().is_err()) {
                return Err(format!(
                    "values[0]: Invalid value: {bad:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
        }
        _ => {}
    }
    for (i, value) in values.iter().enumerate() {
        let problems = names::label_value(value);
        if !problems.is_empty() {
            return Err(format!(
                "values[{i}][{key}]: Invalid value: {value:?}: {}",
                problems.join("; ")
            ));
        }
    }
    Ok(LabelRequirement {
        key: key.to_owned(),
        operator,
        values,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return out;
        }
        if let Some((symbol, tail)) = SYMBOLS
            .iter()
            .find_map(|s| rest.strip_prefix(s).map(|tail| (*s, tail)))
        {
            out.push(Token::Symbol(symbol));
            rest = tail;
            continue;
        }
        let end = rest
            .find(|c: char| " \t\r\n=!(),><".contains(c))
            .unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        out.push(Token::Word(word.to_owned()));
        rest = tail;
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    fn new(text: &str) -> Self {
        Self {
            tokens: tokens(text).into_iter().peekable(),
        }
    }

    fn peek(&mut self) -> Token {
        self.tokens.peek().cloned().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn parse(mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(
                        self.requirement()
                            .map_err(|e| format!("unable to parse requirement: {e}"))?,
                    );
                    match self.take() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let next = self.peek();
                            if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    next.text()
                                ));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other @ Token::Symbol(_) => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut first = self.take();
        let absent = first == Token::Symbol("!");
        if absent {
            first = self.take();
        }
        let Token::Word(key) = first else {
            return Err(format!("found '{}', expected: identifier", first.text()));
        };
        if absent {
            return requirement(&key, Operator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return requirement(&key, Operator::Exists, BTreeSet::new());
        }
        let token = self.take();
        match token.text() {
            "in" => {
                let values = self.values()?;
                requirement(&key, Operator::In, values)
            }
            "notin" => {
                let values = self.values()?;
                requirement(&key, Operator::NotIn, values)
            }
            "=" | "==" => self.exact(&key, Operator::In),
            "!=" => self.exact(&key, Operator::NotIn),
            ">" => self.exact(&key, Operator::GreaterThan),
            "<" => self.exact(&key, Operator::LessThan),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn exact(&mut self, key: &str, operator: Operator) -> Result<LabelRequirement, String> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => String::new(),
            Token::Word(word) => {
                self.take();
                word
            }
            other @ Token::Symbol(_) => {
                return Err(format!("found '{}', expected: identifier", other.text()));
            }
        };
        requirement(key, operator, BTreeSet::from([value]))
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.take();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        // Between no brackets there is one value, an empty one: the loop sees it so.
        let mut values = BTreeSet::new();
        loop {
            match self.peek() {
                Token::Word(word) => {
                    self.take();
                    values.insert(word);
                }
                Token::Symbol("," | ")") => {
                    values.insert(String::new());
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
            match self.take() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}
