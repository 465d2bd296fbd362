//! A repository behind HTTPS, with a certificate authority and a token from Secrets.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use writ_testenv::git_http::{self, Access};

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, config_map, namespace, until, value};

/// The wrong certificate, the wrong token, the right ones; then tags, forced pushes and a branch that is gone.
pub async fn token_and_ca(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("https")).await?;
    let access = Access {
        tls: true,
        credentials: Some("reader:s3cret".into()),
    };
    let folder = case.repo.path();
    let served = git_http::serve(folder.parent().context("no folder")?.into(), access).await?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let (url, ca) = (format!("{}/{name}", served.url), served.ca.unwrap_or_default());
    let one = case
        .repo
        .commit("main", &[("a.yaml", config_map("https", "a", "1"))])?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" },
    }}}))
    .await?;
    let error = |text: &'static str| {
        let case = &case;
        async move {
            case.when("https", text, |status| {
                status["source"]["errors"][0]["errorMessage"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(text)
            })
            .await
        }
    };
    error("git-token").await?;
    let secret = |name: &str, data: serde_json::Value| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": SYSTEM }, "stringData": data }).to_string()
    };
    apply(
        &case.admin,
        &secret("git-token", json!({ "username": "reader", "token": "wrong" })),
    )
    .await?;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?
        .cert
        .pem();
    apply(&case.admin, &secret("git-ca", json!({ "cert": other }))).await?;
    error("certificate").await?;
    apply(&case.admin, &secret("git-ca", json!({ "cert": ca }))).await?;
    let status = error("401").await?;
    ensure!(
        !status.to_string().contains("wrong"),
        "the token is in the status"
    );
    apply(
        &case.admin,
        &secret("git-token", json!({ "username": "reader", "token": "s3cret" })),
    )
    .await?;
    case.synced("https", &one).await?;
    // By force, twice: the clone follows.
    for value in ["2", "3"] {
        let next = case
            .repo
            .commit("main", &[("a.yaml", config_map("https", "a", value))])?;
        case.synced("https", &next).await?;
    }
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "https");
    until("the last value", || async {
        Ok((value(&maps.get("a").await?) == "3").then_some(()))
    })
    .await?;
    // A tag, and a commit that no branch names any more but that was fetched.
    case.repo.tag("v1", &one)?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" }, "revision": "v1",
    }}}))
    .await?;
    case.synced("https", &one).await?;
    case.repo.remove_branch("main")?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" },
    }}}))
    .await?;
    error("no branch \"main\"").await?;
    // Whoever leaves out the credentials reads nothing of what was fetched with them.
    let elsewhere = json!({ "repo": "http://127.0.0.1:1/nowhere", "revision": one });
    case.root_sync("https", json!({ "spec": { "git": elsewhere }}))
        .await?;
    error("127.0.0.1:1/nowhere").await?;
    unchecked_and_moved(&case, &url).await
}

/// Without a look at the certificate; and at an address that has moved.
async fn unchecked_and_moved(case: &Case, url: &str) -> Result<()> {
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("https", "b", "1"))])?;
    let git =
        json!({ "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "noSSLVerify": true });
    case.root_sync("unchecked", json!({ "spec": { "git": git }}))
        .await?;
    // The first sync of this repository may have the object; that the commit was read is all that matters.
    let read = |status: &serde_json::Value| status["source"]["commit"] == commit.as_str();
    case.when("unchecked", "the commit, whatever the certificate", read)
        .await?;
    let folder = case.repo.path();
    let open = git_http::serve(folder.parent().context("no folder")?.into(), Access::default()).await?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let door = Redirect::to(open.url.clone()).await?;
    let moved = case.another()?;
    let git = json!({ "repo": format!("http://{}/{name}", door.address) });
    moved.root_sync("moved", json!({ "spec": { "git": git }})).await?;
    moved
        .when("moved", "the commit behind the redirect", read)
        .await?;
    Ok(())
}

/// Answers everything with where it is now.
struct Redirect {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Redirect {
    async fn to(base: String) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let base = base.clone();
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let read = stream.read(&mut head).await.unwrap_or_default();
                    head.truncate(read);
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or("/");
                    let answer = format!(
                        "HTTP/1.1 302 Found\r\nlocation: {base}{path}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        self.task.abort();
    }
}
