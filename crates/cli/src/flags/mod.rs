//! Flags that several commands share, and how their values are read.

mod join;
mod webhook;

use std::time::Duration;

use anyhow::{Result, anyhow};
use writ_hub::names::{is_namespace_name, reserved};

pub use join::JoinFlags;
pub use webhook::WebhookFlags;

/// A label: `KEY=VALUE`.
pub fn label(text: &str) -> Result<(String, String)> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| anyhow!("{text:?} is not KEY=VALUE"))
}

/// A duration, written as Go does: `1h`, `90s`, `1h30m0s`.
pub fn duration(text: &str) -> Result<Duration> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|error| anyhow!("{text:?} is no duration such as 90s or 1h30m: {error}"))?;
    Duration::try_from(parsed).map_err(|_| anyhow!("{text:?} is negative"))
}

/// The name of a managed cluster, refused here where the hub would refuse it later.
pub fn cluster_name(text: &str) -> Result<String, String> {
    if !is_namespace_name(text) {
        return Err("it is a namespace on the hub too: at most 63 lower-case letters, digits and dashes, a letter or digit first and last".into());
    }
    match reserved(text) {
        Some(why) => Err(format!("no cluster can have this name: {why}")),
        None => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_in_gos_notation_is_parsed() {
        assert_eq!(duration("1h0m0s").unwrap(), Duration::from_hours(1));
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert!(duration("-1s").unwrap_err().to_string().contains("negative"));
        assert!(duration("soon").unwrap_err().to_string().contains("no duration"));
    }
}
