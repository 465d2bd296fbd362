//! Conversions, which the engine has in another way than the reference implementation: `string`, `int`, `uint`, `double`,
//! `bytes`, `timestamp`.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::floats;
use super::type_values;
use crate::go_duration;

/// The engine's own are still needed for some values, so ours have other names.
const STRING: &str = "@string";
const TIMESTAMP: &str = "@timestamp";
const DURATION: &str = "@duration";
const VERSION: &str = "@semver";

/// Replaces a call; tells whether it was one to replace.
pub(super) fn lower(call: &mut CallExpr) -> bool {
    let ours = match (call.func_name.as_str(), call.args.len()) {
        ("string", 1) => STRING,
        ("timestamp", 1) => TIMESTAMP,
        ("duration", 1) => DURATION,
        ("semver", 1 | 2) => VERSION,
        _ => return false,
    };
    ours.clone_into(&mut call.func_name);
    true
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(STRING, |called: &FunctionContext<'_, '_>| {
        let value = only_argument(called)?;
        match text(&value) {
            Some(text) => text.map(|text| Cel::String(Arc::new(text))),
            None if matches!(value, Cel::Opaque(_)) => engines_own("string", value, called),
            None => Err(no_overload("string", &value)),
        }
    });
    context.add_function(
        TIMESTAMP,
        |called: &FunctionContext<'_, '_>| match only_argument(called)? {
            Cel::Int(seconds) => {
                let time = YEARS.contains(&seconds).then(|| civil(seconds, 0)).flatten();
                let text = time.map(|time| Cel::String(Arc::new(format!("{time}Z"))));
                let overflow = || ExecutionError::function_error("timestamp", "timestamp overflow");
                engines_own("timestamp", text.ok_or_else(overflow)?, called)
            }
            time @ Cel::Timestamp(_) => Ok(time),
            Cel::String(text) => {
                let strict = written_strictly(&text).ok_or_else(|| {
                    let why = "type conversion error from 'string' to 'google.protobuf.Timestamp'";
                    ExecutionError::function_error("timestamp", why)
                })?;
                engines_own("timestamp", Cel::String(Arc::new(strict)), called)
            }
            other => Err(no_overload("timestamp", &other)),
        },
    );
    context.add_function(DURATION, |called: &FunctionContext<'_, '_>| {
        match only_argument(called)? {
            duration @ Cel::Duration(_) => Ok(duration),
            Cel::String(text) => {
                let nanos = go_duration::nanoseconds(&text).map_err(|_| {
                    let why = "type conversion error from 'string' to 'google.protobuf.Duration'";
                    ExecutionError::function_error("duration", why)
                })?;
                // In parts that are read without a loss.
                let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
                let parts = format!("{sign}{}s{}ns", nanos / 1_000_000_000, nanos % 1_000_000_000);
                engines_own("duration", Cel::String(Arc::new(parts)), called)
            }
            other => Err(no_overload("duration", &other)),
        }
    });
    context.add_function(VERSION, |called: &FunctionContext<'_, '_>| version(called));
    context.add_function("int", |value: Cel| int(&value));
    context.add_function("uint", |value: Cel| uint(&value));
    context.add_function("double", |value: Cel| double(&value));
    context.add_function("bytes", |value: Cel| match &value {
        Cel::Bytes(_) => Ok(value),
        Cel::String(text) => Ok(Cel::Bytes(Arc::new(text.as_bytes().to_vec()))),
        _ => Err(no_overload("bytes", &value)),
    });
}

pub(super) fn only_argument(called: &FunctionContext<'_, '_>) -> ResolveResult {
    let argument = called.args.first().ok_or(ExecutionError::NoSuchOverload)?;
    Cel::resolve(argument, called.ptx)
}

/// Calls a function of the engine.
fn engines_own(function: &str, value: Cel, called: &FunctionContext<'_, '_>) -> ResolveResult {
    engines_own_of(function, vec![value], called)
}

fn engines_own_of(function: &str, values: Vec<Cel>, called: &FunctionContext<'_, '_>) -> ResolveResult {
    let mut inner = called.ptx.new_inner_scope();
    let mut args = Vec::new();
    for (at, value) in values.into_iter().enumerate() {
        let name = format!("@value{at}");
        inner.add_variable_from_value(name.as_str(), value);
        args.push(IdedExpr {
            id: 0,
            expr: Expr::Ident(name),
        });
    }
    let call = Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    });
    inner.resolve(&IdedExpr { id: 0, expr: call })
}

/// A version without what it was built from, which says nothing about its place among others.
fn version(called: &FunctionContext<'_, '_>) -> ResolveResult {
    let arguments = called
        .args
        .iter()
        .map(|argument| Cel::resolve(argument, called.ptx));
    let mut values = arguments.collect::<Result<Vec<_>, _>>()?;
    let whole = engines_own_of("semver", values.clone(), called)?;
    match values.first_mut() {
        Some(Cel::String(text)) => match text.split_once('+') {
            Some((short, _)) => *text = Arc::new(short.to_owned()),
            None => return Ok(whole),
        },
        _ => return Ok(whole),
    }
    engines_own_of("semver", values, called)
}

fn no_overload(function: &str, value: &Cel) -> ExecutionError {
    let why = format!("no such overload: {function}({})", type_values::name(value));
    ExecutionError::function_error(function, why)
}

/// A value as text; nothing if it has none.
pub(super) fn text(value: &Cel) -> Option<Result<String, ExecutionError>> {
    Some(Ok(match value {
        Cel::String(text) => text.to_string(),
        Cel::Bool(value) => value.to_string(),
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        Cel::Float(number) => short_float(*number),
        Cel::Bytes(bytes) => {
            let why = "invalid UTF-8 in bytes, cannot convert to string";
            let text = String::from_utf8(bytes.to_vec());
            return Some(text.map_err(|_| ExecutionError::function_error("string", why)));
        }
        #[expect(clippy::cast_precision_loss, reason = "seconds are a float there, too")]
        Cel::Duration(duration) => {
            let seconds = duration.num_seconds() as f64 + f64::from(duration.subsec_nanos()) / 1e9;
            format!("{seconds}s")
        }
        Cel::Timestamp(time) => {
            let offset = time.offset().local_minus_utc();
            let (seconds, nanos) = (time.timestamp(), time.timestamp_subsec_nanos());
            timestamp(seconds, nanos, offset)?
        }
        _ => return None,
    }))
}

/// The seconds of the years from 1 to 9999, which are all there are.
const YEARS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Date and time at an instant, in the middle of the world.
pub(super) fn civil(seconds: i64, nanos: u32) -> Option<jiff::civil::DateTime> {
    let since = jiff::SignedDuration::new(seconds, nanos.try_into().ok()?);
    jiff::civil::date(1970, 1, 1)
        .to_datetime(jiff::civil::Time::midnight())
        .checked_add(since)
        .ok()
}

fn timestamp(seconds: i64, nanos: u32, offset: i32) -> Option<String> {
    let local = civil(seconds + i64::from(offset), nanos)?;
    if offset == 0 {
        return Some(format!("{local}Z"));
    }
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    Some(format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60))
}

/// A time as the engine reads it, if it is written as the reference implementation wants it.
fn written_strictly(text: &str) -> Option<String> {
    let (date, time) = text.split_once('T')?;
    let leap = time
        .split(':')
        .nth(2)
        .is_some_and(|seconds| seconds.starts_with("60"));
    let sound = !leap && !date.starts_with("0000") && !text.contains(|c: char| c.is_ascii_lowercase());
    // Fractions may be written with a comma.
    sound.then(|| text.replace(',', "."))
}

/// As few digits as tell it from others, with an exponent if it is below -4 or above 5.
fn short_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&power) {
        return format!("{number}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

fn failed(from: &str, to: &str) -> ExecutionError {
    ExecutionError::function_error(to, format!("type conversion error from '{from}' to '{to}'"))
}

fn int(value: &Cel) -> ResolveResult {
    let overflow = || ExecutionError::function_error("int", "integer overflow");
    Ok(Cel::Int(match value {
        Cel::Int(number) => *number,
        Cel::UInt(number) => i64::try_from(*number).map_err(|_| overflow())?,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is in range, and its fraction is dropped"
        )]
        Cel::Float(number) if number.abs() < 9_223_372_036_854_775_807_f64 => *number as i64,
        Cel::Float(_) => return Err(overflow()),
        Cel::String(text) => text.parse().map_err(|_| failed("string", "int"))?,
        Cel::Timestamp(time) => time.timestamp(),
        Cel::Duration(duration) => duration.num_nanoseconds().ok_or_else(overflow)?,
        _ => return Err(no_overload("int", value)),
    }))
}

fn uint(value: &Cel) -> ResolveResult {
    let overflow = || ExecutionError::function_error("uint", "unsigned integer overflow");
    Ok(Cel::UInt(match value {
        Cel::UInt(number) => *number,
        Cel::Int(number) => u64::try_from(*number).map_err(|_| overflow())?,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in range, and its fraction is dropped"
        )]
        Cel::Float(number) if (0.0..18_446_744_073_709_551_615_f64).contains(number) => *number as u64,
        Cel::Float(_) => return Err(overflow()),
        Cel::String(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
            text.parse().map_err(|_| failed("string", "uint"))?
        }
        Cel::String(_) => return Err(failed("string", "uint")),
        _ => return Err(no_overload("uint", value)),
    }))
}

fn double(value: &Cel) -> ResolveResult {
    Ok(Cel::Float(match value {
        Cel::Float(number) => *number,
        #[expect(clippy::cast_precision_loss, reason = "that is what is asked for")]
        Cel::Int(number) => *number as f64,
        #[expect(clippy::cast_precision_loss, reason = "that is what is asked for")]
        Cel::UInt(number) => *number as f64,
        Cel::String(text) => floats::parse(text).ok_or_else(|| failed("string", "double"))?,
        _ => return Err(no_overload("double", value)),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression};

    #[test]
    fn texts_are_those_of_the_reference() {
        for (expression, wanted) in [
            ("string(1e6)", "1e+06"),
            ("string(100000.0)", "100000"),
            ("string(123456789.123)", "1.23456789123e+08"),
            ("string(0.00001)", "1e-05"),
            ("string(-0.0)", "-0"),
            ("string(1.0 / 0.0)", "+Inf"),
            ("string(duration('-1h1ms'))", "-3600.001s"),
            ("string(timestamp(5))", "1970-01-01T00:00:05Z"),
            (
                "string(timestamp('2020-01-01T12:00:00.5+05:30'))",
                "2020-01-01T12:00:00.5+05:30",
            ),
            ("string(duration('-1.5h0.25us'))", "-5400.00000025s"),
            ("string(true)", "true"),
            ("string(int(duration('1m')))", "60000000000"),
            ("string(ip('1.1.1.1'))", "1.1.1.1"),
        ] {
            let found = Expression::compile(expression)
                .unwrap()
                .evaluate_string(&Activation::default());
            assert_eq!(found.as_deref(), Ok(wanted), "{expression}");
        }
    }
}
