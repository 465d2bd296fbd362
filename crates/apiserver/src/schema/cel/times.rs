//! Parts of times, in any zone: `t.getHours('Europe/Berlin')`. The engine knows none but the one that a time was written in.

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::conversions;

/// The parts of a time that can be asked for.
const PARTS: [&str; 10] = [
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
];

pub(super) fn register(context: &mut Context<'_>) {
    for name in PARTS {
        context.add_function(
            name,
            move |This(value): This<Cel>, Arguments(zone): Arguments| match (&value, zone.as_slice()) {
                (Cel::Timestamp(time), []) => {
                    part(name, time.timestamp(), time.timestamp_subsec_nanos(), "UTC").map_err(failed(name))
                }
                (Cel::Timestamp(time), [Cel::String(zone)]) => {
                    part(name, time.timestamp(), time.timestamp_subsec_nanos(), zone).map_err(failed(name))
                }
                (Cel::Duration(duration), []) => match name {
                    "getHours" => Ok(duration.num_hours()),
                    "getMinutes" => Ok(duration.num_minutes()),
                    "getSeconds" => Ok(duration.num_seconds()),
                    "getMilliseconds" => Ok(duration.num_milliseconds()),
                    _ => Err(ExecutionError::NoSuchOverload),
                },
                _ => Err(ExecutionError::NoSuchOverload),
            },
        );
    }
}

fn failed(name: &str) -> impl Fn(String) -> ExecutionError {
    move |why| ExecutionError::function_error(name, why)
}

fn part(name: &str, seconds: i64, nanos: u32, zone: &str) -> Result<i64, String> {
    let shifted = seconds.saturating_add(offset(zone, seconds)?);
    let local = conversions::civil(shifted, nanos).ok_or("timestamp overflow")?;
    Ok(match name {
        "getFullYear" => local.year().into(),
        "getMonth" => i64::from(local.month()) - 1,
        "getDate" => local.day().into(),
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDayOfWeek" => local.weekday().to_sunday_zero_offset().into(),
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getHours" => local.hour().into(),
        "getMinutes" => local.minute().into(),
        "getSeconds" => local.second().into(),
        _ => i64::from(nanos / 1_000_000),
    })
}

/// How many seconds a zone is ahead: `-02:30`, or the name of a place.
fn offset(zone: &str, at: i64) -> Result<i64, String> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            text.parse::<i64>()
                .map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let minutes = if zone.starts_with('-') { -minutes } else { minutes };
        return Ok(hours
            .saturating_mul(60)
            .saturating_add(minutes)
            .saturating_mul(60));
    }
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let unknown = |_| format!("unknown time zone {zone}");
    let zone = jiff::tz::TimeZone::get(zone).map_err(unknown)?;
    let at = jiff::Timestamp::from_second(at).unwrap_or(jiff::Timestamp::MAX);
    Ok(zone.to_offset(at).seconds().into())
}
