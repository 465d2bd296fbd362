//! A live picture of a fleet: a table on a terminal, a line per change elsewhere.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, stream::select_all};
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde_json::Value;
use writ_fleet::Fleet;

use crate::{kinds, output};

/// What is shown: on the hub, and on the managed clusters.
const ON_HUB: [&str; 5] = ["clusters", "permissions", "works", "accounts", "sets"];
const ON_CLUSTERS: [&str; 2] = ["syncs", "reposyncs"];
/// A burst of changes is shown once.
const SETTLE: Duration = Duration::from_millis(200);

/// Where an object is, of which kind, and its name.
type Key = (String, &'static str, String);

/// Follows the fleet until the process ends.
pub async fn show(fleet: &Fleet) -> Result<()> {
    let mut streams = Vec::new();
    let hub = fleet.hub.admin().await?;
    for word in ON_HUB {
        streams.push(follow(hub.clone(), "hub", word)?);
    }
    for cluster in &fleet.clusters {
        let client = cluster.admin().await?;
        for word in ON_CLUSTERS {
            streams.push(follow(client.clone(), cluster.name(), word)?);
        }
    }
    let mut changes = select_all(streams).ready_chunks(256);
    let mut rows: BTreeMap<Key, String> = BTreeMap::new();
    let terminal = io::stdout().is_terminal();
    while let Some(chunk) = changes.next().await {
        for (key, state) in chunk {
            let before = match &state {
                Some(state) => rows.insert(key.clone(), state.clone()),
                None => rows.remove(&key),
            };
            if !terminal && before != state {
                let (place, word, name) = &key;
                println!(
                    "{place}: {word}/{name}: {}",
                    state.as_deref().unwrap_or("deleted")
                );
            }
        }
        if terminal {
            draw(&rows)?;
            tokio::time::sleep(SETTLE).await;
        }
    }
    Ok(())
}

fn follow(
    client: Client,
    place: &str,
    word: &'static str,
) -> Result<futures::stream::BoxStream<'static, (Key, Option<String>)>> {
    let kind = kinds::find(word)?;
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource);
    let place = place.to_owned();
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    Ok(events
        .filter_map(move |event| {
            let place = place.clone();
            async move {
                let key = |object: &DynamicObject| {
                    let name = match object.namespace() {
                        Some(namespace) => format!("{namespace}/{}", object.name_any()),
                        None => object.name_any(),
                    };
                    (place, word, name)
                };
                match event.ok()? {
                    Event::Apply(object) | Event::InitApply(object) => {
                        Some((key(&object), Some(state(&object))))
                    }
                    Event::Delete(object) => Some((key(&object), None)),
                    Event::Init | Event::InitDone => None,
                }
            }
        })
        .boxed())
}

/// The conditions in short: those that hold by name, those that do not with their reason.
fn state(object: &DynamicObject) -> String {
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let text = |condition: &Value, key: &str| {
        condition
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let words: Vec<String> = conditions
        .into_iter()
        .flatten()
        .map(|condition| match text(condition, "status").as_str() {
            "True" => text(condition, "type"),
            status if text(condition, "reason").is_empty() => {
                format!("{}={status}", text(condition, "type"))
            }
            status => format!(
                "{}={status} ({})",
                text(condition, "type"),
                text(condition, "reason")
            ),
        })
        .collect();
    if words.is_empty() {
        "no conditions yet".into()
    } else {
        words.join(", ")
    }
}

fn draw(rows: &BTreeMap<Key, String>) -> Result<()> {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|((place, word, name), state)| {
            vec![place.clone(), (*word).to_owned(), name.clone(), state.clone()]
        })
        .collect();
    let mut out = io::stdout().lock();
    // Clears the screen and starts at its top.
    write!(
        out,
        "\x1b[2J\x1b[H{}",
        output::table(&["WHERE", "KIND", "NAME", "STATE"], &cells)
    )?;
    out.flush()?;
    Ok(())
}
