//! What needs an API server that calls back: webhooks, leases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use axum::{Json, Router, routing::post};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{
        DynamicObject,
        admission::{AdmissionResponse, AdmissionReview},
    },
    runtime::wait::await_condition,
};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use writ_controller::health::Health;
use writ_process::{
    lease,
    webhook::{self, Configurations, Options, Source, Target, Timing},
};
use writ_testenv::{ControlPlane, harness};

fn main() {
    harness::run(vec![
        harness::real("webhooks_of_two_replicas_share_a_ca_and_rotate_it", two_replicas),
        harness::real(
            "a_ca_is_replaced_while_two_replicas_serve",
            replaced_while_serving,
        ),
        harness::real("certificates_from_files_are_followed", certificates_from_files),
        harness::real("a_lease_in_an_api_server_elects_one", lease_elects_one),
    ]);
}

async fn start() -> Result<ControlPlane> {
    ControlPlane::start(writ_testenv::Options {
        controllers: false,
        ..Default::default()
    })
    .await
}

/// Refuses ConfigMaps with the label `refuse`, and says which replica did.
fn router(replica: &'static str) -> Router {
    Router::new().route(
        "/configmaps",
        post(
            move |Json(review): Json<AdmissionReview<DynamicObject>>| async move {
                let request: kube::core::admission::AdmissionRequest<DynamicObject> =
                    review.try_into().unwrap();
                let mut response = AdmissionResponse::from(&request);
                if request
                    .object
                    .as_ref()
                    .is_some_and(|object| object.labels().contains_key("refuse"))
                {
                    response = response.deny(format!("refused by {replica}"));
                }
                Json(response.into_review())
            },
        ),
    )
}

fn configurations() -> Configurations {
    let validating: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "test.writ.dev"},
        "webhooks": [{
            "name": "configmaps.test.writ.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "", "name": "", "path": "/configmaps"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }],
    }))
    .unwrap();
    Configurations {
        validating: vec![validating],
        ..Configurations::default()
    }
}

async fn replica(client: Client, name: &'static str, timing: Timing) -> Result<CancellationToken> {
    replica_from(client, name, shared_ca(), timing).await
}

fn shared_ca() -> Source {
    Source::Secret {
        namespace: "default".into(),
        name: "webhook-ca".into(),
    }
}

async fn replica_from(
    client: Client,
    name: &'static str,
    source: Source,
    timing: Timing,
) -> Result<CancellationToken> {
    let options = Options {
        listen: "127.0.0.1:0".parse()?,
        target: Target::Url(None),
        source,
        timing,
    };
    run_replica(client, name, options).await
}

async fn run_replica(client: Client, name: &'static str, options: Options) -> Result<CancellationToken> {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let (stop, ready) = (shutdown.clone(), health.clone());
    tokio::spawn(async move {
        webhook::run(client, options, configurations(), router(name), &health, shutdown)
            .await
            .unwrap();
    });
    ready.ready().await;
    Ok(stop)
}

async fn refused(client: &Client) -> Result<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = serde_json::from_value(json!({"metadata": {"generateName": "m-", "labels": {"refuse": "1"}}}))?;
    let answer = api.create(&PostParams::default(), &map).await;
    Ok(answer.err().context("the webhook was not asked")?.to_string())
}

async fn two_replicas() -> Result<()> {
    let plane = start().await?;
    let client = plane.client()?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());

    let first = replica(client.clone(), "one", Timing::default()).await?;
    ensure!(until(&client, "refused by one").await);
    let ca = secrets.get("webhook-ca").await?.data.unwrap()["ca.crt"].clone();
    // The second replica has its own address, but the same CA.
    let second = replica(client.clone(), "two", Timing::default()).await?;
    ensure!(
        secrets.get("webhook-ca").await?.data.unwrap()["ca.crt"] == ca,
        "both replicas share the CA"
    );

    // Only one of the two writes its own address last; whichever it is, an edit is undone.
    let broken = json!({"webhooks": [{"name": "configmaps.test.writ.dev", "admissionReviewVersions": ["v1"],
        "sideEffects": "None", "failurePolicy": "Ignore", "clientConfig": {"url": "https://127.0.0.1:1/x"}}]});
    second.cancel();
    hooks
        .patch("test.writ.dev", &PatchParams::default(), &Patch::Merge(&broken))
        .await?;
    ensure!(
        until(&client, "refused by one").await,
        "an edited configuration is restored"
    );
    hooks.delete("test.writ.dev", &DeleteParams::default()).await?;
    ensure!(
        until(&client, "refused by one").await,
        "a deleted configuration is restored"
    );

    // A CA that is near its end is replaced while both are trusted.
    first.cancel();
    let short = Timing {
        ca: Duration::from_hours(24 * 365 * 8),
        serving: Duration::from_hours(1),
        ..Timing::default()
    };
    let third = replica(client.clone(), "three", short).await?;
    ensure!(until(&client, "refused by three").await);
    let bundle = secrets.get("webhook-ca").await?.data.unwrap()["ca.crt"].clone();
    let (old, new) = (String::from_utf8(ca.0)?, String::from_utf8(bundle.0)?);
    ensure!(
        new != old && new.ends_with(&old),
        "the new CA comes first, the old one stays"
    );

    // A damaged Secret is repaired.
    let damage = Secret {
        data: Some([("ca.crt".to_owned(), ByteString(b"junk".to_vec()))].into()),
        ..Default::default()
    };
    secrets
        .patch("webhook-ca", &PatchParams::default(), &Patch::Merge(&damage))
        .await?;
    await_condition(secrets, "webhook-ca", |secret: Option<&Secret>| {
        secret
            .and_then(|s| s.data.as_ref())
            .is_some_and(|d| d["ca.crt"].0.starts_with(b"-----BEGIN"))
    })
    .await?;
    ensure!(until(&client, "refused by three").await);
    third.cancel();
    Ok(())
}

/// One address for several servers, as a Service has: each connection goes to the next of them.
async fn shared_address(servers: Vec<SocketAddr>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    tokio::spawn(async move {
        for server in servers.into_iter().cycle() {
            let (mut from, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut to = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    Ok(url)
}

/// Two replicas behind one address, and a CA that lives for seconds: whatever they replace, each request is answered.
async fn replaced_while_serving() -> Result<()> {
    let plane = start().await?;
    let client = plane.client()?;
    // Ports that are free now.
    let free = async || -> Result<SocketAddr> { Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?) };
    let (one, two) = (free().await?, free().await?);
    let url = shared_address(vec![one, two]).await?;
    let life = Duration::from_secs(18);
    for (name, listen) in [("one", one), ("two", two)] {
        let options = Options {
            listen,
            target: Target::Url(Some(url.clone())),
            source: shared_ca(),
            timing: Timing {
                ca: life,
                serving: life,
                ..Timing::default()
            },
        };
        run_replica(client.clone(), name, options).await?;
    }
    ensure!(until(&client, "refused by").await);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let mut seen = std::collections::BTreeSet::new();
    let end = Instant::now() + life * 3;
    while seen.len() < 3 {
        ensure!(Instant::now() < end, "the CA was replaced {} times", seen.len());
        let answer = refused(&client).await?;
        ensure!(answer.contains("refused by"), "{answer}");
        seen.insert(secrets.get("webhook-ca").await?.data.unwrap()["ca.crt"].clone().0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Writes what cert-manager writes: a serving certificate, its key, and the CA that signed it.
fn write_certificates(folder: &std::path::Path) -> Result<String> {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?.pem();
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(authority, authority_key);
    let serving = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    std::fs::write(folder.join("ca.crt"), &ca)?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    std::fs::write(folder.join("tls.crt"), serving.pem())?;
    Ok(ca)
}

async fn certificates_from_files() -> Result<()> {
    let plane = start().await?;
    let client = plane.client()?;
    let folder = tempfile::tempdir()?;
    let missing = Options {
        listen: "127.0.0.1:0".parse()?,
        target: Target::Url(None),
        source: Source::Folder(folder.path().into()),
        timing: Timing::default(),
    };
    let error = webhook::run(
        client.clone(),
        missing,
        configurations(),
        router("files"),
        &Health::default(),
        CancellationToken::new(),
    )
    .await
    .expect_err("there are no certificates yet");
    ensure!(
        error.to_string().contains("tls.crt"),
        "the missing file is named: {error}"
    );

    write_certificates(folder.path())?;
    let timing = Timing {
        files: Duration::from_millis(100),
        ..Timing::default()
    };
    let source = Source::Folder(folder.path().into());
    let stop = replica_from(client.clone(), "files", source, timing).await?;
    ensure!(until(&client, "refused by files").await);

    // New certificates of a new CA are taken up without a restart.
    let ca = write_certificates(folder.path())?;
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    await_condition(
        hooks,
        "test.writ.dev",
        |hook: Option<&ValidatingWebhookConfiguration>| {
            let bundle =
                hook.and_then(|hook| hook.webhooks.as_ref()?.first()?.client_config.ca_bundle.as_ref());
            bundle.is_some_and(|bundle| bundle.0 == ca.as_bytes())
        },
    )
    .await?;
    ensure!(until(&client, "refused by files").await);
    stop.cancel();
    Ok(())
}

/// Whether the API server comes to answer with these words; it takes up new configurations with a short delay.
async fn until(client: &Client, words: &str) -> bool {
    let mut last = String::new();
    for _ in 0..200 {
        last = refused(client).await.unwrap_or_else(|error| error.to_string());
        if last.contains(words) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("the last answer was: {last}");
    false
}

async fn lease_elects_one() -> Result<()> {
    let plane = start().await?;
    let client = plane.client()?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let timing = lease::Timing {
        retry: Duration::from_millis(200),
        ..Default::default()
    };
    let lead = |identity: &str| {
        let candidate = lease::Candidate::new(client.clone(), "default", "writ-hub", identity.into(), timing);
        let (stop, (leading, is_leading)) = (CancellationToken::new(), tokio::sync::watch::channel(false));
        let token = stop.clone();
        tokio::spawn(candidate.run(token, move |lost| {
            let leading = leading.clone();
            async move {
                leading.send_replace(true);
                lost.cancelled().await;
                leading.send_replace(false);
            }
        }));
        (stop, is_leading)
    };
    let (stop_one, mut one) = lead("one");
    one.wait_for(|leading| *leading).await?;
    let (_stop_two, mut two) = lead("two");
    ensure!(!*two.borrow());
    ensure!(
        leases
            .get("writ-hub")
            .await?
            .spec
            .unwrap()
            .holder_identity
            .as_deref()
            == Some("one")
    );
    stop_one.cancel();
    tokio::time::timeout(Duration::from_secs(10), two.wait_for(|leading| *leading)).await??;
    ensure!(!*one.borrow());
    let spec = leases.get("writ-hub").await?.spec.unwrap();
    ensure!(spec.holder_identity.as_deref() == Some("two") && spec.lease_transitions == Some(1));
    Ok(())
}
