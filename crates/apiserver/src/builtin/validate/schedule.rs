//! When cron jobs are due: five fields, or a word for them.

use crate::go_duration;

/// What one field may be, and the words for its numbers, from its least one on.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const fn field(least: u32, most: u32, names: &'static [&'static str]) -> Field {
    Field { least, most, names }
}

const FIELDS: [Field; 5] = [
    field(0, 59, &[]),
    field(0, 23, &[]),
    field(1, 31, &[]),
    field(
        1,
        12,
        &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    ),
    field(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

const WORDS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Why a schedule cannot be read.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut spec = schedule;
    if spec.starts_with("TZ=") || spec.starts_with("CRON_TZ=") {
        let (zone, rest) = spec.split_once(' ').unwrap_or((spec, ""));
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        spec = rest.trim();
    }
    if let Some(every) = spec.strip_prefix("@every ") {
        return go_duration::nanoseconds(every)
            .map(drop)
            .map_err(|_| format!("failed to parse duration {spec}: time: invalid duration \"{every}\""));
    }
    if spec.starts_with('@') {
        let is_known = WORDS.contains(&spec);
        return is_known
            .then_some(())
            .ok_or(format!("unrecognized descriptor: {spec}"));
    }
    let parts: Vec<&str> = spec.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        let shown = parts.join(" ");
        return Err(format!(
            "expected exactly 5 fields, found {}: [{shown}]",
            parts.len()
        ));
    }
    let mut fields = parts.iter().zip(&FIELDS);
    fields.try_for_each(|(part, field)| {
        let mut ranges = part.split(',').filter(|range| !range.is_empty());
        ranges.try_for_each(|text| range(text, field))
    })
}

fn range(text: &str, field: &Field) -> Result<(), String> {
    let pieces: Vec<&str> = text.split('/').collect();
    let (whole, step) = match pieces.as_slice() {
        [whole] => (*whole, None),
        [whole, step] => (*whole, Some(*step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let ends: Vec<&str> = whole.split('-').collect();
    let (start, end) = match ends.as_slice() {
        ["*" | "?"] => (field.least, field.most),
        [one] => {
            let start = number(one, field)?;
            (start, if step.is_some() { field.most } else { start })
        }
        [first, last] => (number(first, field)?, number(last, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step.map_or(Ok(1), plain)?;
    if start < field.least {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {text}",
            field.least
        ));
    }
    if end > field.most {
        return Err(format!(
            "end of range ({end}) above maximum ({}): {text}",
            field.most
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(text: &str, field: &Field) -> Result<u32, String> {
    let named = field
        .names
        .iter()
        .position(|name| text.eq_ignore_ascii_case(name));
    let named = named.and_then(|at| u32::try_from(at).ok());
    named.map_or_else(|| plain(text), |at| Ok(field.least + at))
}

fn plain(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")
    })
}

/// Why a text names no time zone.
pub(super) fn zone_problem(zone: &str) -> Option<String> {
    if zone.is_empty() {
        return Some("timeZone must be nil or non-empty string".into());
    }
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return Some(why.into());
    }
    (!is_zone(zone)).then(|| format!("unknown time zone {zone}"))
}

/// Where there is no list of zones, every one may be.
fn is_zone(zone: &str) -> bool {
    jiff::tz::TimeZone::get(zone).is_ok() || jiff::tz::db().is_definitively_empty()
}
