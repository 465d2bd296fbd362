//! What a scalar means, exactly as `kubectl` understands it.
//!
//! `kubectl` reads YAML 1.1 with rules of its own: `y` and `on` are true, `014` is twelve, `1.0` is one, `1e400` is a
//! text. A file that means one thing there and another here would be applied differently by two tools.

use base64::Engine as _;
use serde_json::{Number, Value};

/// A plain scalar without a tag.
pub fn plain(text: &str) -> Result<Value, String> {
    Ok(match resolve(text) {
        Resolved::Null => Value::Null,
        Resolved::Bool(value) => Value::Bool(value),
        Resolved::Int(value) => value.into(),
        Resolved::Float(value) => float(value)?,
        Resolved::Text => text.into(),
    })
}

/// A scalar with one of YAML's own tags.
pub fn tagged(tag: &str, text: &str) -> Result<Value, String> {
    let wrong = || Err(format!("a scalar with the tag !!{tag} is none"));
    match (tag, resolve(text)) {
        ("binary", _) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.split_ascii_whitespace().collect::<String>());
            match bytes.map(String::from_utf8) {
                Ok(Ok(text)) => Ok(text.into()),
                _ => wrong(),
            }
        }
        ("null", Resolved::Null) => Ok(Value::Null),
        ("bool", Resolved::Bool(value)) => Ok(value.into()),
        ("int", Resolved::Int(value)) => Ok(value.into()),
        #[expect(clippy::cast_precision_loss, reason = "that is what the tag asks for")]
        ("float", Resolved::Int(value)) => float(value as f64),
        ("float", Resolved::Float(value)) => float(value),
        ("null" | "bool" | "int" | "float", _) => wrong(),
        // `!!str`, `!!timestamp` and unknown tags.
        _ => Ok(text.into()),
    }
}

/// A plain scalar as the key of a map: JSON has only texts there.
pub fn key(text: &str) -> Result<String, String> {
    Ok(match resolve(text) {
        Resolved::Null => return Err("null is the key of a map".into()),
        Resolved::Bool(value) => value.to_string(),
        Resolved::Int(value) => value.to_string(),
        Resolved::Float(value) => float_key(value),
        Resolved::Text => text.to_owned(),
    })
}

#[derive(Debug, PartialEq)]
enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text,
}

fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        _ => {}
    }
    let first = text.bytes().next().unwrap_or_default();
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Resolved::Text;
    }
    let bare = text.replace('_', "");
    if let Some(value) = integer(&bare) {
        return match i64::try_from(value) {
            Ok(value) => Resolved::Int(value),
            #[expect(clippy::cast_precision_loss, reason = "kubectl loses it too")]
            Err(_) => Resolved::Float(value as f64),
        };
    }
    // Too large a number is a text.
    match bare.parse::<f64>() {
        Ok(value) if looks_like_float(&bare) && value.is_finite() => Resolved::Float(value),
        _ => Resolved::Text,
    }
}

/// A whole number as Go reads one: `0x`, `0o`, `0b`, or a leading zero for octal; no more than 64 bits.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.get(1..)?)
    } else {
        (10, lower.as_str())
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX))
        .contains(&value)
        .then_some(value)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn looks_like_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (text, None),
    };
    let number = match number.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !number.is_empty() && digits(number),
    };
    number
        && exponent.is_none_or(|exponent| {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent)
        })
}

/// As JSON holds it: a whole number has no point, so that `1.0` is what the API server will answer.
fn float(value: f64) -> Result<Value, String> {
    #[expect(clippy::cast_possible_truncation, reason = "checked before")]
    if value.fract() == 0.0 && value.abs() < 9_223_372_036_854_775_808.0 {
        return Ok((value as i64).into());
    }
    Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| format!("{value} is no number of JSON"))
}

/// The shortest form with the precision of 32 bits, and an exponent where Go writes one.
fn float_key(value: f64) -> String {
    if value.is_nan() {
        return ".nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    #[expect(clippy::cast_possible_truncation, reason = "kubectl does the same")]
    let short = value as f32;
    let scientific = format!("{short:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => short.to_string(),
    }
}
