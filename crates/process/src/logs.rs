//! Filters of the log.

/// A directive that comes after all others and cannot be overridden: the client logs answers that it cannot parse and
/// messages of refusals, and either can contain data of a Secret.
pub const NEVER: &str = "kube_client::client=off";

/// The default filter. Controllers log refused and interrupted watches themselves; the lines of the library are dumps of
/// the answer.
pub const DEFAULT: &str = "info,kube_client=off,kube_runtime=error";

/// The filter for a requested one, in the syntax of `tracing`.
pub fn filter(requested: Option<&str>) -> String {
    let requested = requested
        .filter(|text| !text.trim().is_empty())
        .unwrap_or(DEFAULT);
    format!("{requested},{NEVER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_filter_cannot_override_never() {
        assert_eq!(filter(None), format!("{DEFAULT},{NEVER}"));
        assert_eq!(filter(Some(" ")), filter(None));
        assert!(filter(Some("trace,kube_client::client=trace")).ends_with(NEVER));
    }
}
