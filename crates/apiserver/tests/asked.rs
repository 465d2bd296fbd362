//! What controllers write passes admission: those who have a say are told who writes what, and may refuse it for a while.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use writ_apiserver::Server;

/// Long enough for a controller that nobody holds up.
const WHILE: Duration = Duration::from_millis(300);

fn api(client: &kube::Client, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if namespace.is_empty() {
        return Api::all_with(client.clone(), &resource);
    }
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn make(client: &kube::Client, namespace: &str, version: &str, kind: &str, object: Value) {
    let object = serde_json::from_value(object).unwrap();
    api(client, namespace, version, kind)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

/// What is at a place of an object; nothing, if there is no object.
async fn look(api: &Api<DynamicObject>, name: &str, pointer: &str) -> Option<Value> {
    let object = api.get_opt(name).await.unwrap()?;
    serde_json::to_value(object).unwrap().pointer(pointer).cloned()
}

async fn appears(api: &Api<DynamicObject>, name: &str, pointer: &str) {
    for _ in 0..500 {
        if look(api, name, pointer).await.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} has no {pointer}");
}

async fn vanishes(api: &Api<DynamicObject>, name: &str) {
    for _ in 0..500 {
        if api.get_opt(name).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} is still there");
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Refuses every request that an expression is true of.
async fn refuse(client: &kube::Client, expression: &str) {
    let everything =
        json!([{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"] }]);
    let policy = json!({ "metadata": { "name": "asked" }, "spec": {
        "matchConstraints": { "resourceRules": everything },
        "validations": [{ "expression": format!("!({expression})"), "message": "not yet" }],
    } });
    make(client, "", ADMISSION, "ValidatingAdmissionPolicy", policy).await;
    let binding = json!({ "metadata": { "name": "asked" }, "spec": { "policyName": "asked", "validationActions": ["Deny"] } });
    make(client, "", ADMISSION, "ValidatingAdmissionPolicyBinding", binding).await;
}

/// From now on they are still asked, and agree.
async fn let_go(client: &kube::Client) {
    let agreed = json!({ "spec": { "validations": [{ "expression": "true" }] } });
    api(client, "", ADMISSION, "ValidatingAdmissionPolicy")
        .patch("asked", &PatchParams::default(), &Patch::Merge(agreed))
        .await
        .unwrap();
}

/// A request of one of the controllers, as an expression.
fn request(user: &str, operation: &str, resource: &str, door: &str) -> String {
    format!(
        "request.userInfo.username == '{user}' && request.operation == '{operation}' && \
         request.resource.resource == '{resource}' && request.subResource == '{door}'"
    )
}

fn account(name: &str) -> String {
    format!("system:serviceaccount:kube-system:{name}")
}

fn space(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test]
async fn what_a_namespace_has_from_the_start_can_be_refused() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let of_accounts = request(
        &account("service-account-controller"),
        "CREATE",
        "serviceaccounts",
        "",
    );
    let of_maps = request(&account("root-ca-cert-publisher"), "CREATE", "configmaps", "");
    let of_repairs = request(&account("root-ca-cert-publisher"), "UPDATE", "configmaps", "");
    let (no_account, no_map) = (
        "request.namespace.startsWith('x-')",
        "request.namespace.endsWith('-y')",
    );
    refuse(
        &client,
        &format!("({of_accounts} && {no_account}) || ({of_maps} && {no_map}) || ({of_repairs})"),
    )
    .await;
    for name in ["x-1", "1-y", "x-y", "free"] {
        make(&client, "", "v1", "Namespace", space(name)).await;
    }
    let accounts = |name| api(&client, name, "v1", "ServiceAccount");
    let maps = |name| api(&client, name, "v1", "ConfigMap");
    let (name, root) = ("/metadata/name", "kube-root-ca.crt");
    // Who is refused the one gets the other, and nobody else waits.
    appears(&maps("x-1"), root, name).await;
    appears(&accounts("1-y"), "default", name).await;
    appears(&accounts("free"), "default", name).await;
    appears(&maps("free"), root, name).await;
    let spoiled = Patch::Merge(json!({ "data": { "ca.crt": "spoiled" } }));
    maps("free")
        .patch(root, &PatchParams::default(), &spoiled)
        .await
        .unwrap();
    tokio::time::sleep(WHILE).await;
    let is_spoiled = |value: Option<Value>| value == Some("spoiled".into());
    let early = [
        look(&accounts("x-1"), "default", name).await.is_some(),
        look(&accounts("x-y"), "default", name).await.is_some(),
        look(&maps("1-y"), root, name).await.is_some(),
        look(&maps("x-y"), root, name).await.is_some(),
        !is_spoiled(look(&maps("free"), root, "/data/ca.crt").await),
    ];
    assert_eq!(early, [false; 5]);

    // A namespace without them can end.
    api(&client, "", "v1", "Namespace")
        .delete("x-y", &DeleteParams::default())
        .await
        .unwrap();
    vanishes(&api(&client, "", "v1", "Namespace"), "x-y").await;
    let_go(&client).await;
    appears(&accounts("x-1"), "default", name).await;
    appears(&maps("1-y"), root, name).await;
    for _ in 0..500 {
        if !is_spoiled(look(&maps("free"), root, "/data/ca.crt").await) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is not repaired");
}

#[tokio::test]
async fn the_end_of_a_namespace_can_be_refused() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let who = account("namespace-controller");
    let of_reports = request(&who, "UPDATE", "namespaces", "status");
    let of_ends = request(&who, "UPDATE", "namespaces", "finalize");
    refuse(
        &client,
        &format!("({of_reports} && request.name == 'silent') || ({of_ends} && request.name == 'stays')"),
    )
    .await;
    let spaces = api(&client, "", "v1", "Namespace");
    for name in ["silent", "stays", "goes"] {
        make(&client, "", "v1", "Namespace", space(name)).await;
        spaces.delete(name, &DeleteParams::default()).await.unwrap();
    }
    vanishes(&spaces, "goes").await;
    // It ends without a word about it.
    vanishes(&spaces, "silent").await;
    tokio::time::sleep(WHILE).await;
    let conditions = look(&spaces, "stays", "/status/conditions").await;
    assert_eq!(conditions.and_then(|list| list.as_array().map(Vec::len)), Some(5));
    let_go(&client).await;
    vanishes(&spaces, "stays").await;
}

fn widgets() -> Value {
    json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    })
}

fn signing_request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut parameters.distinguished_name;
    name.push(rcgen::DnType::CommonName, "alice");
    STANDARD.encode(parameters.serialize_request(&key).unwrap().pem().unwrap())
}

#[tokio::test]
async fn what_controllers_make_of_objects_can_be_refused() {
    const CERTIFICATES: &str = "certificates.k8s.io/v1";
    const EXTENSIONS: &str = "apiextensions.k8s.io/v1";
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let definitions = request(
        "system:apiserver",
        "UPDATE",
        "customresourcedefinitions",
        "status",
    );
    let refused = [
        format!("{definitions} && 'system:masters' in request.userInfo.groups"),
        request(
            &account("certificate-controller"),
            "UPDATE",
            "certificatesigningrequests",
            "status",
        ),
        request(
            &account("clusterrole-aggregation-controller"),
            "UPDATE",
            "clusterroles",
            "",
        ),
        request(
            &account("resourcequota-controller"),
            "UPDATE",
            "resourcequotas",
            "status",
        ),
        request("system:kube-controller-manager", "UPDATE", "secrets", ""),
        request("system:kube-controller-manager", "DELETE", "secrets", ""),
    ];
    // A token from before, to be deleted with its account.
    let token = |name: &str, account: &str| {
        json!({
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
            "type": "kubernetes.io/service-account-token",
        })
    };
    make(&client, "default", "v1", "ServiceAccount", space("bob")).await;
    make(&client, "default", "v1", "Secret", token("of-bob", "bob")).await;
    let secrets = api(&client, "default", "v1", "Secret");
    appears(&secrets, "of-bob", "/data/token").await;
    refuse(&client, &format!("({})", refused.join(") || ("))).await;

    let accounts = api(&client, "default", "v1", "ServiceAccount");
    accounts.delete("bob", &DeleteParams::default()).await.unwrap();
    make(&client, "default", "v1", "Secret", token("fresh", "default")).await;
    make(&client, "", EXTENSIONS, "CustomResourceDefinition", widgets()).await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/configmaps": "5" } } });
    make(&client, "default", "v1", "ResourceQuota", quota).await;
    let part = json!({ "metadata": { "name": "part", "labels": { "whole": "yes" } }, "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }] });
    make(&client, "", RBAC, "ClusterRole", part).await;
    let whole = json!({ "metadata": { "name": "whole" }, "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "whole": "yes" } }] } });
    make(&client, "", RBAC, "ClusterRole", whole).await;
    let spec = json!({ "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": signing_request() });
    let wish = json!({ "metadata": { "name": "alice" }, "spec": spec });
    make(&client, "", CERTIFICATES, "CertificateSigningRequest", wish).await;
    let requests = api(&client, "", CERTIFICATES, "CertificateSigningRequest");
    let approved =
        json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "r" }] } });
    requests
        .patch_subresource(
            "approval",
            "alice",
            &PatchParams::default(),
            &Patch::Merge(approved),
        )
        .await
        .unwrap();

    tokio::time::sleep(WHILE).await;
    let expected = [
        (&secrets, "fresh", "/data/token"),
        (
            &api(&client, "", EXTENSIONS, "CustomResourceDefinition"),
            "widgets.example.com",
            "/status/conditions/1",
        ),
        (
            &api(&client, "default", "v1", "ResourceQuota"),
            "q",
            "/status/used",
        ),
        (&api(&client, "", RBAC, "ClusterRole"), "whole", "/rules/0"),
        (&requests, "alice", "/status/certificate"),
    ];
    let mut early = Vec::new();
    for (api, name, pointer) in expected {
        assert!(api.get_opt(name).await.unwrap().is_some(), "{name}");
        if look(api, name, pointer).await.is_some() {
            early.push(name);
        }
    }
    if secrets.get_opt("of-bob").await.unwrap().is_none() {
        early.push("of-bob");
    }
    assert_eq!(early, [""; 0]);

    let_go(&client).await;
    for (api, name, pointer) in expected {
        appears(api, name, pointer).await;
    }
    vanishes(&secrets, "of-bob").await;
}

/// Nothing that controllers do is refused by a policy that everybody satisfies, and definitions go as they came.
#[tokio::test]
async fn whoever_is_asked_may_agree() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    refuse(&client, "false").await;
    let definitions = api(&client, "", "apiextensions.k8s.io/v1", "CustomResourceDefinition");
    make(
        &client,
        "",
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        widgets(),
    )
    .await;
    appears(&definitions, "widgets.example.com", "/status/conditions/1").await;
    make(
        &client,
        "default",
        "example.com/v1",
        "Widget",
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" } }),
    )
    .await;
    definitions
        .delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    vanishes(&definitions, "widgets.example.com").await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/configmaps": "5" } } });
    make(&client, "default", "v1", "ResourceQuota", quota).await;
    let quotas = api(&client, "default", "v1", "ResourceQuota");
    appears(&quotas, "q", "/status/used").await;
    make(&client, "default", "v1", "ConfigMap", space("m")).await;
    assert_eq!(
        look(&quotas, "q", "/status/used/count~1configmaps").await,
        Some("2".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_take_from_a_quota_at_once_and_each_is_asked_about() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let taken = request("system:apiserver", "UPDATE", "resourcequotas", "status");
    refuse(&client, &format!("({taken}) && object.metadata.name == 'closed'")).await;
    let quota =
        |name: &str, what: &str| json!({ "metadata": { "name": name }, "spec": { "hard": { what: "31" } } });
    let quotas = api(&client, "default", "v1", "ResourceQuota");
    make(
        &client,
        "default",
        "v1",
        "ResourceQuota",
        quota("open", "configmaps"),
    )
    .await;
    make(
        &client,
        "default",
        "v1",
        "ResourceQuota",
        quota("closed", "secrets"),
    )
    .await;
    appears(&quotas, "open", "/status/used/configmaps").await;
    appears(&quotas, "closed", "/status/used/secrets").await;
    // With the one that every namespace has, there is room for 30 of 40.
    let create = |kind: &'static str, i: usize| {
        let objects = api(&client, "default", "v1", kind);
        let object = serde_json::from_value(json!({ "metadata": { "name": format!("n{i}") } })).unwrap();
        async move { objects.create(&PostParams::default(), &object).await }
    };
    let outcomes = futures::future::join_all((0..40).map(|i| create("ConfigMap", i))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 30);
    assert_eq!(
        look(&quotas, "open", "/status/used/configmaps").await,
        Some("31".into())
    );
    let refused = create("Secret", 1).await.unwrap_err();
    assert!(refused.to_string().contains("not yet"), "{refused}");
    let_go(&client).await;
    create("Secret", 1).await.unwrap();
}
