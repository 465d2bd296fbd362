use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use writ_authz::Attributes;

use super::{Admission, Authorize, Operation, ParamResource, Request, Source, User};

#[derive(Default)]
struct Objects(HashMap<String, Vec<Arc<Value>>>, Mutex<Vec<String>>);

impl Objects {
    fn with(mut self, plural: &str, object: Value) -> Self {
        self.0
            .entry(plural.to_owned())
            .or_default()
            .push(Arc::new(object));
        self
    }
}

impl Source for Objects {
    fn list(&self, _: &str, plural: &str) -> Vec<Arc<Value>> {
        self.0.get(plural).cloned().unwrap_or_default()
    }
    fn list_in(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let mut all = self.list(group, plural);
        all.retain(|o| o["metadata"]["namespace"] == namespace);
        all
    }
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.list(group, plural).into_iter().find(|o| {
            o["metadata"]["name"] == name && (namespace.is_empty() || o["metadata"]["namespace"] == namespace)
        })
    }
    fn resource(&self, _: &str, kind: &str) -> Option<ParamResource> {
        Some(ParamResource {
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: true,
            listed: true,
        })
    }
    fn versions(&self, _: &str, _: &str) -> Vec<String> {
        vec!["v1".into(), "v2".into()]
    }
    fn authorizer(&self) -> Arc<dyn Authorize> {
        Arc::new(OnlyAlice)
    }
    fn warn(&self, warning: &str) {
        self.1.lock().unwrap().push(warning.to_owned());
    }
}

/// Alice may do everything.
struct OnlyAlice;

impl Authorize for OnlyAlice {
    fn authorize(&self, user: &str, _: &[String], _: &Attributes<'_>) -> (bool, String) {
        (user == "alice", String::new())
    }
}

/// Takes what webhooks make as it is.
struct AsItIs;

impl super::Reader for AsItIs {
    fn read(&self, _: &mut Value) -> Result<(), super::Rejection> {
        Ok(())
    }

    fn same(&self, before: &Value, after: &Value) -> bool {
        before == after
    }

    fn fill(&self, _: &mut Value, _: &str) -> Result<(), super::Rejection> {
        Ok(())
    }

    fn has_exact_times(&self) -> bool {
        false
    }
}

fn request(operation: Operation) -> Request {
    Request {
        uid: "u".into(),
        operation,
        custom: false,
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        kind_group: String::new(),
        kind_version: None,
        resource: "configmaps".into(),
        subresource: String::new(),
        namespaced: true,
        namespace: "a".into(),
        name: "b".into(),
        prefix: String::new(),
        user: User {
            username: "alice".into(),
            ..User::default()
        },
        old_object: None,
        options: Value::Null,
        dry_run: false,
    }
}

fn policy(spec: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn binding(actions: &Value) -> Value {
    json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": actions}})
}

fn everything() -> Value {
    json!({"namespaceSelector": {}, "objectSelector": {}, "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]})
}

#[tokio::test]
async fn policies_deny_warn_and_take_params() {
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": everything(),
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "limit", "expression": "int(params.data.limit)"}],
        "validations": [{"expression": "size(object.data) <= variables.limit", "messageExpression": "'at most ' + string(variables.limit)", "reason": "Forbidden"}],
    });
    let mut bound = binding(&json!(["Deny", "Warn"]));
    bound["spec"]["paramRef"] =
        json!({"name": "limits", "namespace": "x", "parameterNotFoundAction": "Deny"});
    let source = Objects::default()
        .with("namespaces", json!({"metadata": {"name": "a"}}))
        .with("validatingadmissionpolicies", policy(&spec))
        .with("validatingadmissionpolicybindings", bound)
        .with(
            "configmaps",
            json!({"metadata": {"name": "limits", "namespace": "x"}, "data": {"limit": "1"}}),
        );
    let admission = Admission::new();
    let object = |data: Value| json!({"metadata": {"name": "b"}, "data": data});
    let ok = admission
        .validate(
            &source,
            &request(Operation::Create),
            Some(&object(json!({"a": "1"}))),
        )
        .await;
    assert_eq!(ok, Ok(()));
    assert!(source.1.lock().unwrap().is_empty());
    let no = admission
        .validate(
            &source,
            &request(Operation::Create),
            Some(&object(json!({"a": "1", "b": "2"}))),
        )
        .await
        .unwrap_err();
    assert_eq!((no.code, no.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        no.message,
        "configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: at most 1"
    );
    // The warning is said although the request is refused.
    assert_eq!(
        *source.1.lock().unwrap(),
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': at most 1"]
    );
}

#[tokio::test]
async fn errors_in_policies_follow_the_failure_policy() {
    for (failure_policy, allowed) in [("Fail", false), ("Ignore", true)] {
        let spec = json!({"failurePolicy": failure_policy, "matchConstraints": everything(), "validations": [{"expression": "object.nope.nope == 1"}]});
        let source = Objects::default()
            .with("validatingadmissionpolicies", policy(&spec))
            .with("validatingadmissionpolicybindings", binding(&json!(["Deny"])));
        let outcome = Admission::new()
            .validate(&source, &request(Operation::Create), Some(&json!({})))
            .await;
        assert_eq!(outcome.is_ok(), allowed, "{failure_policy}");
    }
}

#[tokio::test]
async fn webhooks_that_cannot_be_reached_follow_the_failure_policy() {
    for (failure_policy, allowed) in [("Fail", false), ("Ignore", true)] {
        let hook = json!({"name": "h.example.com", "admissionReviewVersions": ["v1"], "failurePolicy": failure_policy, "sideEffects": "None", "timeoutSeconds": 1, "namespaceSelector": {}, "objectSelector": {},
            "clientConfig": {"service": {"namespace": "x", "name": "y"}}, "rules": everything()["resourceRules"]});
        let source = Objects::default().with(
            "validatingwebhookconfigurations",
            json!({"metadata": {"name": "c"}, "webhooks": [hook]}),
        );
        let outcome = Admission::new()
            .validate(&source, &request(Operation::Create), Some(&json!({})))
            .await;
        assert_eq!(outcome.is_ok(), allowed, "{failure_policy}");
        if let Err(rejection) = outcome {
            assert_eq!(
                rejection.message,
                "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \"https://y.x.svc:443/?timeout=1s\": service \"y\" not found"
            );
        }
    }
}

#[tokio::test]
async fn rules_selectors_and_conditions_choose_the_requests() {
    let hook = |change: &Value| {
        let mut hook = json!({"name": "h", "failurePolicy": "Fail", "sideEffects": "None", "namespaceSelector": {}, "objectSelector": {},
            "clientConfig": {"service": {"namespace": "x", "name": "y"}}, "rules": everything()["resourceRules"]});
        hook.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        hook
    };
    let rule = |field: &str, value: Value| {
        let mut rule = everything()["resourceRules"][0].clone();
        rule[field] = value;
        json!({"rules": [rule]})
    };
    let table = [
        (json!({}), true),
        (rule("operations", json!(["DELETE"])), false),
        (rule("resources", json!(["configmaps/*"])), true),
        (rule("resources", json!(["*"])), true),
        (rule("resources", json!(["configmaps/status"])), false),
        (rule("apiVersions", json!(["v2"])), true),
        (rule("scope", json!("Cluster")), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), true),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "y"}}}),
            false,
        ),
        (json!({"objectSelector": {"matchLabels": {"app": "x"}}}), false),
        (
            json!({"matchConditions": [{"name": "c", "expression": "request.userInfo.username == 'bob'"}]}),
            false,
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'b'"}]}),
            true,
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "!authorizer.requestResource.check('skip').allowed()"}]}),
            false,
        ),
    ];
    for (change, called) in table {
        let source = Objects::default()
            .with(
                "namespaces",
                json!({"metadata": {"name": "a", "labels": {"team": "x"}}}),
            )
            .with(
                "mutatingwebhookconfigurations",
                json!({"metadata": {"name": "c"}, "webhooks": [hook(&change)]}),
            );
        let mut object = json!({"metadata": {"name": "b"}});
        let outcome = Admission::new()
            .mutate(&source, &request(Operation::Create), &mut object, &AsItIs)
            .await;
        assert_eq!(outcome.is_err(), called, "{change}");
    }
}
