//! Pure: what may be reported of a server's words about a Secret. Admission may quote what it refuses, under any code.

use writ_controller::{Error, Name, ServedKind, error::status_code, redact::quotable};

use crate::work::model::{ApplyFailure, TargetObject};

/// Whether the words of a server about objects of this kind may hold secrets.
fn is_secret(kind: &ServedKind) -> bool {
    kind.resource.group.is_empty() && kind.resource.plural == "secrets"
}

/// Why an object could not be written.
pub fn describe_failure(failure: &ApplyFailure, target: &TargetObject) -> String {
    let message = failure.message();
    match failure {
        ApplyFailure::Server(_) | ApplyFailure::Conflict(_) if is_secret(&target.kind) => {
            match failure.code() {
                Some(code) => redact(code, &message, &target.namespace, &target.name),
                None => message,
            }
        }
        _ => message,
    }
}

/// The error of a deletion, without what it may quote of a Secret.
pub fn redact_error(kind: &ServedKind, namespace: &str, name: &str, error: Error) -> Error {
    match error {
        Error::Api { what, source } if is_secret(kind) => match status_code(&source) {
            Some(code) => {
                let message = ApplyFailure::Server(source).message();
                Error::io(what, redact(code, &message, namespace, name))
            }
            None => Error::Api { what, source },
        },
        error => error,
    }
}

/// What a server said about a Secret, if it cannot quote the Secret's content.
fn redact(code: u16, message: &str, namespace: &str, name: &str) -> String {
    let secret = Name::new(namespace, name);
    quotable(code, message, &secret).map_or_else(
        || match code {
            404 => format!("secrets {name:?} not found"),
            _ => format!(
                "the server refused the Secret with code {code}; its words are withheld, as they may hold secrets"
            ),
        },
        str::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;

    use super::*;
    use crate::work::plan;

    fn target(kind: &str, plural: &str) -> TargetObject {
        let gvk = GroupVersionKind::gvk("", "v1", kind);
        let served = ServedKind {
            resource: ApiResource::from_gvk_with_plural(&gvk, plural),
            namespaced: true,
        };
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "s", "namespace": "n"}});
        let spec = serde_json::from_value(json!({"workload": {"manifests": [object]}})).unwrap();
        let manifests = plan::manifests(&spec, &[(gvk, Ok(Some(Arc::new(served))))].into());
        manifests[0].target.clone().unwrap()
    }

    fn server_error(code: u16, message: &str) -> kube::Error {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "R"});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn message_that_may_quote_a_secret_is_withheld() {
        let (secret, map) = (target("Secret", "secrets"), target("ConfigMap", "configmaps"));
        for (code, message, is_shown) in [
            (
                403,
                r#"secrets "s" is forbidden: User "u" cannot patch resource "secrets""#,
                true,
            ),
            (
                403,
                r#"secrets "s" is forbidden: unable to create new content in namespace n because"#,
                true,
            ),
            (404, r#"namespaces "n" not found"#, true),
            (
                409,
                r#"Apply failed with 1 conflict: conflict with "x": .data.key"#,
                true,
            ),
            (
                403,
                r#"secrets "s" is forbidden: ValidatingAdmissionPolicy 'p' denied request: hunter2"#,
                false,
            ),
            (
                403,
                r#"admission webhook "w" denied the request: User "hunter2""#,
                false,
            ),
            (404, r#"admission webhook "w" denied the request: hunter2"#, false),
            (409, r#"admission webhook "w" denied the request: hunter2"#, false),
            (422, "Secret is invalid: data[key]: hunter2", false),
            (500, "hunter2", false),
        ] {
            let failure = || ApplyFailure::from(server_error(code, message));
            let shown = describe_failure(&failure(), &secret);
            assert_eq!(shown == message, is_shown, "{shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(
                describe_failure(&failure(), &map),
                message,
                "other kinds are not redacted"
            );

            let deletion = |kind: &ServedKind| {
                let error = Error::Api {
                    what: "delete n/s".into(),
                    source: Box::new(server_error(code, message)),
                };
                redact_error(kind, "n", "s", error).to_string()
            };
            let shown = deletion(&secret.kind);
            assert!(
                shown.starts_with("delete n/s: ") && !shown.contains("hunter2"),
                "{shown}"
            );
            assert_eq!(deletion(&map.kind), format!("delete n/s: {message}"));
        }
        let conflict = ApplyFailure::Conflict(r#"admission webhook "w" denied the request: hunter2"#.into());
        assert!(!describe_failure(&conflict, &secret).contains("hunter2"));
    }
}
