//! Ingresses, their classes, and policies of networks: what people often get wrong.

use serde_json::Value;

use super::{addresses, immutable, label_selector, list, text};
use crate::schema::{Cause, child, index, names};

const CLASS: &str = "kubernetes.io/ingress.class";

fn invalid<'a>(path: &'a str, value: &'a str) -> impl Fn(String) -> Cause + 'a {
    move |problem| Cause::invalid(path, &value.into(), &problem)
}

pub(super) fn ingress(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let rules = list(spec, "/rules");
    let mut causes = Vec::new();
    let backend = spec.get("defaultBackend").filter(|backend| backend.is_object());
    if rules.is_empty() && backend.is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        causes.push(Cause::invalid("spec", &Value::Null, detail));
    }
    if let Some(backend) = backend {
        causes.extend(self::backend(backend, "spec.defaultBackend"));
    }
    for (i, rule) in rules.iter().enumerate() {
        causes.extend(self::rule(rule, &index("spec.rules", i)));
    }
    for (i, tls) in list(spec, "/tls").iter().enumerate() {
        let path = index("spec.tls", i);
        for (j, name) in list(tls, "/hosts").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let path = index(&child(&path, "hosts"), j);
            causes.extend(host(name).into_iter().map(invalid(&path, name)));
        }
        let (name, path) = (text(tls, "/secretName"), child(&path, "secretName"));
        let problems = names::dns_subdomain(name).into_iter();
        let earlier = |old: &Value| {
            list(old, "/spec/tls")
                .iter()
                .any(|tls| text(tls, "/secretName") == name)
        };
        if !name.is_empty() && !old.is_some_and(earlier) {
            causes.extend(problems.map(invalid(&path, name)));
        }
    }
    let class = spec.get("ingressClassName").and_then(Value::as_str);
    if let Some(class) = class {
        let problems = names::dns_subdomain(class).into_iter();
        causes.extend(problems.map(invalid("spec.ingressClassName", class)));
    }
    let annotations = new.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|map| map.get(CLASS)?.as_str());
    if let (None, Some(annotation), Some(class)) = (old, annotation, class)
        && annotation != class
    {
        let detail = "must match `ingressClassName` when both are specified";
        causes.push(Cause::invalid(
            child("annotations", CLASS),
            &annotation.into(),
            detail,
        ));
    }
    causes.extend(addresses::balancer(new, old));
    causes
}

/// A name of a host, of which the first part may be left open.
fn host(name: &str) -> Vec<String> {
    if !name.contains('*') {
        return names::dns_subdomain(name);
    }
    let rest = name.strip_prefix("*.");
    if rest.is_some_and(|rest| names::dns_subdomain(rest).is_empty()) {
        return Vec::new();
    }
    vec![
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".into(),
    ]
}

fn rule(rule: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, at) = (text(rule, "/host"), child(path, "host"));
    if name.contains('*') {
        causes.extend(host(name).into_iter().map(invalid(&at, name)));
    } else if !name.is_empty() {
        causes.extend(addresses::host(name, &at));
    }
    if rule.get("http").is_some_and(Value::is_object) {
        let paths = list(rule, "/http/paths");
        let at = child(path, "http.paths");
        if paths.is_empty() {
            causes.push(Cause::required(at.as_str(), ""));
        }
        for (i, path) in paths.iter().enumerate() {
            causes.extend(self::path(path, &index(&at, i)));
        }
    }
    causes
}

fn path(path: &Value, place: &str) -> Vec<Cause> {
    let Some(kind) = path.get("pathType").and_then(Value::as_str) else {
        return vec![Cause::required(
            child(place, "pathType"),
            "pathType must be specified",
        )];
    };
    let (given, at) = (text(path, "/path"), child(place, "path"));
    let mut problems: Vec<String> = Vec::new();
    let mut causes = Vec::new();
    match kind {
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                problems.push("must be an absolute path".into());
            }
            let parts = ["//", "/./", "/../", "%2f", "%2F"].into_iter();
            let found = parts.filter(|part| given.contains(part));
            problems.extend(found.map(|part| format!("must not contain '{part}'")));
            let ends = ["/..", "/."].into_iter().filter(|end| given.ends_with(end));
            problems.extend(ends.map(|end| format!("cannot end with '{end}'")));
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                problems.push("must be an absolute path".into());
            }
        }
        other => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            causes.push(Cause::not_supported(
                child(place, "pathType"),
                &other.into(),
                &kinds,
            ));
        }
    }
    causes.extend(problems.into_iter().map(invalid(&at, given)));
    let backend = path.get("backend").unwrap_or(&Value::Null);
    causes.extend(self::backend(backend, &child(place, "backend")));
    causes
}

fn backend(backend: &Value, path: &str) -> Vec<Cause> {
    let part = |name: &str| backend.get(name).filter(|part| part.is_object());
    let wrong = |detail: &str| vec![Cause::invalid(path, &"".into(), detail)];
    match (part("resource"), part("service")) {
        (Some(_), Some(_)) => wrong("cannot set both resource and service backends"),
        (Some(resource), None) => reference(resource, &child(path, "resource")),
        (None, Some(service)) => self::service(service, path),
        (None, None) => wrong("resource or service backend is required"),
    }
}

fn service(service: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, at) = (text(service, "/name"), child(path, "service.name"));
    if name.is_empty() {
        causes.push(Cause::required(at, ""));
    } else {
        causes.extend(names::dns_label(name).into_iter().map(invalid(&at, name)));
    }
    let port = text(service, "/port/name");
    let number = service.pointer("/port/number").and_then(Value::as_i64);
    match (port, number.unwrap_or_default()) {
        ("", 0) => causes.push(Cause::required(path, "port name or number is required")),
        ("", number) => causes.extend(addresses::port(number, &child(path, "service.port.number"))),
        (name, 0) => causes.extend(addresses::port_name(name, &child(path, "service.port.name"))),
        _ => {
            let detail = "cannot set both port name & port number";
            causes.push(Cause::invalid(path, &"".into(), detail));
        }
    }
    causes
}

/// A reference to an object of any kind.
fn reference(to: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(group) = to.get("apiGroup").and_then(Value::as_str) {
        let at = child(path, "apiGroup");
        causes.extend(names::dns_subdomain(group).into_iter().map(invalid(&at, group)));
    }
    for field in ["kind", "name"] {
        let (name, at) = (text(to, &format!("/{field}")), child(path, field));
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
        } else {
            causes.extend(names::path_segment(name).into_iter().map(invalid(&at, name)));
        }
    }
    causes
}

pub(super) fn class(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(old.and_then(|old| immutable(new, old, "/spec/controller")));
    let Some(parameters) = new.pointer("/spec/parameters").filter(|p| p.is_object()) else {
        return causes;
    };
    let path = "spec.parameters";
    causes.extend(reference(parameters, path));
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    let at = child(path, "namespace");
    match (text(parameters, "/scope"), namespace) {
        ("Cluster", None) => {}
        ("Cluster", Some(_)) => {
            causes.push(Cause::forbidden(at, "`parameters.scope` is set to 'Cluster'"));
        }
        ("Namespace", None) => {
            causes.push(Cause::required(at, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(name)) => {
            causes.extend(names::dns_label(name).into_iter().map(invalid(&at, name)));
        }
        (scope, _) => causes.push(Cause::not_supported(
            child(path, "scope"),
            &scope.into(),
            &["Cluster", "Namespace"],
        )),
    }
    causes
}

pub(super) fn policy(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let known = old.map(blocks).unwrap_or_default();
    let mut causes = label_selector(spec.get("podSelector"), "spec.podSelector");
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(spec, &format!("/{direction}")).iter().enumerate() {
            let path = index(&child("spec", direction), i);
            for (j, port) in list(rule, "/ports").iter().enumerate() {
                causes.extend(self::port(port, &index(&child(&path, "ports"), j)));
            }
            for (j, peer) in list(rule, &format!("/{peers}")).iter().enumerate() {
                causes.extend(self::peer(peer, &index(&child(&path, peers), j), &known));
            }
        }
    }
    let types = list(spec, "/policyTypes");
    if types.len() > 2 {
        let shown = types.to_vec().into();
        let detail = "may not specify more than two policyTypes";
        causes.push(Cause::invalid("spec.policyTypes", &shown, detail));
        return causes;
    }
    for (i, kind) in types.iter().enumerate() {
        let kinds = ["Ingress", "Egress"];
        if !kinds.iter().any(|known| kind == known) {
            causes.push(Cause::not_supported(index("spec.policyTypes", i), kind, &kinds));
        }
    }
    causes
}

/// The blocks of addresses that a policy names: they were taken once and are taken again.
fn blocks(policy: &Value) -> Vec<&str> {
    let rules = [("/spec/ingress", "/from"), ("/spec/egress", "/to")];
    let peers = rules.iter().flat_map(|(rules, peers)| {
        let rules = list(policy, rules).iter();
        rules.flat_map(|rule| list(rule, peers))
    });
    peers
        .flat_map(|peer| {
            let except = list(peer, "/ipBlock/except").iter().filter_map(Value::as_str);
            except.chain([text(peer, "/ipBlock/cidr")])
        })
        .collect()
}

fn port(port: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let protocols = ["TCP", "UDP", "SCTP"];
    if let Some(protocol) = port.get("protocol").filter(|protocol| protocol.is_string())
        && !protocols.iter().any(|known| protocol == known)
    {
        causes.push(Cause::not_supported(
            child(path, "protocol"),
            protocol,
            &protocols,
        ));
    }
    let end = port.get("endPort").and_then(Value::as_i64);
    let (at, end_at) = (child(path, "port"), child(path, "endPort"));
    let unfit = |end: i64, detail: &str| Cause::invalid(end_at.as_str(), &end.into(), detail);
    match port.get("port").filter(|port| !port.is_null()) {
        None => {
            let detail = "may not be specified when `port` is not specified";
            causes.extend(end.map(|end| unfit(end, detail)));
        }
        Some(Value::String(name)) => {
            let detail = "may not be specified when `port` is non-numeric";
            causes.extend(end.map(|end| unfit(end, detail)));
            causes.extend(addresses::port_name(name, &at));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            causes.extend(addresses::port(number, &at));
            if let Some(end) = end {
                if end < number {
                    causes.push(unfit(number, "must be greater than or equal to `port`"));
                }
                causes.extend(addresses::port(end, &end_at));
            }
        }
    }
    causes
}

fn peer(peer: &Value, path: &str, known: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let part = |name: &str| peer.get(name).filter(|part| part.is_object());
    let mut count = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = part(name) {
            count += 1;
            causes.extend(label_selector(Some(selector), &child(path, name)));
        }
    }
    let block = part("ipBlock");
    match block {
        None if count == 0 => causes.push(Cause::required(path, "must specify a peer")),
        None => {}
        Some(block) => {
            causes.extend(self::block(block, &child(path, "ipBlock"), known));
            if count > 0 {
                let detail = "may not specify both ipBlock and another peer";
                causes.push(Cause::forbidden(path, detail));
            }
        }
    }
    causes
}

fn block(block: &Value, path: &str, known: &[&str]) -> Vec<Cause> {
    let (cidr, at) = (text(block, "/cidr"), child(path, "cidr"));
    if cidr.is_empty() {
        return vec![Cause::required(at, "")];
    }
    let check = |text: &str, at: &str| addresses::block(text, at).filter(|_| !known.contains(&text));
    let mut causes: Vec<Cause> = check(cidr, &at).into_iter().collect();
    let Some(whole) = addresses::Block::parse(cidr) else {
        return causes;
    };
    for (i, except) in list(block, "/except").iter().enumerate() {
        let except = except.as_str().unwrap_or_default();
        let at = index(&child(path, "except"), i);
        causes.extend(check(except, &at));
        if addresses::Block::parse(except).is_some_and(|part| !whole.holds(&part)) {
            let detail = "must be a strict subset of `cidr`";
            causes.push(Cause::invalid(at, &except.into(), detail));
        }
    }
    causes
}
