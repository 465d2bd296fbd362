//! The server as its own users see it: through `kube`, without a socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use writ_apiserver::Server;

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "x": value } })).unwrap()
}

fn widgets() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": { "size": { "type": "integer", "minimum": 1, "default": 3 } },
                        },
                        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    },
                } },
            }],
        },
    }))
    .unwrap()
}

fn widget_api(client: kube::Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::namespaced_with(client, "default", &kind)
}

#[tokio::test]
async fn objects_live() {
    let server = Server::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let made = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    assert!(made.metadata.uid.is_some());
    let again = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap_err();
    assert!(matches!(again, kube::Error::Api(status) if status.is_already_exists()));

    let mut stale = made.clone();
    let patch = Patch::Merge(json!({ "data": { "x": "2" } }));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_ne!(patched.metadata.resource_version, made.metadata.resource_version);
    stale.data.as_mut().unwrap().insert("y".into(), "z".into());
    let refused = maps
        .replace("a", &PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.is_conflict()));

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn watches_see_everything_after_their_version() {
    let server = Server::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let start = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    maps.create(&PostParams::default(), &config_map("w", "1"))
        .await
        .unwrap();
    let mut events = maps
        .watch(&WatchParams::default().labels("!absent"), &start)
        .await
        .unwrap()
        .boxed();
    maps.patch(
        "w",
        &PatchParams::default(),
        &Patch::Merge(json!({ "metadata": { "labels": { "absent": "no" } } })),
    )
    .await
    .unwrap();
    let first = events.try_next().await.unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("w")));
    // It no longer matches the selector, so for this watcher it is gone.
    let second = events.try_next().await.unwrap().unwrap();
    assert!(matches!(second, WatchEvent::Deleted(_)));
    server.compact();
    maps.create(&PostParams::default(), &config_map("later", "1"))
        .await
        .unwrap();
    let late = maps.watch(&WatchParams::default(), &start).await.unwrap();
    let told = late.boxed().try_next().await.unwrap().unwrap();
    assert!(matches!(told, WatchEvent::Error(status) if status.code == 410));
}

#[tokio::test]
async fn custom_resources_are_served_validated_and_collected() {
    let server = Server::builder().start().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions
        .create(&PostParams::default(), &widgets())
        .await
        .unwrap();
    await_condition(
        definitions.clone(),
        "widgets.example.com",
        conditions::is_crd_established(),
    )
    .await
    .unwrap();
    let api = widget_api(server.client());
    let new = |name: &str, spec: serde_json::Value| -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec,
        }))
        .unwrap()
    };
    let owner = api
        .create(&PostParams::default(), &new("a", json!({ "unknown": 1 })))
        .await
        .unwrap();
    assert_eq!(owner.data["spec"], json!({ "size": 3 }));
    let refused = api
        .create(&PostParams::default(), &new("b", json!({ "size": 0 })))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.contains("spec.size"), "{}", status.message);

    let patch = Patch::Merge(json!({ "spec": { "size": 4 }, "status": { "ok": true } }));
    let changed = api
        .patch_status("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        (changed.metadata.generation, &changed.data["spec"]),
        (Some(1), &json!({ "size": 3 }))
    );
    assert_eq!(changed.data["status"], json!({ "ok": true }));
    let changed = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        (changed.metadata.generation, &changed.data["spec"]),
        (Some(2), &json!({ "size": 4 }))
    );

    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut child = config_map("child", "1");
    child.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": owner.metadata.uid,
        }))
        .unwrap(),
    ]);
    let child = maps.create(&PostParams::default(), &child).await.unwrap();
    definitions
        .delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    await_condition(
        maps,
        "child",
        conditions::is_deleted(&child.metadata.uid.unwrap()),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn namespaces_come_furnished_and_end_empty() {
    let server = Server::builder().start().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    let space = namespaces.create(&PostParams::default(), &space).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), "n");
    await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
        account.is_some()
    })
    .await
    .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "n");
    let mut held = config_map("held", "1");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let refused = maps
        .create(&PostParams::default(), &config_map("late", "1"))
        .await
        .unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("held", &PatchParams::default(), &release)
        .await
        .unwrap();
    await_condition(
        namespaces,
        "n",
        conditions::is_deleted(&space.metadata.uid.unwrap()),
    )
    .await
    .unwrap();
}

/// Those who have a say are told who deletes. When they no longer object, it is done after all.
#[tokio::test]
async fn controllers_are_asked_by_their_names() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let create = PostParams::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let accounts = ["generic-garbage-collector", "namespace-controller"]
        .map(|account| format!("'system:serviceaccount:kube-system:{account}'"));
    let policy = json!({ "metadata": { "name": "names" }, "spec": {
        "matchConstraints": { "resourceRules": [{ "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }] },
        "validations": [{ "expression": format!("!(request.userInfo.username in [{}])", accounts.join(", ")), "message": "not yours" }],
    } });
    let binding = json!({ "metadata": { "name": "names" }, "spec": { "policyName": "names", "validationActions": ["Deny"] } });
    let policy = serde_json::from_value(policy).unwrap();
    policies.create(&create, &policy).await.unwrap();
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&create, &binding).await.unwrap();

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = maps.create(&create, &config_map("owner", "1")).await.unwrap();
    let dependent = json!({ "metadata": { "name": "dependent", "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid },
    ] } });
    let dependent = serde_json::from_value(dependent).unwrap();
    let dependent = maps.create(&create, &dependent).await.unwrap();
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let space = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    let space: Namespace = namespaces.create(&create, &space).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let refused = |space: Option<&Namespace>| {
        let all = space.and_then(|space| space.status.as_ref()?.conditions.as_ref());
        let mut all = all.into_iter().flatten();
        all.any(|c| c.reason.as_deref() == Some("ContentDeletionFailed") && c.status == "True")
    };
    await_condition(namespaces.clone(), "n", refused).await.unwrap();
    assert!(maps.get_opt("dependent").await.unwrap().is_some());

    bindings.delete("names", &DeleteParams::default()).await.unwrap();
    let (dependent, space) = (dependent.metadata.uid.unwrap(), space.metadata.uid.unwrap());
    let gone = conditions::is_deleted(&dependent);
    await_condition(maps, "dependent", gone).await.unwrap();
    let gone = conditions::is_deleted(&space);
    await_condition(namespaces, "n", gone).await.unwrap();
}

#[tokio::test]
async fn rights_are_checked_and_recorded() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let server = Server::builder()
        .recorder(std::sync::Arc::new(move |user, _, chain| {
            let _ = sender
                .lock()
                .unwrap()
                .send((user.name.clone(), chain.role.name.clone()));
        }))
        .start()
        .await
        .unwrap();
    let nobody: Api<ConfigMap> = Api::default_namespaced(server.client_as("nobody", [] as [&str; 0]));
    let refused = nobody.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        status.message,
        "configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::default_namespaced(server.client());
    let binding = serde_json::from_value(json!({
        "metadata": { "name": "viewers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io" }],
    }))
    .unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    nobody.list(&ListParams::default()).await.unwrap();
    assert_eq!(receiver.try_recv().unwrap(), ("nobody".into(), "view".into()));
    // Who may only view cannot hand out more than that.
    let escalate: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::default_namespaced(server.client_as("nobody", [] as [&str; 0]));
    assert!(escalate.create(&PostParams::default(), &binding).await.is_err());
}

#[tokio::test]
async fn apply_keeps_owners_apart() {
    let server = Server::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let apply = |value: &str| {
        Patch::Apply(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "s" }, "data": { "x": value } }),
        )
    };
    let made = maps
        .patch("s", &PatchParams::apply("one"), &apply("1"))
        .await
        .unwrap();
    let managers = made.metadata.managed_fields.unwrap();
    assert_eq!((managers.len(), managers[0].manager.as_deref()), (1, Some("one")));
    let refused = maps
        .patch("s", &PatchParams::apply("two"), &apply("2"))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"one\": .data.x"
        )
    );
    let forced = maps
        .patch("s", &PatchParams::apply("two").force(), &apply("2"))
        .await
        .unwrap();
    assert_eq!(forced.data.unwrap()["x"], "2");
    // Nothing changes, so nothing is written.
    let same = maps
        .patch("s", &PatchParams::apply("two"), &apply("2"))
        .await
        .unwrap();
    assert_eq!(same.metadata.resource_version, forced.metadata.resource_version);
    let strategic = Patch::Strategic(json!({ "data": { "y": "3" } }));
    let merged = maps
        .patch("s", &PatchParams::default(), &strategic)
        .await
        .unwrap();
    assert_eq!(merged.data.unwrap().len(), 2);
}

/// Many at once, and some that come to nothing: what is there is never more than the quota, and the quota knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_holds_when_all_come_at_once() {
    use k8s_openapi::api::core::v1::ResourceQuota;
    let server = Server::builder().start().await.unwrap();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(server.client());
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/secrets": "7" } } });
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota).unwrap())
        .await
        .unwrap();
    let used = |wanted: &'static str| {
        move |quota: Option<&ResourceQuota>| {
            let used = quota.and_then(|q| q.status.as_ref()?.used.as_ref()?.get("count/secrets"));
            used.is_some_and(|used| used.0 == wanted)
        }
    };
    await_condition(quotas.clone(), "q", used("0")).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(server.client());
    let create = |i: usize| {
        let (secrets, name) = (secrets.clone(), format!("s{}", i % 20));
        tokio::spawn(async move {
            let secret = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            let made = secrets.create(&PostParams::default(), &secret).await.is_ok();
            // Every other one goes again.
            if made && i.is_multiple_of(2) {
                secrets.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        })
    };
    let before = secrets.list(&ListParams::default()).await.unwrap();
    let before = before.metadata.resource_version.unwrap();
    for task in (0..200).map(create).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let there = secrets.list(&ListParams::default()).await.unwrap().items.len();
    assert!(there <= 7, "{there}");
    let settled: &'static str = there.to_string().leak();
    await_condition(quotas, "q", used(settled)).await.unwrap();
    let events = secrets.watch(&WatchParams::default().timeout(1), &before).await;
    let counts = events
        .unwrap()
        .try_fold((0, 0), |(now, most): (i32, i32), event| async move {
            let now = match event {
                WatchEvent::Added(_) => now + 1,
                WatchEvent::Deleted(_) => now - 1,
                _ => now,
            };
            Ok((now, most.max(now)))
        });
    let (_, most) = counts.await.unwrap();
    assert!((1..=7).contains(&most), "{most} at one time");
}

/// Whoever owns a namespace owns nothing beside it, however the path is spelled.
#[tokio::test]
async fn rights_in_a_namespace_end_there() {
    let server = Server::builder().start().await.unwrap();
    let admin = server.client();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for name in ["own", "victim"] {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/own";
    let role = json!({ "metadata": { "name": "all" }, "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let binding = json!({
        "metadata": { "name": "all" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant" }],
    });
    let ask = |method: &str, path: &str, body: &serde_json::Value| {
        let kind = if method == "PATCH" {
            "merge-patch+json"
        } else {
            "json"
        };
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder().method(method).uri(path);
        request
            .header("Content-Type", format!("application/{kind}"))
            .body(kube::client::Body::from(body))
            .unwrap()
    };
    for (path, body) in [("roles", &role), ("rolebindings", &binding)] {
        let made = admin.send(ask("POST", &format!("{rbac}/{path}"), body)).await;
        assert_eq!(made.unwrap().status(), 201, "{path}");
    }
    let victim = namespaces.get("victim").await.unwrap();
    let tenant = server.client_as("tenant", Vec::<String>::new());
    let nothing = serde_json::Value::Null;
    let labelled = json!({ "metadata": { "name": "victim", "labels": { "pod-security.kubernetes.io/enforce": "privileged" } }, "spec": { "finalizers": [] } });
    for (method, path, body) in [
        ("GET", "namespaces", &nothing),
        ("GET", "namespaces?watch=true&timeoutSeconds=1", &nothing),
        ("POST", "namespaces", &json!({ "metadata": { "name": "new" } })),
        ("GET", "namespaces/victim", &nothing),
        ("PATCH", "namespaces/victim", &labelled),
        ("PUT", "namespaces/victim", &labelled),
        ("PATCH", "namespaces/victim/status", &labelled),
        ("PUT", "namespaces/victim/finalize", &labelled),
        ("DELETE", "namespaces/victim", &nothing),
        ("GET", "namespaces/own", &nothing),
        ("GET", "nodes", &nothing),
        ("DELETE", "nodes", &nothing),
    ] {
        let answer = tenant
            .send(ask(method, &format!("/api/v1/namespaces/own/{path}"), body))
            .await;
        assert_eq!(answer.unwrap().status(), 404, "{method} {path}");
    }
    assert_eq!(namespaces.get("victim").await.unwrap(), victim);
    assert!(namespaces.get_opt("new").await.unwrap().is_none());
    let own = tenant.send(ask("GET", "/api/v1/namespaces/own", &nothing)).await;
    assert_eq!(own.unwrap().status(), 200);
}
