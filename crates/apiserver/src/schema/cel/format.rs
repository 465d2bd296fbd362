//! `'%s is %d'.format([a, b])`.

use std::fmt::Write as _;
use std::sync::Arc;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::super::cause::quote;
use super::check::Scope;
use super::conversions;
use super::keyed;
use super::type_values;
use super::types::Ty;
use super::unreadable;

/// What stands for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clause {
    Text,
    Decimal,
    Fixed(usize),
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

impl Clause {
    /// Why a value of a type is refused.
    fn refusal(self, given: &str) -> String {
        let words = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {words}, was given {given}")
    }

    fn takes(self, ty: &Ty) -> bool {
        match (self, ty) {
            (_, Ty::Dyn | Ty::Free)
            | (Self::Decimal | Self::Octal | Self::Binary | Self::Hex { .. }, Ty::Int | Ty::Uint)
            | (Self::Binary, Ty::Bool)
            // Infinity can be given by its name.
            | (Self::Fixed(_) | Self::Scientific, Ty::Double | Ty::String)
            | (Self::Hex { .. }, Ty::String | Ty::Bytes) => true,
            (Self::Text, ty) => !matches!(
                ty,
                Ty::Optional(_) | Ty::Object(..) | Ty::Record(_) | Ty::Named(_)
            ),
            _ => false,
        }
    }
}

enum Piece {
    Text(char),
    Clause(Clause),
}

fn pieces(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        if next != '%' {
            pieces.push(Piece::Text(next));
            continue;
        }
        let clause = match rest.as_str().chars().next() {
            None => return Err("unexpected end of string".into()),
            Some('%') => Piece::Text('%'),
            Some(_) => {
                let (clause, after) = clause(rest.as_str())
                    .map_err(|why| format!("could not parse formatting clause: {why}"))?;
                pieces.push(Piece::Clause(clause));
                rest = after.chars();
                continue;
            }
        };
        rest.next();
        pieces.push(clause);
    }
    Ok(pieces)
}

fn clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, text) = match text.strip_prefix('.') {
        None => (6, text),
        Some(text) => precision(text).map_err(|why| format!("error while parsing precision: {why}"))?,
    };
    let mut rest = text.chars();
    let clause = match rest.next() {
        Some('s') => Clause::Text,
        Some('d') => Clause::Decimal,
        Some('f') => Clause::Fixed(precision),
        Some('e') => Clause::Scientific,
        Some('b') => Clause::Binary,
        Some('x') => Clause::Hex { upper: false },
        Some('X') => Clause::Hex { upper: true },
        Some('o') => Clause::Octal,
        other => {
            let shown = quote(&other.map(String::from).unwrap_or_default());
            return Err(format!("unrecognized formatting clause {shown}"));
        }
    };
    Ok((clause, rest.as_str()))
}

/// More digits than this no float has; they would only cost time.
const MAX_PRECISION: usize = 1100;

fn precision(text: &str) -> Result<(usize, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or("could not find end of precision specifier")?;
    let (digits, rest) = text.split_at(end);
    let refused = |why: &str| {
        format!(
            "error while converting precision to integer: strconv.Atoi: parsing {}: {why}",
            quote(digits)
        )
    };
    if digits.is_empty() {
        return Err(refused("invalid syntax"));
    }
    let precision: i64 = digits.parse().map_err(|_| refused("value out of range"))?;
    let precision = usize::try_from(precision).unwrap_or(MAX_PRECISION);
    Ok((precision.min(MAX_PRECISION), rest))
}

/// What is wrong with a format that is known, and values whose number and types are.
pub(super) fn check(format: &str, values: &[IdedExpr], scope: &Scope<'_>) -> Result<(), String> {
    let mut given = values.iter();
    let mut wanted = 0;
    for piece in pieces(format)? {
        let Piece::Clause(clause) = piece else { continue };
        let value = given
            .next()
            .ok_or_else(|| format!("index {wanted} out of range"))?;
        wanted += 1;
        fits(clause, value, scope)?;
    }
    if values.len() > wanted {
        return Err(format!(
            "too many arguments supplied to string.format (expected {wanted}, got {})",
            values.len()
        ));
    }
    Ok(())
}

fn fits(clause: Clause, value: &IdedExpr, scope: &Scope<'_>) -> Result<(), String> {
    if clause == Clause::Text {
        match &value.expr {
            Expr::List(list) => {
                return list
                    .elements
                    .iter()
                    .try_for_each(|item| fits(clause, item, scope));
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        fits(clause, &entry.key, scope)?;
                        fits(clause, &entry.value, scope)?;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
    }
    let ty = scope.type_of(value)?;
    if clause.takes(&ty) {
        Ok(())
    } else {
        Err(clause.refusal(&ty.name()))
    }
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("format", |This(format): This<Arc<String>>, values: Cel| {
        let Cel::List(values) = &values else {
            return Err(ExecutionError::NoSuchOverload);
        };
        formatted(&format, values)
            .map(|text| Cel::String(Arc::new(text)))
            .map_err(|why| ExecutionError::function_error("format", why))
    });
}

fn formatted(format: &str, values: &[Cel]) -> Result<String, String> {
    let mut text = String::new();
    let mut given = values.iter().enumerate();
    for piece in pieces(format)? {
        match piece {
            Piece::Text(c) => text.push(c),
            Piece::Clause(clause) => {
                let (_, value) = given
                    .next()
                    .ok_or_else(|| format!("index {} out of range", values.len()))?;
                text.push_str(&written(clause, value)?);
            }
        }
    }
    Ok(text)
}

fn written(clause: Clause, value: &Cel) -> Result<String, String> {
    let refused = || clause.refusal(type_values::name(value));
    let signed = |number: i64, shown: String| if number < 0 { format!("-{shown}") } else { shown };
    Ok(match (clause, value) {
        (Clause::Text, value) => return plain(value)?.ok_or_else(refused),
        (Clause::Decimal, Cel::Int(number)) => number.to_string(),
        (Clause::Decimal, Cel::UInt(number)) => number.to_string(),
        (Clause::Fixed(_) | Clause::Scientific, value) => {
            let number = float(value).ok_or_else(refused)?;
            match clause {
                _ if number.is_nan() => "NaN".into(),
                _ if number == f64::INFINITY => "∞".into(),
                _ if number == f64::NEG_INFINITY => "-∞".into(),
                Clause::Fixed(precision) => grouped(&format!("{number:.precision$}")),
                _ => scientific(number),
            }
        }
        (Clause::Binary, Cel::Int(number)) => signed(*number, format!("{:b}", number.unsigned_abs())),
        (Clause::Binary, Cel::UInt(number)) => format!("{number:b}"),
        (Clause::Binary, Cel::Bool(value)) => u8::from(*value).to_string(),
        (Clause::Octal, Cel::Int(number)) => signed(*number, format!("{:o}", number.unsigned_abs())),
        (Clause::Octal, Cel::UInt(number)) => format!("{number:o}"),
        (Clause::Hex { upper }, value) => {
            let shown = match value {
                Cel::Int(number) => signed(*number, format!("{:x}", number.unsigned_abs())),
                Cel::UInt(number) => format!("{number:x}"),
                Cel::String(text) => hex(text.as_bytes()),
                Cel::Bytes(bytes) => hex(bytes),
                _ => return Err(refused()),
            };
            if upper { shown.to_uppercase() } else { shown }
        }
        _ => return Err(refused()),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn float(value: &Cel) -> Option<f64> {
    match value {
        Cel::Float(number) => Some(*number),
        Cel::String(name) => match name.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Thousands are set apart, and nothing is no less than zero.
fn grouped(number: &str) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |n| ("-", n));
    let (whole, fraction) = number
        .split_once('.')
        .map_or((number, None), |(w, f)| (w, Some(f)));
    let zero = number.chars().all(|c| matches!(c, '0' | '.'));
    let mut text = if zero { String::new() } else { sign.to_owned() };
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Always with six digits, whatever was asked for.
fn scientific(number: f64) -> String {
    let text = format!("{:.6e}", if number == 0.0 { 0.0 } else { number });
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised: String = format!("{exponent:0>2}")
        .chars()
        .filter_map(|digit| {
            "⁰¹²³⁴⁵⁶⁷⁸⁹"
                .chars()
                .nth(usize::try_from(digit.to_digit(10)?).ok()?)
        })
        .collect();
    format!("{digits}×10{sign}{raised}")
}

/// A value by itself; nothing if it cannot be written.
fn plain(value: &Cel) -> Result<Option<String>, String> {
    if unreadable::read(value).is_err() {
        return Err("error during formatting: no formatting function for error".into());
    }
    if let Some(name) = type_values::named_by(value) {
        return Ok(Some(name.to_owned()));
    }
    Ok(match value {
        Cel::Null => Some("null".into()),
        Cel::List(_) | Cel::Map(_) => Some(inside(value)?),
        map if keyed::is(map) => Some(inside(value)?),
        value => match conversions::text(value) {
            None => None,
            Some(Ok(text)) => Some(text),
            Some(Err(why)) => return Err(super::expression::describe(&why)),
        },
    })
}

/// A value in a list or a map.
fn inside(value: &Cel) -> Result<String, String> {
    let all = |parts: Result<Vec<String>, String>| parts.map(|parts| parts.join(", "));
    let written = |value: &Cel| plain(value)?.ok_or_else(|| Clause::Text.refusal(type_values::name(value)));
    Ok(match value {
        Cel::String(text) => quote(text),
        Cel::Bytes(_) => format!("b{}", quote(&written(value)?)),
        Cel::Float(number) if number.is_finite() => format!("{number:.6}"),
        Cel::Float(_) => quote(&written(value)?),
        Cel::Duration(_) => format!("duration({})", quote(&written(value)?)),
        Cel::Timestamp(_) => format!("timestamp({})", quote(&written(value)?)),
        Cel::List(items) => format!("[{}]", all(items.iter().map(inside).collect())?),
        map if keyed::is(map) => {
            let mut keys = keyed::entries(map).into_iter().flatten();
            let odd = keys.find(|(key, _)| !keyed::plain(key)).map(|(key, _)| key);
            let kind = odd.as_ref().map_or("", |key| type_values::name(key));
            return Err(format!(
                "error during formatting: no formatting function for map key of type {kind}"
            ));
        }
        Cel::Map(map) => {
            let entry = |(key, value): (&Key, &Cel)| {
                Ok(format!("{}:{}", inside(&Cel::from(key.clone()))?, inside(value)?))
            };
            let mut entries: Vec<String> = map.map.iter().map(entry).collect::<Result<_, String>>()?;
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        value => written(value)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression};

    #[test]
    fn values_are_written_as_they_are_there() {
        for (expression, wanted) in [
            ("'%s %d%%'.format(['a', 1])", Ok("a 1%")),
            ("'%s'.format([[1.0, 2.5]])", Ok("[1.000000, 2.500000]")),
            (
                "'%s'.format([{'b': 1, 'a': '\"'}])",
                Ok("{\"a\":\"\\\"\", \"b\":1}"),
            ),
            (
                "'%s'.format([[duration('1h'), duration('1s')]])",
                Ok("[duration(\"3600s\"), duration(\"1s\")]"),
            ),
            ("'%s'.format([type(1)])", Ok("int")),
            ("'%f'.format([-1234567.5])", Ok("-1,234,567.500000")),
            ("'%.0f'.format([2.5])", Ok("2")),
            ("'%f'.format([-0.0])", Ok("0.000000")),
            ("'%.2e'.format([1052.032911275])", Ok("1.052033×10⁰³")),
            ("'%e'.format([-0.00001])", Ok("-1.000000×10⁻⁰⁵")),
            ("'%x %X'.format([-255, 'k'])", Ok("-ff 6B")),
            ("'%b'.format([-5])", Ok("-101")),
            ("'%s'.format([])", Err("index 0 out of range")),
            (
                "'%q'.format([1])",
                Err("could not parse formatting clause: unrecognized formatting clause \"q\""),
            ),
            ("'%'.format([1])", Err("unexpected end of string")),
        ] {
            let found = Expression::compile(expression)
                .unwrap()
                .evaluate_string(&Activation::default());
            let wanted = wanted.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, wanted, "{expression}");
        }
    }
}
