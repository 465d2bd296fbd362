//! A live table of a fleet on a terminal; a line per change elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anyhow::Result;
use console::{Term, truncate_str};
use futures::{
    StreamExt,
    stream::{self, BoxStream, select_all},
};
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

use super::log_screen;
use crate::{connect::words, kinds, output};

/// The kinds that are followed on the hub, and on the managed clusters.
const ON_HUB: [&str; 5] = ["clusters", "permissions", "works", "accounts", "sets"];
const ON_CLUSTERS: [&str; 2] = ["syncs", "reposyncs"];
/// Changes within this time are drawn together.
const SETTLE: Duration = Duration::from_millis(200);

/// The cluster of an object, its kind, and its name.
type Key = (String, &'static str, String);
/// The name of the row that reports a failed watch.
const WATCH_FAILED: &str = "";

/// A change of the table.
enum Change {
    /// The new state of an object; `None` if it is deleted.
    Row(Key, Option<String>),
    /// All objects of a kind on a cluster, by name: other rows are stale, their deletions were missed.
    Only(String, &'static str, BTreeSet<String>),
}

/// Follows the fleet until the process ends. The greeting stays above the table, the last log lines below it.
pub async fn show(fleet: &Fleet, greeting: &str) -> Result<()> {
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
    let screen = io::stdout().is_terminal().then(log_screen::take);
    while let Some(chunk) = changes.next().await {
        for change in chunk {
            for (key, state) in apply(&mut rows, change) {
                if screen.is_none() {
                    let (place, word, name) = &key;
                    let state = output::clean(state.as_deref().unwrap_or("deleted"));
                    println!("{place}: {word}/{name}: {state}");
                }
            }
        }
        if let Some(screen) = &screen {
            let (height, width) = Term::stdout().size();
            draw(&render(
                greeting,
                &rows,
                &screen.last(),
                height.into(),
                width.into(),
            ))?;
            tokio::time::sleep(SETTLE).await;
        }
    }
    Ok(())
}

/// Applies a change to the rows. Returns the rows that differ.
fn apply(rows: &mut BTreeMap<Key, String>, change: Change) -> Vec<(Key, Option<String>)> {
    match change {
        Change::Row(key, state) => {
            let before = match &state {
                Some(state) => rows.insert(key.clone(), state.clone()),
                None => rows.remove(&key),
            };
            if before == state {
                Vec::new()
            } else {
                vec![(key, state)]
            }
        }
        Change::Only(place, word, names) => {
            let gone = |key: &Key| key.0 == place && key.1 == word && !names.contains(&key.2);
            let gone: Vec<Key> = rows.keys().filter(|key| gone(key)).cloned().collect();
            rows.retain(|key, _| !gone.contains(key));
            gone.into_iter().map(|key| (key, None)).collect()
        }
    }
}

fn follow(client: Client, place: &str, word: &'static str) -> Result<BoxStream<'static, Change>> {
    let kind = kinds::find(word)?;
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource);
    let place = place.to_owned();
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut listed = BTreeSet::new();
    let changes = events.map(move |event| {
        let key = |name: String| (place.clone(), word, name);
        match event {
            Ok(Event::Apply(object)) => vec![Change::Row(key(name(&object)), Some(state(&object)))],
            Ok(Event::Delete(object)) => vec![Change::Row(key(name(&object)), None)],
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(name(&object));
                vec![Change::Row(key(name(&object)), Some(state(&object)))]
            }
            Ok(Event::InitDone) => vec![Change::Only(place.clone(), word, std::mem::take(&mut listed))],
            // The next complete list removes this row.
            Err(error) => {
                let message = format!("not up to date: {}", words(&error.into()));
                vec![Change::Row(key(WATCH_FAILED.into()), Some(message))]
            }
        }
    });
    Ok(changes.flat_map(stream::iter).boxed())
}

fn name(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// The conditions in short: those that are not True with their reason, then the others by name. The last condition comes
/// first, as it usually sums up the others and lines are cut at the edge of the screen.
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
    let mut words: Vec<String> = conditions
        .into_iter()
        .flatten()
        .rev()
        // `Stalled=False` without a reason is as it should be.
        .filter(|condition| text(condition, "status") == "True" || !text(condition, "reason").is_empty())
        .map(|condition| match text(condition, "status").as_str() {
            "True" => text(condition, "type"),
            status => format!(
                "{}={status} ({})",
                text(condition, "type"),
                text(condition, "reason")
            ),
        })
        .collect();
    words.sort_by_key(|word| !word.contains('='));
    if conditions.is_none_or(Vec::is_empty) {
        "no conditions yet".into()
    } else if words.is_empty() {
        "ok".into()
    } else {
        words.join(", ")
    }
}

/// The screen of this height and width: the greeting, as many rows as fit, and the last log lines.
fn render(
    greeting: &str,
    rows: &BTreeMap<Key, String>,
    logs: &[String],
    height: usize,
    width: usize,
) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|((place, word, name), state)| {
            vec![
                place.clone(),
                (*word).to_owned(),
                name.clone(),
                state.replace('\n', "; "),
            ]
        })
        .collect();
    let table = output::table(&["WHERE", "KIND", "NAME", "STATE"], &cells);
    let mut lines: Vec<&str> = greeting.lines().chain(table.lines()).collect();
    // The last line stays free, so that the screen does not scroll.
    let room = height.saturating_sub(1 + logs.len());
    let hidden = lines.len().saturating_sub(room);
    let more = format!("... and {} more; `writ get` lists them", hidden + 1);
    if hidden > 0 {
        lines.truncate(room.saturating_sub(1));
        lines.push(&more);
    }
    lines.extend(logs.iter().map(String::as_str));
    let lines: Vec<_> = lines.iter().map(|line| truncate_str(line, width, "…")).collect();
    lines.join("\n") + "\n"
}

fn draw(screen: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    // Clears the screen and starts at its top.
    write!(out, "\x1b[2J\x1b[H{screen}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_table_keeps_greeting_and_fits_the_screen() {
        let greeting = "export KUBECONFIG=/tmp/x\n\nCtrl-C stops the fleet.\n";
        let rows: BTreeMap<Key, String> = (0..50)
            .map(|n| {
                (
                    ("hub".to_owned(), "works", format!("work-{n:02}")),
                    "Applied ".repeat(30),
                )
            })
            .collect();
        let picture = render(greeting, &rows, &[], 24, 80);
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines.first(), Some(&"export KUBECONFIG=/tmp/x"));
        assert_eq!(lines.len(), 23);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{picture}");
        assert!(lines.last().unwrap().starts_with("... and 32 more"), "{picture}");
        let all = render(greeting, &rows, &[], 60, 80);
        assert!(all.contains("work-49") && !all.contains("more;"), "{all}");
        let logs = ["WARN something".to_owned(), "WARN else".to_owned()];
        let logged = render(greeting, &rows, &logs, 24, 80);
        assert!(logged.ends_with("WARN something\nWARN else\n"), "{logged}");
        assert_eq!(logged.lines().count(), 23);
    }

    #[test]
    fn conditions_that_are_not_true_come_first() {
        let told = |conditions: &[(&str, &str, &str)]| {
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|(kind, status, reason)| serde_json::json!({"type": kind, "status": status, "reason": reason}))
                .collect();
            let object = serde_json::json!({"metadata": {}, "status": {"conditions": conditions}});
            state(&serde_json::from_value(object).unwrap())
        };
        let made = ("Created", "True", "Made");
        assert_eq!(
            told(&[made, ("Sent", "True", "Sent"), ("Ready", "True", "All")]),
            "Ready, Sent, Created"
        );
        assert_eq!(
            told(&[made, ("Sent", "False", "Refused"), ("Stalled", "False", "")]),
            "Sent=False (Refused), Created"
        );
        assert_eq!(told(&[]), "no conditions yet");
    }

    #[test]
    fn rows_missing_from_a_complete_list_are_removed() {
        let key = |place: &str, name: &str| (place.to_owned(), "works", name.to_owned());
        let mut rows = BTreeMap::new();
        let all = [("hub", "a"), ("hub", "b"), ("hub", WATCH_FAILED), ("other", "a")];
        for (place, name) in all {
            let row = Change::Row(key(place, name), Some("ok".into()));
            assert_eq!(apply(&mut rows, row).len(), 1);
        }
        let again = Change::Row(key("hub", "a"), Some("ok".into()));
        assert!(apply(&mut rows, again).is_empty(), "nothing changed");
        let only = Change::Only("hub".into(), "works", ["b".to_owned()].into());
        let gone = apply(&mut rows, only);
        assert_eq!(gone, [(key("hub", WATCH_FAILED), None), (key("hub", "a"), None)]);
        let left: Vec<_> = rows.into_keys().collect();
        assert_eq!(left, [key("hub", "b"), key("other", "a")]);
    }
}
