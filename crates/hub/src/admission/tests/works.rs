//! Tables against the handlers.

use std::sync::Mutex;

use futures::FutureExt;
use serde_json::{Value, json};

use super::*;

/// Allows what was granted: user, namespace (`*` for all) and identity.
#[derive(Default)]
struct Grants {
    granted: Vec<(&'static str, &'static str, &'static str)>,
    asked: Mutex<Vec<ResourceAttributes>>,
}

impl Authorizer for Grants {
    fn allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.asked.lock().unwrap().push(attributes.clone());
        let namespace = attributes.namespace.as_deref().unwrap_or("*");
        let allowed = self.granted.iter().any(|(name, place, identity)| {
            user.username.as_deref() == Some(name)
                && (*place == "*" || *place == namespace)
                && attributes.name.as_deref() == Some(identity)
                && attributes.verb.as_deref() == Some("execute-as")
                && attributes.resource.as_deref() == Some("manifestworks")
        });
        async move { Ok(allowed) }.boxed()
    }
}

fn desk(granted: &[(&'static str, &'static str, &'static str)], nil_executor: NilExecutor) -> Arc<Desk> {
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    Arc::new(Desk {
        client: Client::try_from(config).unwrap(),
        options: AdmissionOptions {
            nil_executor,
            ..AdmissionOptions::default()
        },
        authorizer: Arc::new(Grants {
            granted: granted.to_vec(),
            ..Grants::default()
        }),
    })
}

fn request(user: &str, new: &Value, old: Option<&Value>) -> Request {
    let object = |spec: &Value| {
        json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": "w", "namespace": "cluster1"}, "spec": spec})
    };
    serde_json::from_value(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "uid": "u", "name": "w", "namespace": "cluster1",
        "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "kind": {"group": "", "version": "", "kind": ""}, "resource": {"group": "", "version": "", "resource": ""},
        "userInfo": {"username": user, "groups": ["g"], "extra": {"k": ["v"]}},
        "object": object(new), "oldObject": old.map(object), "dryRun": false,
    }))
    .unwrap()
}

fn spec(executor: Option<&str>, data: &str) -> Value {
    let mut spec = json!({"workload": {"manifests": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": {"k": data}}]}});
    if let Some(name) = executor {
        spec["executor"] = json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": name}}});
    }
    spec
}

async fn review(handler: &Handler, desk: &Arc<Desk>, request: Request) -> Decision {
    (handler.review)(desk.clone(), request).await.unwrap()
}

const A: &str = "system:serviceaccount:ns:a";

#[tokio::test]
async fn every_change_of_the_spec_needs_execute_as() {
    let b = "system:serviceaccount:ns:b";
    let may = [
        ("alice", "cluster1", A),
        ("bob", "cluster1", b),
        ("carol", "cluster1", A),
        ("carol", "cluster1", b),
    ];
    let desk = desk(&may, NilExecutor::Allow);
    let handler = &manifest_work::HANDLER;
    let (one, two) = (spec(Some("a"), "1"), spec(Some("a"), "2"));
    for (user, new, old, allowed) in [
        ("alice", &one, None, true),
        ("bob", &one, None, false),
        ("alice", &two, Some(&one), true),
        // The executor stays, the payload changes: the confused deputy.
        ("bob", &two, Some(&one), false),
        // Nothing of the spec changes.
        ("bob", &one, Some(&one), true),
        // Similar names are other names.
        ("alice", &spec(Some("ab"), "1"), None, false),
        // Without an executor nobody is asked.
        ("bob", &spec(None, "1"), None, true),
        // What an executor delivered goes when another one takes its place, or none.
        ("bob", &spec(Some("b"), "2"), Some(&one), false),
        ("bob", &spec(None, "2"), Some(&one), false),
        ("carol", &spec(Some("b"), "2"), Some(&one), true),
        ("alice", &one, Some(&spec(None, "1")), true),
    ] {
        let decision = review(handler, &desk, request(user, new, old)).await;
        assert_eq!(
            decision == Decision::Allow,
            allowed,
            "{user} {new} {old:?}: {decision:?}"
        );
    }
    let denied = review(handler, &desk, request("bob", &one, None)).await;
    assert_eq!(
        denied,
        Decision::bad_request(
            "user bob cannot manipulate the Manifestwork with executor ns/a in namespace cluster1"
        )
    );
}

#[tokio::test]
async fn an_executor_without_a_subject_is_an_error() {
    let desk = desk(&[], NilExecutor::Allow);
    let mut empty = spec(None, "1");
    empty["executor"] = json!({});
    let mut no_account = spec(None, "1");
    no_account["executor"] = json!({"subject": {"type": "ServiceAccount"}});
    let mut unknown = spec(None, "1");
    unknown["executor"] = json!({"subject": {"type": "User", "user": {"name": "x"}}});
    for new in [empty, no_account, unknown] {
        let decision = review(&manifest_work::HANDLER, &desk, request("alice", &new, None)).await;
        assert!(matches!(decision, Decision::Deny(400, _)), "{new}: {decision:?}");
    }
}

#[tokio::test]
async fn a_name_that_no_agent_can_record_is_refused() {
    let desk = desk(&[], NilExecutor::Allow);
    for (length, allowed) in [(188, true), (189, false)] {
        let mut request = request("alice", &spec(None, "1"), None);
        if let Some(object) = &mut request.object {
            object.metadata.name = Some("x".repeat(length));
        }
        let decision = review(&manifest_work::HANDLER, &desk, request).await;
        assert_eq!(decision == Decision::Allow, allowed, "{length}: {decision:?}");
    }
}

#[tokio::test]
async fn no_executor_is_the_agent_where_that_is_checked() {
    let desk = desk(
        &[("alice", "cluster1", writ_api::work::NIL_EXECUTOR)],
        NilExecutor::Check,
    );
    let new = spec(None, "1");
    let decision = review(&manifest_work::HANDLER, &desk, request("alice", &new, None)).await;
    assert_eq!(decision, Decision::Allow);
    let decision = review(&manifest_work::HANDLER, &desk, request("bob", &new, None)).await;
    assert_eq!(
        decision,
        Decision::bad_request(
            "user bob cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace cluster1"
        )
    );
}

#[tokio::test]
async fn a_replica_set_needs_execute_as_everywhere() {
    let desk = desk(&[("alice", "cluster1", A), ("root", "*", A)], NilExecutor::Allow);
    let set = |template: Value| json!({"manifestWorkTemplate": template, "placementRefs": [{"name": "p"}]});
    let new = set(spec(Some("a"), "1"));
    let decision = review(&replica_set::HANDLER, &desk, request("root", &new, None)).await;
    assert_eq!(decision, Decision::Allow);
    // What is enough for one cluster is not enough for all.
    let decision = review(&replica_set::HANDLER, &desk, request("alice", &new, None)).await;
    assert!(matches!(decision, Decision::Deny(400, _)));
    let decision = review(
        &replica_set::HANDLER,
        &desk,
        request("alice", &set(spec(Some("a"), "2")), Some(&new)),
    )
    .await;
    assert!(matches!(decision, Decision::Deny(400, _)));
}

#[tokio::test]
async fn a_deadline_that_is_none_is_named() {
    let desk = desk(&[], NilExecutor::Allow);
    let set = |deadline: &str| {
        json!({"manifestWorkTemplate": spec(None, "1"), "placementRefs": [{"name": "p"}, {"name": "q",
            "rolloutStrategy": {"type": "Progressive", "progressive": {"progressDeadline": deadline}}}]})
    };
    for fine in ["None", "90s", "5m"] {
        let decision = review(&replica_set::HANDLER, &desk, request("root", &set(fine), None)).await;
        assert_eq!(decision, Decision::Allow, "{fine}");
    }
    for wrong in ["5|", "5mfoo", "notNone"] {
        let decision = review(&replica_set::HANDLER, &desk, request("root", &set(wrong), None)).await;
        let Decision::Deny(400, message) = decision else {
            panic!("{wrong}: {decision:?}")
        };
        let place = "spec.placementRefs[1].rolloutStrategy.progressive.progressDeadline";
        assert!(message.starts_with(place) && message.contains(wrong), "{message}");
    }
}

#[test]
fn a_bad_spec_is_named() {
    let check = |value: Value| manifests::check(&serde_json::from_value(value).unwrap(), 1000);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let config = |extra: Value| {
        let mut config = json!({"resourceIdentifier": {"resource": "configmaps", "name": "a"}});
        for (key, value) in extra.as_object().unwrap() {
            config[key] = value.clone();
        }
        json!({"workload": {"manifests": [map("a")]}, "manifestConfigs": [config]})
    };
    assert_eq!(
        check(json!({"workload": {"manifests": [map("a"), map("b")]}})),
        Ok(())
    );
    let optional = json!(["object.?status.?x.orValue(0) == 0", "[?object.?a] == []"]);
    let rule = json!({"condition": "C", "type": "CEL", "celExpressions": optional});
    assert_eq!(check(config(json!({"conditionRules": [rule]}))), Ok(()));
    for (spec, expected) in [
        (json!({}), "manifests should not be empty"),
        (
            config(
                json!({"conditionRules": [{"condition": "C", "type": "CEL", "celExpressions": vec!["true"; 65]}]}),
            ),
            "conditionRules have 65 expressions in all, at most 64 are allowed",
        ),
        (
            json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(2000)}}]}}),
            "exceeds the 1000 limit",
        ),
        (
            json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap"}]}}),
            "name must be set in manifest",
        ),
        (
            json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generateName": "b"}}]}}),
            "generateName must not be set in manifest",
        ),
        (
            json!({"workload": {"manifests": [map("a"), map("a?watch=1")]}}),
            "spec.workload.manifests[1]: metadata.name \"a?watch=1\" cannot be part of a URL",
        ),
        (
            json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b/secrets"}}]}}),
            "metadata.namespace \"b/secrets\"",
        ),
        (
            json!({"workload": {"manifests": [{"apiVersion": "a/b/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]}}),
            "the group of apiVersion \"a/b\"",
        ),
        (
            json!({"workload": {"manifests": [map("a"), map("a")]}}),
            "duplicate manifest for resource /a with resource type v1.ConfigMap",
        ),
        (
            config(
                json!({"feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "n", "path": ".a["}]}]}),
            ),
            "spec.manifestConfigs[0].feedbackRules[0].jsonPaths[\"n\"]",
        ),
        (
            config(
                json!({"conditionRules": [{"condition": "Applied", "type": "CEL", "celExpressions": ["true"]}]}),
            ),
            "spec.manifestConfigs[0].conditionRules[\"Applied\"]: this condition is the agent's own word: choose another name",
        ),
        (
            config(json!({"conditionRules": [{"condition": "C", "type": "CEL", "celExpressions": ["a +"]}]})),
            "is not a CEL expression",
        ),
        (
            config(
                json!({"updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"ignoreFields": [{"jqPathExpressions": ["spec"]}]}}}),
            ),
            "jq path expression",
        ),
        (
            json!({"workload": {"manifests": [map("a")]}, "deleteOption": {"propagationPolicy": "SelectivelyOrphan"}}),
            "orphaningRules is empty",
        ),
        (
            json!({"workload": {"manifests": [map("a")]}, "deleteOption": {"propagationPolicy": "SelectivelyOrphan",
                "selectivelyOrphans": {"orphaningRules": [{"resource": "configmaps", "name": "*"}]}}}),
            "holds a wildcard",
        ),
    ] {
        let problem = check(spec.clone()).unwrap_err();
        assert!(problem.contains(expected), "{spec}: {problem}");
    }
}

#[test]
fn a_binding_names_users_groups_and_accounts_exactly() {
    let user = |name: &str| UserInfo {
        username: Some(name.into()),
        groups: Some(vec!["team".into()]),
        ..UserInfo::default()
    };
    let subject =
        |kind: &str, namespace: Option<&str>, name: &str| writ_api::authentication::AccountSubject {
            kind: kind.into(),
            namespace: namespace.map(Into::into),
            name: name.into(),
        };
    assert!(executor::names(&subject("User", None, "dave"), &user("dave")));
    assert!(!executor::names(&subject("User", None, "dave"), &user("david")));
    assert!(executor::names(&subject("Group", None, "team"), &user("dave")));
    let robot = user("system:serviceaccount:ns:robot");
    assert!(executor::names(
        &subject("ServiceAccount", Some("ns"), "robot"),
        &robot
    ));
    assert!(!executor::names(
        &subject("ServiceAccount", None, "robot"),
        &robot
    ));
    assert!(!executor::names(&subject("Robot", None, "dave"), &user("dave")));
}

#[test]
fn every_webhook_fails_closed_and_leaves_unchanged_specs_alone() {
    for handler in HANDLERS {
        let configuration = (handler.webhook)();
        for hook in configuration.webhooks.unwrap() {
            assert_eq!(hook.failure_policy.as_deref(), Some("Fail"));
            assert!(
                hook.match_conditions
                    .unwrap()
                    .iter()
                    .any(|c| c.expression.contains("oldObject.spec"))
            );
            assert_eq!(
                hook.client_config.service.unwrap().path.as_deref(),
                Some(handler.path)
            );
        }
    }
}
