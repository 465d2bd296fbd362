use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, client::Body, runtime::watcher::Event as Watched};
use serde_json::{Value, json};

use super::{feed::Feed, *};
use crate::tolerant::Tolerant;

fn client() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    Client::new(service, "default")
}

fn watch() -> Watch<ConfigMap> {
    Watch::new(Api::all(client()))
}

fn object(name: &str, version: u64) -> Tolerant<ConfigMap> {
    with_data(name, version, &json!({"version": version.to_string()}))
}

fn with_data(name: &str, version: u64, data: &Value) -> Tolerant<ConfigMap> {
    let uid = format!("uid of {name}");
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()});
    serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
}

fn list(feed: &mut Feed<ConfigMap, ConfigMap>, objects: impl IntoIterator<Item = Tolerant<ConfigMap>>) {
    feed.feed(Watched::Init);
    for object in objects {
        feed.feed(Watched::InitApply(object));
    }
    feed.feed(Watched::InitDone);
}

fn version_of(cache: &Cache<ConfigMap>, name: &str) -> Option<String> {
    let object = cache.get(&Name::new("ns", name))?;
    object.data.as_ref()?.get("version").cloned()
}

/// What a subscriber hears, one line per event.
fn log_of(cache: &Cache<ConfigMap>) -> (Arc<Mutex<Vec<String>>>, Subscription) {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = log.clone();
    let subscription = cache.subscribe(move |event| {
        let version = |object: Option<Arc<ConfigMap>>| {
            let version = object.and_then(|object| object.metadata.resource_version.clone());
            version.unwrap_or_else(|| "-".into())
        };
        let line = match event {
            Event::Listed => "listed".to_owned(),
            Event::Interrupted => "interrupted".to_owned(),
            Event::Changed(change) => {
                format!(
                    "{} {}->{}",
                    change.name.name,
                    version(change.old()),
                    version(change.new.clone())
                )
            }
        };
        lines.lock().unwrap().push(line);
    });
    (log, subscription)
}

fn drain(log: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn relist_removes_what_it_does_not_show() {
    for watch in [watch(), watch().compressed()] {
        let (cache, mut feed) = watch.open();
        let (log, _subscription) = log_of(&cache);
        feed.feed(Watched::Init);
        feed.feed(Watched::InitApply(object("a", 1)));
        assert!(!cache.is_ready(), "the list is not complete");
        feed.feed(Watched::InitApply(object("b", 2)));
        feed.feed(Watched::InitDone);
        cache.ready().await;
        assert_eq!(drain(&log), ["a -->1", "b -->2", "listed"]);
        list(&mut feed, [object("b", 2)]);
        assert_eq!(drain(&log), ["a 1->-", "listed"]);
        assert_eq!(cache.names(), [Name::new("ns", "b")]);
        assert_eq!(version_of(&cache, "b").as_deref(), Some("2"));
        feed.feed(Watched::Delete(object("b", 3)));
        assert_eq!(drain(&log), ["b 2->-"]);
        assert!(cache.is_empty());
    }
}

#[tokio::test]
async fn older_event_does_not_undo_own_write() {
    let (cache, mut feed) = watch().open();
    list(&mut feed, [object("a", 1)]);
    assert!(cache.record(object("a", 5).readable().unwrap()).unwrap());
    feed.feed(Watched::Apply(object("a", 3)));
    assert_eq!(version_of(&cache, "a").as_deref(), Some("5"));
    feed.feed(Watched::Apply(object("a", 6)));
    assert_eq!(version_of(&cache, "a").as_deref(), Some("6"));
    // The deletion of an earlier object of the name.
    let mut former = object("a", 4).readable().unwrap();
    former.metadata.uid = Some("another".into());
    let former = serde_json::from_value(serde_json::to_value(former).unwrap()).unwrap();
    feed.feed(Watched::Delete(former));
    assert_eq!(version_of(&cache, "a").as_deref(), Some("6"));
}

#[tokio::test]
async fn object_that_does_not_parse_counts_as_absent_and_is_never_taken_for_the_whole() {
    let (cache, mut feed) = watch().open();
    let name = Name::new("ns", "a");
    list(&mut feed, [object("a", 1), object("b", 1)]);
    let (log, _subscription) = log_of(&cache);
    drain(&log);
    feed.feed(Watched::Apply(with_data("a", 2, &json!("no map"))));
    assert_eq!(drain(&log), ["a 1->-"]);
    assert!(cache.get(&name).is_none() && cache.contains(&name));
    let (part, problem) = cache.partial(&name).unwrap();
    assert_eq!(part.metadata.name.as_deref(), Some("a"));
    assert!(problem.unwrap().contains("invalid type"));
    assert_eq!(cache.all().len(), 1);
    feed.feed(Watched::Apply(object("a", 3)));
    assert!(cache.partial(&name).unwrap().1.is_none());
}

#[tokio::test]
async fn late_subscriber_hears_of_what_is_there_and_nothing_once_dropped() {
    let (cache, mut feed) = watch().open();
    list(&mut feed, [object("a", 1)]);
    let (log, subscription) = log_of(&cache);
    assert_eq!(drain(&log), ["a -->1", "listed"]);
    drop(subscription);
    feed.feed(Watched::Apply(object("a", 2)));
    assert!(drain(&log).is_empty());
}

#[tokio::test]
async fn late_subscriber_hears_that_the_watch_is_interrupted() {
    let (cache, mut feed) = watch().open();
    list(&mut feed, [object("a", 1)]);
    cache.interrupted();
    let (log, _subscription) = log_of(&cache);
    assert_eq!(drain(&log), ["a -->1", "listed", "interrupted"]);
    list(&mut feed, [object("a", 1)]);
    let (late, _subscription) = log_of(&cache);
    assert_eq!(drain(&late), ["a -->1", "listed"]);
}

#[tokio::test]
async fn own_write_is_told_apart_from_its_echo() {
    let (cache, mut feed) = watch().open();
    let recorded: Arc<Mutex<Vec<bool>>> = Arc::default();
    let heard = recorded.clone();
    let _subscription = cache.subscribe(move |event| {
        if let Event::Changed(change) = event {
            heard.lock().unwrap().push(change.recorded);
        }
    });
    cache.record(object("a", 1).readable().unwrap()).unwrap();
    feed.feed(Watched::Apply(object("a", 1)));
    feed.feed(Watched::Apply(object("a", 2)));
    assert_eq!(*recorded.lock().unwrap(), [true, false]);
}

#[tokio::test]
async fn index_follows_what_objects_say() {
    let key = |version: &str| index_key(version);
    let (cache, mut feed) = watch()
        .index(|object| {
            object
                .data
                .iter()
                .flatten()
                .map(|(_, value)| index_key(value.as_str()))
                .collect()
        })
        .open();
    list(&mut feed, [object("a", 1), object("b", 1)]);
    assert_eq!(cache.indexed(key("1")).len(), 2);
    feed.feed(Watched::Apply(object("a", 2)));
    assert_eq!(cache.indexed(key("1")), [Name::new("ns", "b")]);
    assert_eq!(cache.all_indexed(key("2")).len(), 1);
    feed.feed(Watched::Delete(object("a", 2)));
    assert!(cache.indexed(key("2")).is_empty());
}

#[tokio::test]
async fn only_generation_uid_and_deletion_are_new_input() {
    let (cache, mut feed) = watch().open();
    let heard: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = heard.clone();
    let _subscription = cache.subscribe(move |event| {
        if let Event::Changed(change) = event {
            log.lock().unwrap().push(change.input_changed());
        }
    });
    let of = |version: u64, generation: i64, deleting: bool| {
        let mut object = object("a", version).readable().unwrap();
        object.metadata.generation = Some(generation);
        object.metadata.deletion_timestamp =
            deleting.then(|| serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        serde_json::from_value::<Tolerant<ConfigMap>>(serde_json::to_value(object).unwrap()).unwrap()
    };
    for object in [
        of(1, 1, false),
        of(2, 1, false),
        of(3, 2, false),
        of(4, 2, true),
        of(5, 2, true),
    ] {
        feed.feed(Watched::Apply(object));
    }
    feed.feed(Watched::Delete(of(6, 2, true)));
    assert_eq!(*heard.lock().unwrap(), [true, false, true, true, false, true]);
}

#[tokio::test]
async fn namespace_holds_its_own_objects_only() {
    let (cache, mut feed) = watch().open();
    let within = |namespace: &str, name: &str| {
        let mut object = object(name, 1).readable().unwrap();
        object.metadata.namespace = Some(namespace.into());
        serde_json::from_value::<Tolerant<ConfigMap>>(serde_json::to_value(object).unwrap()).unwrap()
    };
    list(
        &mut feed,
        [
            within("a", "x"),
            within("a-b", "y"),
            within("a", "z"),
            within("b", "w"),
        ],
    );
    let names: Vec<String> = cache
        .in_namespace("a")
        .iter()
        .map(|(name, _)| name.to_string())
        .collect();
    assert_eq!(names, ["a/x", "a/z"]);
    assert_eq!(cache.count_in("a-b"), 1);
    assert_eq!(cache.count_in(""), 0);
}
