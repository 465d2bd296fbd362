//! Works, replica sets and account bindings.

use std::{future::ready, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::Client;
use serde_json::{Value, json};
use writ_controller::Error;
use writ_process::admission::{Access, Authorizer, Decision, Request, Webhook, configurations};

use crate::{
    admission::{
        WEBHOOKS,
        context::AdmissionContext,
        handlers::{executor, manifest_work, manifest_work_spec, replica_set},
    },
    options::{AdmissionOptions, NilExecutor, Options},
};

/// A right `execute-as`: user, namespace (`*` for all) and identity.
type Grant = (&'static str, &'static str, &'static str);

/// Allows what was granted.
struct Grants(Vec<Grant>);

impl Authorizer for Grants {
    fn is_allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let namespace = access.namespace.as_deref().unwrap_or("*");
        let allowed = self.0.iter().any(|(name, granted, identity)| {
            user.username.as_deref() == Some(name)
                && (*granted == "*" || *granted == namespace)
                && access.name.as_deref() == Some(identity)
                && access.verb == "execute-as"
                && access.resource == "manifestworks"
        });
        ready(Ok(allowed)).boxed()
    }
}

fn context(granted: &[Grant], nil_executor: NilExecutor) -> AdmissionContext {
    let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    AdmissionContext {
        client: Client::try_from(config).unwrap(),
        options: Arc::new(Options {
            admission: AdmissionOptions {
                nil_executor,
                ..AdmissionOptions::default()
            },
            ..Options::default()
        }),
        authorizer: Arc::new(Grants(granted.to_vec())),
    }
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

async fn decide(
    webhook: &Webhook<AdmissionContext>,
    context: &AdmissionContext,
    request: Request,
) -> Decision {
    (webhook.handler)(context.clone(), request).await.unwrap()
}

const A: &str = "system:serviceaccount:ns:a";

#[tokio::test]
async fn changed_spec_requires_execute_as() {
    let b = "system:serviceaccount:ns:b";
    let may = [
        ("alice", "cluster1", A),
        ("bob", "cluster1", b),
        ("carol", "cluster1", A),
        ("carol", "cluster1", b),
    ];
    let context = context(&may, NilExecutor::Allow);
    let handler = &manifest_work::WEBHOOK;
    let (one, two) = (spec(Some("a"), "1"), spec(Some("a"), "2"));
    for (user, new, old, allowed) in [
        ("alice", &one, None, true),
        ("bob", &one, None, false),
        ("alice", &two, Some(&one), true),
        // The executor stays, the payload changes: the confused deputy.
        ("bob", &two, Some(&one), false),
        // Nothing of the spec changes.
        ("bob", &one, Some(&one), true),
        // A similar name is another name.
        ("alice", &spec(Some("ab"), "1"), None, false),
        // Without an executor nothing is required.
        ("bob", &spec(None, "1"), None, true),
        // A new executor, or none, deletes what the old executor delivered.
        ("bob", &spec(Some("b"), "2"), Some(&one), false),
        ("bob", &spec(None, "2"), Some(&one), false),
        ("carol", &spec(Some("b"), "2"), Some(&one), true),
        ("alice", &one, Some(&spec(None, "1")), true),
    ] {
        let decision = decide(handler, &context, request(user, new, old)).await;
        assert_eq!(
            decision == Decision::ALLOW,
            allowed,
            "{user} {new} {old:?}: {decision:?}"
        );
    }
    let denied = decide(handler, &context, request("bob", &one, None)).await;
    assert_eq!(
        denied,
        Decision::invalid(
            "user bob cannot manipulate the Manifestwork with executor ns/a in namespace cluster1"
        )
    );
}

#[tokio::test]
async fn executor_without_subject_is_invalid() {
    let context = context(&[], NilExecutor::Allow);
    let mut empty = spec(None, "1");
    empty["executor"] = json!({});
    let mut no_account = spec(None, "1");
    no_account["executor"] = json!({"subject": {"type": "ServiceAccount"}});
    let mut unknown = spec(None, "1");
    unknown["executor"] = json!({"subject": {"type": "User", "user": {"name": "x"}}});
    for new in [empty, no_account, unknown] {
        let decision = decide(&manifest_work::WEBHOOK, &context, request("alice", &new, None)).await;
        assert!(
            matches!(decision, Decision::Deny { code: 400, .. }),
            "{new}: {decision:?}"
        );
    }
}

#[tokio::test]
async fn name_too_long_for_an_agent_is_denied() {
    let context = context(&[], NilExecutor::Allow);
    for (length, allowed) in [(188, true), (189, false)] {
        let mut request = request("alice", &spec(None, "1"), None);
        if let Some(object) = &mut request.object {
            object.metadata.name = Some("x".repeat(length));
        }
        let decision = decide(&manifest_work::WEBHOOK, &context, request).await;
        assert_eq!(decision == Decision::ALLOW, allowed, "{length}: {decision:?}");
    }
}

#[tokio::test]
async fn work_without_executor_requires_execute_as_the_agent_if_checked() {
    let context = context(
        &[("alice", "cluster1", writ_api::work::NIL_EXECUTOR)],
        NilExecutor::Check,
    );
    let new = spec(None, "1");
    let decision = decide(&manifest_work::WEBHOOK, &context, request("alice", &new, None)).await;
    assert_eq!(decision, Decision::ALLOW);
    let decision = decide(&manifest_work::WEBHOOK, &context, request("bob", &new, None)).await;
    assert_eq!(
        decision,
        Decision::invalid(
            "user bob cannot manipulate the Manifestwork with executor /klusterlet-work-sa in namespace cluster1"
        )
    );
}

#[tokio::test]
async fn replica_set_requires_execute_as_in_all_namespaces() {
    let context = context(&[("alice", "cluster1", A), ("root", "*", A)], NilExecutor::Allow);
    let set = |template: Value| json!({"manifestWorkTemplate": template, "placementRefs": [{"name": "p"}]});
    let new = set(spec(Some("a"), "1"));
    let decision = decide(&replica_set::WEBHOOK, &context, request("root", &new, None)).await;
    assert_eq!(decision, Decision::ALLOW);
    // The right on one cluster is not enough for all.
    let decision = decide(&replica_set::WEBHOOK, &context, request("alice", &new, None)).await;
    assert!(matches!(decision, Decision::Deny { code: 400, .. }));
    let decision = decide(
        &replica_set::WEBHOOK,
        &context,
        request("alice", &set(spec(Some("a"), "2")), Some(&new)),
    )
    .await;
    assert!(matches!(decision, Decision::Deny { code: 400, .. }));
}

#[tokio::test]
async fn invalid_deadline_is_named() {
    let context = context(&[], NilExecutor::Allow);
    let set = |deadline: &str| {
        json!({"manifestWorkTemplate": spec(None, "1"), "placementRefs": [{"name": "p"}, {"name": "q",
            "rolloutStrategy": {"type": "Progressive", "progressive": {"progressDeadline": deadline}}}]})
    };
    for fine in ["None", "90s", "5m"] {
        let decision = decide(&replica_set::WEBHOOK, &context, request("root", &set(fine), None)).await;
        assert_eq!(decision, Decision::ALLOW, "{fine}");
    }
    for wrong in ["5|", "5mfoo", "notNone"] {
        let decision = decide(
            &replica_set::WEBHOOK,
            &context,
            request("root", &set(wrong), None),
        )
        .await;
        let Decision::Deny { code: 400, message } = decision else {
            panic!("{wrong}: {decision:?}")
        };
        let place = "spec.placementRefs[1].rolloutStrategy.progressive.progressDeadline";
        assert!(message.starts_with(place) && message.contains(wrong), "{message}");
    }
}

#[test]
fn invalid_field_of_a_work_is_named() {
    let check = |value: Value| manifest_work_spec::check(&serde_json::from_value(value).unwrap(), 1000);
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
fn subject_of_binding_matches_users_groups_and_accounts_exactly() {
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
    assert!(executor::is_subject(
        &subject("User", None, "dave"),
        &user("dave")
    ));
    assert!(!executor::is_subject(
        &subject("User", None, "dave"),
        &user("david")
    ));
    assert!(executor::is_subject(
        &subject("Group", None, "team"),
        &user("dave")
    ));
    let robot = user("system:serviceaccount:ns:robot");
    assert!(executor::is_subject(
        &subject("ServiceAccount", Some("ns"), "robot"),
        &robot
    ));
    assert!(!executor::is_subject(
        &subject("ServiceAccount", None, "robot"),
        &robot
    ));
    assert!(!executor::is_subject(
        &subject("Robot", None, "dave"),
        &user("dave")
    ));
}

#[test]
fn webhooks_fail_closed_and_are_reached_by_their_path() {
    let all = configurations(WEBHOOKS);
    let validating = all.validating.into_iter().flat_map(|c| c.webhooks.unwrap());
    let mutating = all.mutating.into_iter().flat_map(|c| c.webhooks.unwrap());
    let found: Vec<_> = validating
        .map(|hook| {
            (
                hook.name,
                hook.failure_policy,
                hook.client_config,
                hook.match_conditions,
            )
        })
        .chain(mutating.map(|hook| {
            (
                hook.name,
                hook.failure_policy,
                hook.client_config,
                hook.match_conditions,
            )
        }))
        .collect();
    assert_eq!(found.len(), WEBHOOKS.len());
    for (name, failure_policy, client_config, _) in found {
        let row = WEBHOOKS.iter().find(|row| row.name == name).unwrap();
        assert_eq!(failure_policy.as_deref(), Some("Fail"), "{name}");
        assert_eq!(
            client_config.service.unwrap().path.as_deref(),
            Some(row.path),
            "{name}"
        );
    }
}

#[test]
fn webhooks_of_specs_leave_unchanged_specs_alone() {
    for row in WEBHOOKS.iter().filter(|row| row.configuration == row.name) {
        let (_, expression) = row.only_if.unwrap();
        assert!(expression.contains("oldObject.spec"), "{}", row.name);
    }
}
