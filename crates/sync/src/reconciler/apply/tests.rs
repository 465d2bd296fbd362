use kube::core::{ApiResource, GroupVersionKind, Status};
use serde_json::json;
use writ_controller::Name;

use super::*;

fn id(kind: &str) -> ObjectId {
    ObjectId {
        kind: kind.into(),
        name: Name::new("gone", "a"),
        ..ObjectId::default()
    }
}

fn failed(id: &ObjectId, code: u16, message: &str, details: &Value) -> Failure {
    let kind = ServedKind {
        resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", &id.kind)),
        namespaced: true,
    };
    let status = json!({
        "status": "Failure", "code": code, "message": message, "reason": "NotFound", "details": details,
    });
    let status: Status = serde_json::from_value(status).unwrap();
    failure("patch", &kind, id, &kube::Error::Api(Box::new(status)))
}

#[test]
fn missing_namespace_object_and_kind_are_different_causes() {
    let named = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
    for (code, details, expected) in [
        (404, named("namespaces", "gone"), Cause::NamespaceMissing),
        (404, named("configmaps", "a"), Cause::Refused),
        (404, json!({}), Cause::KindNotServed),
        // A terminating namespace refuses what is created in it until it is gone.
        (403, named("namespaces", "gone"), Cause::Forbidden),
        (401, json!({}), Cause::Unauthorized),
        (422, named("configmaps", "a"), Cause::Refused),
        (500, json!({}), Cause::ServerError),
    ] {
        let found = failed(&id("ConfigMap"), code, "no", &details);
        assert_eq!(found.cause, expected, "{code} {details}");
    }
}

#[test]
fn failure_names_the_missing_right() {
    let problem = failed(&id("ConfigMap"), 403, "no", &json!({})).problem;
    assert_eq!(problem.code, Code::InsufficientPermission);
    assert_eq!(
        problem.message,
        "the reconciler may not patch configmaps in namespace \"gone\" (ConfigMap gone/a): no"
    );
}

#[test]
fn failure_of_a_secret_does_not_quote_it() {
    let webhook = "admission webhook \"w\" denied the request: hunter2";
    for code in [400, 403, 404, 409, 422, 500] {
        let problem = failed(&id("Secret"), code, webhook, &json!({})).problem;
        assert!(
            !problem.message.contains("hunter2"),
            "{code}: {}",
            problem.message
        );
        let problem = failed(&id("ConfigMap"), code, webhook, &json!({})).problem;
        assert!(problem.message.contains("hunter2"), "{code}: {}", problem.message);
    }
}
