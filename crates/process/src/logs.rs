//! What may be logged.

/// A directive that comes after all others, whatever a person asks for: the client writes out answers that it does not
/// understand and the server's words about what it refuses, and either can hold what is in a Secret.
pub const NEVER: &str = "kube_client::client=off";

/// What is logged where nobody asks for more. A watch that is refused or interrupted is told by whoever watches, in
/// words; the library's own lines are dumps of the answer.
pub const DEFAULT: &str = "info,kube_client=off,kube_runtime=error";

/// The filter for what somebody asked for, in the syntax of `tracing`.
pub fn filter(asked: Option<&str>) -> String {
    let asked = asked.filter(|asked| !asked.trim().is_empty()).unwrap_or(DEFAULT);
    format!("{asked},{NEVER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_ask_for_what_is_never_logged() {
        assert_eq!(filter(None), format!("{DEFAULT},{NEVER}"));
        assert_eq!(filter(Some(" ")), filter(None));
        assert!(filter(Some("trace,kube_client::client=trace")).ends_with(NEVER));
    }
}
