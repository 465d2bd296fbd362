//! Servers that answer badly, and agents that end at the wrong moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Result, ensure};
use http::{Method, Request, Response, StatusCode};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};
use tower::BoxError;
use writ_agent::options::WorkOptions;
use writ_controller::condition::find;

use super::support::{
    accept, agent, change, condition, config_map, config_maps, create, gone, holds, spoke, status_of, works,
};
use crate::{Fleet, fleet::Running, wait, yaml};

/// What becomes of a request on its way.
enum Fate {
    Passes,
    Fails(u16),
    Hangs,
}

/// The agent of `cluster1`, with somebody between it and its cluster.
async fn agent_behind(
    fleet: &Fleet,
    options: WorkOptions,
    fate: impl Fn(&Method, &str) -> Fate + Clone + Send + Sync + 'static,
) -> Result<Running> {
    accept(fleet, "cluster1").await?;
    let options = writ_agent::Options {
        controllers: vec!["work".into()],
        work: options,
        ..writ_agent::Options::default()
    };
    let between = |client: Client| {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (fate, client) = (fate(request.method(), request.uri().path()), client.clone());
            async move {
                match fate {
                    Fate::Passes => client.send(request).await.map_err(BoxError::from),
                    Fate::Hangs => std::future::pending().await,
                    Fate::Fails(code) => {
                        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                            "message": "not now", "reason": "ServiceUnavailable"});
                        let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                        *answer.status_mut() = StatusCode::from_u16(code)?;
                        Ok(answer)
                    }
                }
            }
        });
        Client::new(service, "default")
    };
    fleet.run_agent_through(1, options, between).await
}

const TOYS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.broken.example.com}
spec:
  group: broken.example.com
  names: {kind: Toy, plural: toys}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn of(manifests: &[Value]) -> Value {
    json!({"workload": {"manifests": manifests}})
}

/// A group whose server is away holds up neither what else a work delivers, nor other works, nor what is taken away.
pub async fn unavailable_group(fleet: Fleet) -> Result<()> {
    let (works, client) = {
        accept(&fleet, "cluster1").await?;
        (works(&fleet).await?, spoke(&fleet).await?)
    };
    yaml::apply(&client, TOYS).await?;
    let maps = config_maps(&client, "default");
    let away = Arc::new(AtomicBool::new(false));
    let fate = {
        let away = away.clone();
        move |_: &Method, path: &str| {
            let broken = path.starts_with("/apis/broken.example.com") && away.load(Ordering::SeqCst);
            if broken { Fate::Fails(503) } else { Fate::Passes }
        }
    };
    let running = agent_behind(&fleet, WorkOptions::default(), fate.clone()).await?;
    let toy = |name: &str, spec: &Value| {
        json!({"apiVersion": "broken.example.com/v1", "kind": "Toy",
        "metadata": {"namespace": "default", "name": name}, "spec": spec})
    };
    let toys = |spec: &Value| -> Vec<Value> { (0..30).map(|n| toy(&format!("toy{n}"), spec)).collect() };
    create(
        &works,
        "old",
        of(&[config_map("default", "old", "1"), toy("old", &json!({}))]),
    )
    .await?;
    create(&works, "toys", of(&toys(&json!({})))).await?;
    create(&works, "plain", of(&[config_map("default", "plain", "1")])).await?;
    for name in ["old", "toys", "plain"] {
        condition(&works, name, "Applied", "True").await?;
    }

    away.store(true, Ordering::SeqCst);
    // All that are to be written again wait in vain.
    change(&works, "toys", json!({"spec": of(&toys(&json!({"a": 1})))})).await?;
    create(
        &works,
        "new",
        of(&[config_map("default", "new", "1"), toy("new", &json!({}))]),
    )
    .await?;
    holds(&maps, "new", "1").await?;
    condition(&works, "new", "Applied", "False").await?;
    let drift = Patch::Merge(json!({"data": {"key": "2"}}));
    maps.patch("plain", &PatchParams::default(), &drift).await?;
    holds(&maps, "plain", "1").await?;

    // Nobody remembers what was there: what can be found out is enough.
    running.stop().await?;
    works.delete("old", &DeleteParams::default()).await?;
    let _agent = agent_behind(&fleet, WorkOptions::default(), fate).await?;
    gone(&maps, "old").await?;
    ensure!(works.get_opt("old").await?.is_some(), "its toy is still there");
    away.store(false, Ordering::SeqCst);
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("old").await?.is_none())
    })
    .await?;
    for name in ["new", "toys"] {
        condition(&works, name, "Applied", "True").await?;
    }
    Ok(())
}

/// An agent that ends in the middle of a work leaves nothing behind that the next one does not know of.
pub async fn ends_in_the_middle(fleet: Fleet) -> Result<()> {
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let running = agent_behind(&fleet, WorkOptions::default(), |method, path| {
        let hangs = *method != Method::GET && path.contains("/services");
        if hangs { Fate::Hangs } else { Fate::Passes }
    })
    .await?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "s"},
        "spec": {"ports": [{"port": 80}]}});
    let (first, second) = (
        config_map("default", "first", "1"),
        config_map("default", "second", "1"),
    );
    create(&works, "w", of(&[first, second.clone(), service.clone()])).await?;
    holds(&maps, "first", "1").await?;
    holds(&maps, "second", "1").await?;
    running.stop().await?;
    change(&works, "w", json!({"spec": of(&[second, service])})).await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    condition(&works, "w", "Applied", "True").await?;
    gone(&maps, "first").await?;
    holds(&maps, "second", "1").await?;
    Ok(())
}

/// What the server does not let anybody watch is looked at, and the work says so.
pub async fn unwatchable(fleet: Fleet) -> Result<()> {
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let options = WorkOptions {
        status_sync_interval: Some(std::time::Duration::from_secs(1)),
        ..WorkOptions::default()
    };
    let _agent = agent_behind(&fleet, options, |method, path| {
        let lists = *method == Method::GET && path.ends_with("/configmaps");
        if lists { Fate::Fails(405) } else { Fate::Passes }
    })
    .await?;
    create(&works, "w", of(&[config_map("default", "m", "1")])).await?;
    let work = condition(&works, "w", "Watched", "False").await?;
    let conditions = status_of(&work).conditions;
    let said = find(&conditions, "Watched")
        .map(|c| c.message.clone())
        .unwrap_or_default();
    ensure!(
        said.contains("the server offers no watch on configmaps in namespace default"),
        "{said}"
    );
    let drift = Patch::Merge(json!({"data": {"key": "2"}}));
    maps.patch("m", &PatchParams::default(), &drift).await?;
    holds(&maps, "m", "1").await?;
    Ok(())
}

/// A work that is on its way out ends also where the agent is called otherwise by then.
pub async fn renamed(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    create(&works, "w", of(&[config_map("default", "m", "1")])).await?;
    condition(&works, "w", "Applied", "True").await?;
    running.stop().await?;
    works.delete("w", &DeleteParams::default()).await?;
    let options = writ_agent::Options {
        work: WorkOptions {
            agent_id: Some("other".into()),
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("w").await?.is_none())
    })
    .await?;
    gone(&maps, "m").await
}
