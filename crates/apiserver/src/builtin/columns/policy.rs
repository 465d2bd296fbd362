//! Configuration, RBAC, admission, certificates.

use jiff::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, human, integer, list, or_none, selector, size, string, text, wide};

pub(in crate::builtin) const CONFIG_MAP: &[Column] = &[
    NAME,
    text("Data", |o, _| (size(o, "/data") + size(o, "/binaryData")).into()),
    AGE,
];
pub(in crate::builtin) const SECRET: &[Column] = &[
    NAME,
    text("Type", |o, _| string(o, "/type").into()),
    text("Data", |o, _| size(o, "/data").into()),
    AGE,
];
pub(in crate::builtin) const NAMESPACE: &[Column] = &[
    NAME,
    text("Status", |o, _| string(o, "/status/phase").into()),
    AGE,
];
pub(in crate::builtin) const LEASE: &[Column] = &[
    NAME,
    text("Holder", |o, _| string(o, "/spec/holderIdentity").into()),
    AGE,
];
pub(in crate::builtin) const WEBHOOKS: &[Column] =
    &[NAME, integer("Webhooks", |o, _| size(o, "/webhooks").into()), AGE];
pub(in crate::builtin) const POLICY: &[Column] = &[
    NAME,
    integer("Validations", |o, _| size(o, "/spec/validations").into()),
    text("ParamKind", |o, _| match o.pointer("/spec/paramKind") {
        Some(kind) => format!("{}/{}", string(kind, "/apiVersion"), string(kind, "/kind")).into(),
        None => "<unset>".into(),
    }),
    AGE,
];
pub(in crate::builtin) const POLICY_BINDING: &[Column] = &[
    NAME,
    text("PolicyName", |o, _| string(o, "/spec/policyName").into()),
    text("ParamRef", |o, _| match o.pointer("/spec/paramRef") {
        Some(reference) => {
            let namespace = string(reference, "/namespace");
            let namespace = if namespace.is_empty() {
                "*".to_owned()
            } else {
                namespace
            };
            let name = string(reference, "/name");
            if name.is_empty() {
                format!("{namespace}/{}", selector(reference.get("selector"))).into()
            } else {
                format!("{namespace}/{name}").into()
            }
        }
        None => "<unset>".into(),
    }),
    AGE,
];
/// CRDs are printed by the extension server: the creation time as it is.
pub(in crate::builtin) const CRD: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        ty: "date",
        format: "",
        priority: 0,
        cell: created,
    },
];
/// Roles too are printed by the default printer.
pub(in crate::builtin) const ROLE: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        ty: "date",
        format: "",
        priority: 0,
        cell: created,
    },
];

fn role(object: &Value, _: Timestamp) -> Value {
    format!(
        "{}/{}",
        string(object, "/roleRef/kind"),
        string(object, "/roleRef/name")
    )
    .into()
}

fn subjects(object: &Value, kind: &str) -> String {
    let subjects = list(object, "/subjects")
        .iter()
        .filter(|s| string(s, "/kind") == kind);
    let names: Vec<String> = subjects
        .map(|s| match (kind, string(s, "/namespace").as_str()) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", string(s, "/name"))
            }
            _ => string(s, "/name"),
        })
        .collect();
    names.join(", ")
}

pub(in crate::builtin) const ROLE_BINDING: &[Column] = &[
    NAME,
    text("Role", role),
    AGE,
    wide(text("Users", |o, _| subjects(o, "User").into())),
    wide(text("Groups", |o, _| subjects(o, "Group").into())),
    wide(text("ServiceAccounts", |o, _| {
        subjects(o, "ServiceAccount").into()
    })),
];
pub(in crate::builtin) const CLUSTER_ROLE_BINDING: &[Column] = ROLE_BINDING;

pub(in crate::builtin) const CSR: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", |o, _| or_none(string(o, "/spec/signerName"))),
    text("Requestor", |o, _| string(o, "/spec/username").into()),
    text("RequestedDuration", |o, _| {
        match o.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
            Some(seconds) => human(seconds).into(),
            None => "<none>".into(),
        }
    }),
    text("Condition", |o, _| {
        let has = |ty: &str| {
            list(o, "/status/conditions")
                .iter()
                .any(|c| string(c, "/type") == ty)
        };
        let mut words = Vec::new();
        if has("Denied") {
            words.push("Denied");
        } else if has("Approved") {
            words.push("Approved");
        } else if !has("Failed") {
            words.push("Pending");
        }
        if has("Failed") {
            words.push("Failed");
        }
        if !string(o, "/status/certificate").is_empty() {
            words.push("Issued");
        }
        words.join(",").into()
    }),
];

/// When it was made; the beginning of time if nobody says.
fn created(object: &Value, _: Timestamp) -> Value {
    match string(object, "/metadata/creationTimestamp").as_str() {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    }
}
