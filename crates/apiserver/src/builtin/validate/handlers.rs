//! How containers are asked how they are, and what is done before they end: probes and hooks.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{addresses, list, text};
use crate::schema::{Cause, child};

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const WAYS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// The probes and hooks of a container. `grace` is what its pod has to end.
pub(super) fn handlers(container: &Value, grace: Option<i64>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["postStart", "preStop"] {
        let hook = container.pointer(&format!("/lifecycle/{name}"));
        if let Some(hook) = hook.filter(|hook| hook.is_object()) {
            causes.extend(handler(hook, grace, &child(&child(path, "lifecycle"), name)));
        }
    }
    for name in PROBES {
        let Some(probe) = container.get(name).filter(|probe| probe.is_object()) else {
            continue;
        };
        let path = child(path, name);
        causes.extend(self::probe(probe, grace, &path));
        let successes = probe.get("successThreshold").unwrap_or(&Value::Null);
        if name != "readinessProbe" && successes.as_i64().is_some_and(|n| n != 1) {
            let path = child(&path, "successThreshold");
            causes.push(Cause::invalid(path, successes, "must be 1"));
        }
    }
    causes
}

/// What ends before the others begin is not asked how it is.
pub(super) fn none(container: &Value, path: &str) -> Vec<Cause> {
    let fields = ["lifecycle"].into_iter().chain(PROBES);
    let given = fields.filter(|name| container.get(name).is_some_and(Value::is_object));
    let detail = "may not be set for init containers without restartPolicy=Always";
    given
        .map(|name| Cause::forbidden(child(path, name), detail))
        .collect()
}

fn probe(probe: &Value, grace: Option<i64>, path: &str) -> Vec<Cause> {
    const RULES: Rules = &[
        ("initialDelaySeconds", Rule::NotNegative),
        ("timeoutSeconds", Rule::NotNegative),
        ("periodSeconds", Rule::NotNegative),
        ("successThreshold", Rule::NotNegative),
        ("failureThreshold", Rule::NotNegative),
    ];
    const GRACE: &str = "terminationGracePeriodSeconds";
    let mut causes = handler(probe, grace, path);
    causes.extend(check(probe, path, RULES));
    let own = probe.get(GRACE).unwrap_or(&Value::Null);
    if own.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid(child(path, GRACE), own, "must be greater than 0"));
    }
    causes
}

/// It is done in one way.
fn handler(handler: &Value, grace: Option<i64>, path: &str) -> Vec<Cause> {
    let given = |way: &&str| handler.get(*way).is_some_and(Value::is_object);
    let mut ways = WAYS.into_iter().filter(given);
    let Some(first) = ways.next() else {
        return vec![Cause::required(path, "must specify a handler type")];
    };
    let mut causes = way(
        first,
        handler.get(first).unwrap_or(&Value::Null),
        grace,
        &child(path, first),
    );
    let detail = "may not specify more than 1 handler type";
    causes.extend(ways.map(|way| Cause::forbidden(child(path, way), detail)));
    causes
}

fn way(name: &str, of: &Value, grace: Option<i64>, path: &str) -> Vec<Cause> {
    let at_port = || port(of.get("port").unwrap_or(&Value::Null), &child(path, "port"));
    match name {
        "exec" if list(of, "/command").is_empty() => vec![Cause::required(child(path, "command"), "")],
        "httpGet" => {
            let mut causes = at_port();
            causes.extend(check(of, path, &[("scheme", Rule::OneOf(&["HTTP", "HTTPS"]))]));
            causes.extend(list(of, "/httpHeaders").iter().filter_map(|header| {
                let name = text(header, "/name");
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                (name.is_empty() || !name.bytes().all(is_plain))
                    .then(|| Cause::invalid(child(path, "httpHeaders"), &name.into(), detail))
            }));
            causes
        }
        "tcpSocket" | "grpc" => at_port(),
        "sleep" => {
            let seconds = of.get("seconds").and_then(Value::as_i64).unwrap_or_default();
            let longest = grace.filter(|grace| !(0..=*grace).contains(&seconds));
            let wrong = longest.map(|grace| {
                let detail =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                Cause::invalid(path, &seconds.into(), &detail)
            });
            wrong.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// A port by its number or its name.
fn port(port: &Value, path: &str) -> Vec<Cause> {
    if let Some(name) = port.as_str() {
        return addresses::port_name(name, path);
    }
    let number = port.as_i64().unwrap_or_default();
    addresses::port(number, path).into_iter().collect()
}
