//! History that is gone, versions across restarts, objects that are too large.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};

use super::{Expect, News, Refused, Store, TableId};

fn named(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Thing", "metadata": { "name": name, "uid": format!("uid of {name}") } })
}

fn is_gone(store: &Store, table: &str, cursor: u64) -> bool {
    matches!(store.news(table, cursor), News::Gone(_))
}

#[test]
fn a_table_that_was_dropped_has_no_past() {
    let store = Store::open(None).unwrap();
    let table: TableId = "things".into();
    let made = store.put(&table, Expect::Absent, named("a")).unwrap();
    store.remove(&table, "a", Expect::At(made.rv)).unwrap();
    assert!(!is_gone(&store, "things", made.rv));
    store.forget("things");
    assert!(is_gone(&store, "things", made.rv));
    // Neither has one of that name that comes later.
    store.put(&table, Expect::Absent, named("b")).unwrap();
    assert!(is_gone(&store, "things", made.rv));
    assert!(!is_gone(&store, "things", store.rv()));
}

#[test]
fn no_version_is_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let table: TableId = "things".into();
    let mut seen = 0;
    for round in 0..3 {
        // Nothing is written to the disk in the last round, as when the process is killed at once.
        let store = Store::open(Some(folder.path())).unwrap();
        assert!(
            store.rv() > seen + 1000 || round == 0,
            "{} after {seen}",
            store.rv()
        );
        assert!(is_gone(&store, "things", seen) || round == 0);
        assert!(is_gone(&store, "others", seen) || round == 0);
        seen = store.rv();
        if round == 0 {
            seen = store.put(&table, Expect::Absent, named("a")).unwrap().rv;
        }
        store.close();
    }
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let store = Store::open(None).unwrap();
    let mut large = named("a");
    large["spec"] = "x".repeat(2 << 20).into();
    let before = store.rv();
    let refused = store.put(&"things".into(), Expect::Absent, large.clone());
    assert_eq!(refused.map(|_| ()), Err(Refused::TooLarge));
    assert_eq!(store.rv(), before);
    assert!(store.put(&"secrets".into(), Expect::Absent, large).is_ok());
}
