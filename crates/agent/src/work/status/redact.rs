//! What a condition may say about a failure. Pure.

use super::{apply::Failure, plan::Target};

/// The words for a failure: a server's words about a Secret can hold what is in it, as admission may quote what it
/// refuses, under any code.
pub fn shown(failure: &Failure, target: &Target) -> String {
    let resource = &target.kind.resource;
    let is_secret = resource.group.is_empty() && resource.plural == "secrets";
    let said = failure.message();
    let code = match failure {
        Failure::Server(_) | Failure::Conflict(_) if is_secret => failure.code(),
        _ => return said,
    };
    let Some(code) = code else {
        return said;
    };
    let (namespace, name) = (&target.namespace, &target.name);
    let forbidden = format!("secrets {name:?} is forbidden: ");
    let by_authorizer = |said: &str| {
        let reason = said.strip_prefix(&forbidden).unwrap_or_default();
        reason.starts_with("User \"") || reason.starts_with("unable to create new content in namespace ")
    };
    match code {
        // The authorizer and the server's own merge name who, what and which fields, never their values.
        403 if by_authorizer(&said) => said,
        409 if said.starts_with("Apply failed with ") => said,
        404 if said == format!("namespaces {namespace:?} not found") => said,
        404 => format!("secrets {name:?} not found"),
        _ => format!(
            "the server refused the Secret with code {code}; its words are withheld, as they may hold secrets"
        ),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::work::{mapper::Kind, plan};

    fn target(kind: &str, plural: &str) -> Target {
        let gvk = GroupVersionKind::gvk("", "v1", kind);
        let served = Kind {
            resource: kube::core::ApiResource::from_gvk_with_plural(&gvk, plural),
            namespaced: true,
        };
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "s", "namespace": "n"}});
        let spec = serde_json::from_value(json!({"workload": {"manifests": [object]}})).unwrap();
        let items = plan::items(&spec, &[(gvk, Ok(Some(served.into())))].into());
        items[0].target.clone().unwrap()
    }

    fn failure(code: u16, message: &str) -> Failure {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "R"});
        kube::Error::Api(serde_json::from_value(status).unwrap()).into()
    }

    #[test]
    fn nothing_that_may_quote_a_secret_is_told() {
        let (secret, map) = (target("Secret", "secrets"), target("ConfigMap", "configmaps"));
        for (code, said, told) in [
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
            let shown_ = shown(&failure(code, said), &secret);
            assert_eq!(shown_ == said, told, "{shown_}");
            assert!(!shown_.contains("hunter2"), "{shown_}");
            // Of other kinds all is told.
            assert_eq!(shown(&failure(code, said), &map), said);
        }
        let conflict = Failure::Conflict(r#"admission webhook "w" denied the request: hunter2"#.into());
        assert!(!shown(&conflict, &secret).contains("hunter2"));
    }
}
