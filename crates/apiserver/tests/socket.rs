//! The server over HTTPS: certificates, tokens, impersonation, certificate requests, `kubectl`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview, UserInfo};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use serde_json::json;
use writ_apiserver::{Clock, Server, User};

async fn config(server: &Server) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

async fn with_token(server: &Server, token: &str) -> Client {
    let mut config = config(server).await;
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    Client::try_from(config).unwrap()
}

async fn who(client: &Client) -> Result<UserInfo, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    Ok(review.status.unwrap().user_info.unwrap())
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

async fn request(client: &Client, account: &str, spec: serde_json::Value) -> Result<String, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let wish: TokenRequest = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let made = accounts
        .create_token_request(account, &PostParams::default(), &wish)
        .await?;
    Ok(made.status.unwrap().token.unwrap())
}

#[tokio::test]
async fn clients_are_who_they_prove_to_be() {
    let server = Server::builder()
        .port(0)
        .token("secret", User::new("static", ["team"]))
        .start()
        .await
        .unwrap();
    let admin = Client::try_from(config(&server).await).unwrap();
    let me = who(&admin).await.unwrap();
    assert_eq!(me.username.as_deref(), Some("kubernetes-admin"));
    assert!(me.groups.unwrap().contains(&"system:masters".to_owned()));

    let me = who(&with_token(&server, "secret").await).await.unwrap();
    assert_eq!(
        (me.username.as_deref(), me.groups),
        (
            Some("static"),
            Some(vec!["team".into(), "system:authenticated".into()])
        )
    );
    assert_eq!(
        code(&who(&with_token(&server, "wrong").await).await.unwrap_err()),
        401
    );

    let mut nobody = config(&server).await;
    nobody.auth_info = AuthInfo::default();
    let nobody = Client::try_from(nobody).unwrap();
    assert!(nobody.apiserver_version().await.is_ok());
    let maps: Api<ConfigMap> = Api::default_namespaced(nobody);
    assert_eq!(code(&maps.list(&ListParams::default()).await.unwrap_err()), 403);

    let mut other = config(&server).await;
    other.auth_info.impersonate = Some("alice".into());
    other.auth_info.impersonate_groups = Some(vec!["dev".into()]);
    let me = who(&Client::try_from(other).unwrap()).await.unwrap();
    assert_eq!(
        (me.username.as_deref(), me.groups),
        (
            Some("alice"),
            Some(vec!["dev".into(), "system:authenticated".into()])
        )
    );

    // A certificate of another cluster proves nothing here.
    let stranger = Server::builder().port(0).start().await.unwrap();
    let mut foreign = config(&stranger).await;
    let own = config(&server).await;
    foreign.cluster_url = own.cluster_url;
    foreign.root_cert = own.root_cert;
    assert_eq!(
        code(&who(&Client::try_from(foreign).unwrap()).await.unwrap_err()),
        401
    );
}

#[tokio::test]
async fn tokens_live_as_long_as_they_should() {
    let clock = Clock::manual(Timestamp::now());
    let server = Server::builder()
        .port(0)
        .clock(clock.clone())
        .start()
        .await
        .unwrap();
    let admin = server.client();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let secrets: Api<Secret> = Api::default_namespaced(admin.clone());
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "robot" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "life" } })).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();

    let token = request(
        &admin,
        "robot",
        json!({ "audiences": [], "expirationSeconds": 3600 }),
    )
    .await
    .unwrap();
    let robot = with_token(&server, &token).await;
    let me = who(&robot).await.unwrap();
    assert_eq!(
        me.username.as_deref(),
        Some("system:serviceaccount:default:robot")
    );
    assert!(
        me.groups
            .unwrap()
            .contains(&"system:serviceaccounts:default".to_owned())
    );

    // A token for somebody else's ears is no good here, and a review says for whom it is.
    let elsewhere = request(&admin, "robot", json!({ "audiences": ["vault"] }))
        .await
        .unwrap();
    assert_eq!(
        code(&who(&with_token(&server, &elsewhere).await).await.unwrap_err()),
        401
    );
    let reviews: Api<TokenReview> = Api::all(admin.clone());
    let ask = |audience: &str| -> TokenReview {
        serde_json::from_value(json!({ "spec": { "token": elsewhere, "audiences": [audience] } })).unwrap()
    };
    let answer = reviews
        .create(&PostParams::default(), &ask("vault"))
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (answer.authenticated, answer.audiences),
        (Some(true), Some(vec!["vault".into()]))
    );
    let answer = reviews
        .create(&PostParams::default(), &ask("other"))
        .await
        .unwrap()
        .status
        .unwrap();
    assert_ne!(answer.authenticated, Some(true));

    let bound = json!({ "audiences": [], "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": "life" } });
    let bound = with_token(&server, &request(&admin, "robot", bound).await.unwrap()).await;
    assert!(who(&bound).await.is_ok());
    secrets.delete("life", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(&who(&bound).await.unwrap_err()), 401);

    clock.advance(SignedDuration::from_mins(59));
    assert!(who(&robot).await.is_ok());
    clock.advance(SignedDuration::from_mins(3));
    assert_eq!(code(&who(&robot).await.unwrap_err()), 401);

    let fresh = with_token(
        &server,
        &request(&admin, "robot", json!({ "audiences": [] }))
            .await
            .unwrap(),
    )
    .await;
    assert!(who(&fresh).await.is_ok());
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(&who(&fresh).await.unwrap_err()), 401);
    assert_eq!(
        code(
            &request(
                &admin,
                "robot",
                json!({ "audiences": [], "expirationSeconds": 1 })
            )
            .await
            .unwrap_err()
        ),
        404
    );
}

#[tokio::test]
async fn secrets_of_service_accounts_are_filled_in() {
    let server = Server::builder().port(0).start().await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "old", "annotations": { "kubernetes.io/service-account.name": "default" } },
        "type": "kubernetes.io/service-account-token",
    }))
    .unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let filled = |secret: Option<&Secret>| {
        secret
            .and_then(|secret| secret.data.as_ref())
            .is_some_and(|data| data.contains_key("token"))
    };
    let secret = await_condition(secrets, "old", filled).await.unwrap().unwrap();
    let token = String::from_utf8(secret.data.unwrap()["token"].0.clone()).unwrap();
    let me = who(&with_token(&server, &token).await).await.unwrap();
    assert_eq!(
        me.username.as_deref(),
        Some("system:serviceaccount:default:default")
    );
}

#[tokio::test]
async fn approved_requests_become_certificates() {
    let clock = Clock::manual(Timestamp::now());
    let server = Server::builder()
        .port(0)
        .clock(clock.clone())
        .start()
        .await
        .unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut wish = rcgen::CertificateParams::new(Vec::new()).unwrap();
    wish.distinguished_name = rcgen::DistinguishedName::new();
    wish.distinguished_name
        .push(rcgen::DnType::OrganizationName, "agents");
    wish.distinguished_name.push(rcgen::DnType::CommonName, "agent-1");
    let pem = wish.serialize_request(&key).unwrap().pem().unwrap();

    let asker: Api<CertificateSigningRequest> = Api::all(server.client_as("asker", ["system:masters"]));
    let csr: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": { "name": "agent-1" },
        "spec": {
            "request": STANDARD.encode(&pem),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "key encipherment", "client auth"],
            "expirationSeconds": 3600,
            "username": "somebody-else",
        },
    }))
    .unwrap();
    let made = asker.create(&PostParams::default(), &csr).await.unwrap();
    assert_eq!(made.spec.username.as_deref(), Some("asker"));
    let verdict = json!({ "status": { "conditions": [{
        "type": "Approved", "status": "True", "reason": "Test", "message": "yes",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
    }] } });
    // The status is not where one approves.
    let refused = asker
        .patch_status("agent-1", &PatchParams::default(), &Patch::Merge(verdict.clone()))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("updates may not add a condition of type \"Approved\""),
        "{refused}"
    );
    asker
        .patch_approval("agent-1", &PatchParams::default(), &Patch::Merge(verdict))
        .await
        .unwrap();
    let signed = |csr: Option<&CertificateSigningRequest>| {
        csr.and_then(|csr| csr.status.as_ref())
            .is_some_and(|status| status.certificate.is_some())
    };
    let csr = await_condition(asker, "agent-1", signed).await.unwrap().unwrap();
    let certificate = csr.status.unwrap().certificate.unwrap().0;
    let mut config = config(&server).await;
    config.auth_info = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(certificate)),
        client_key_data: Some(STANDARD.encode(key.serialize_pem()).into()),
        ..AuthInfo::default()
    };
    let agent = Client::try_from(config).unwrap();
    let me = who(&agent).await.unwrap();
    assert_eq!(
        (me.username.as_deref(), me.groups),
        (
            Some("agent-1"),
            Some(vec!["agents".into(), "system:authenticated".into()])
        )
    );
    clock.advance(SignedDuration::from_hours(2));
    assert_eq!(code(&who(&agent).await.unwrap_err()), 401);
}

/// Many fit behind one write, and none of them slows another.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watchers_hear_of_one_write() {
    use futures::{StreamExt, TryStreamExt};
    let server = Server::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let start = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut watches = Vec::new();
    for _ in 0..1000 {
        let stream = maps
            .watch(&kube::api::WatchParams::default(), &start)
            .await
            .unwrap()
            .boxed();
        watches.push(tokio::spawn(async move {
            let mut stream = stream;
            stream.try_next().await.unwrap().unwrap()
        }));
    }
    // One that never reads.
    let _slow = maps
        .watch(&kube::api::WatchParams::default(), &start)
        .await
        .unwrap();
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "news" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    for watch in watches {
        assert!(matches!(watch.await.unwrap(), kube::api::WatchEvent::Added(_)));
    }
}

#[tokio::test]
async fn what_takes_too_long_is_not_done() {
    let server = Server::builder().start().await.unwrap();
    // Clients with a socket would try again.
    let client = server.client();
    let ask = async |method: &str, path: &str, body: serde_json::Value| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("Content-Type", "application/json");
        let answer = client.send(request.body(body.to_string().into_bytes().into()).unwrap());
        answer.await.unwrap().status().as_u16()
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = json!({ "metadata": { "name": "a" } });
    assert_eq!(
        ask("POST", &format!("{maps}?timeout=1ns"), made.clone()).await,
        504
    );
    assert_eq!(ask("GET", &format!("{maps}/a"), json!(null)).await, 404);
    assert_eq!(ask("POST", &format!("{maps}?timeout=1m"), made).await, 201);
    let changed = json!({ "metadata": { "name": "a" }, "data": { "b": "c" } });
    assert_eq!(ask("PUT", &format!("{maps}/a?timeout=1ns"), changed).await, 504);
    let kept = Api::<ConfigMap>::default_namespaced(client.clone());
    assert_eq!(kept.get("a").await.unwrap().data, None);

    // Somebody who is asked and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "silent" },
        "webhooks": [{
            "name": "silent.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
            "clientConfig": {
                "url": format!("https://{}", silent.local_addr().unwrap()), "caBundle": STANDARD.encode(server.ca()),
            },
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"] }],
        }],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(ask("POST", hooks, hook).await, 201);
    let secrets = "/api/v1/namespaces/default/secrets?timeout=300ms";
    assert_eq!(
        ask("POST", secrets, json!({ "metadata": { "name": "s" } })).await,
        504
    );
    assert_eq!(ask("POST", &format!("{maps}?timeout=1x"), json!({})).await, 400);
}

#[tokio::test]
async fn certificates_keep_all_groups_and_need_a_name() {
    let server = Server::builder().port(0).start().await.unwrap();
    let client = |user: &'static str| {
        let groups = ["a", "b"].map(str::to_owned);
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig_as(user, &groups).unwrap()).unwrap();
        async move {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .unwrap();
            Client::try_from(config).unwrap()
        }
    };
    let alice = who(&client("alice").await).await.unwrap();
    assert_eq!(alice.username.as_deref(), Some("alice"));
    assert_eq!(alice.groups.unwrap(), ["a", "b", "system:authenticated"]);
    // Anonymous, like somebody without a certificate: not refused, but with no rights.
    let nobody = who(&client("").await).await.unwrap_err();
    assert_eq!(code(&nobody), 403);
}
