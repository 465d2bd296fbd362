//! Tables of objects, their recent history, and the indexes across them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Event, Expect, Object, Refused, TableId, Uid};

/// How far back the history of one table reaches, in events and in bytes.
const HISTORY_EVENTS: usize = 4096;
const HISTORY_BYTES: usize = 16 << 20;

/// The objects of one resource.
#[derive(Default)]
pub(super) struct Table {
    pub objects: BTreeMap<Arc<str>, Arc<Object>>,
    pub history: VecDeque<Arc<Event>>,
    pub history_bytes: usize,
    /// Events at or before this are forgotten.
    pub floor: u64,
    /// Made when somebody watches.
    pub signal: Option<watch::Sender<u64>>,
}

/// What the lock of the store protects.
#[derive(Default)]
pub(super) struct Inner {
    pub rv: u64,
    /// Events at or before this are forgotten in tables that are not there.
    pub floor: u64,
    pub tables: HashMap<TableId, Table>,
    pub uids: HashMap<Uid, Arc<Object>>,
    /// By owner and dependent: one owner may have very many.
    pub dependents: BTreeMap<(Uid, Uid), Arc<Object>>,
}

impl Inner {
    /// A table, made if it is not there.
    pub fn table(&mut self, id: &TableId) -> &mut Table {
        let floor = self.floor;
        self.tables.entry(id.clone()).or_insert_with(|| Table {
            floor,
            ..Table::default()
        })
    }

    pub fn check(&self, table: &str, key: &str, expect: Expect) -> Result<Option<Arc<Object>>, Refused> {
        let current = self.tables.get(table).and_then(|table| table.objects.get(key));
        match (expect, current) {
            (Expect::Absent, None) => Ok(None),
            (Expect::Absent, Some(_)) => Err(Refused::Exists),
            (Expect::At(_), None) => Err(Refused::Missing),
            (Expect::At(rv), Some(current)) if current.rv == rv => Ok(Some(current.clone())),
            (Expect::At(_), Some(_)) => Err(Refused::Changed),
        }
    }

    pub fn index(&mut self, object: &Arc<Object>) {
        let table = self.table(&object.table);
        table.objects.insert(object.key.clone(), object.clone());
        self.uids.insert(object.uid, object.clone());
        for owner in &object.owners {
            self.dependents.insert((*owner, object.uid), object.clone());
        }
    }

    pub fn unindex(&mut self, object: &Arc<Object>) {
        if let Some(table) = self.tables.get_mut(&object.table) {
            table.objects.remove(&object.key);
        }
        self.uids.remove(&object.uid);
        for owner in &object.owners {
            self.dependents.remove(&(*owner, object.uid));
        }
    }
}

impl Inner {
    /// Those that name `uid` as an owner.
    pub fn dependents(&self, uid: Uid) -> impl Iterator<Item = &Arc<Object>> {
        let all = self.dependents.range((uid, Uid::MIN)..=(uid, Uid::MAX));
        all.map(|(_, object)| object)
    }
}

impl Table {
    pub fn record(&mut self, event: Arc<Event>) {
        self.history_bytes += event.object.size();
        self.history.push_back(event);
        while self.history.len() > HISTORY_EVENTS
            || (self.history_bytes > HISTORY_BYTES && self.history.len() > 1)
        {
            if let Some(oldest) = self.history.pop_front() {
                self.history_bytes -= oldest.object.size();
                self.floor = oldest.rv;
            }
        }
    }
}

/// The part of a table that is in `namespace` and after the key `after`.
pub(super) fn range<'a>(
    objects: &'a BTreeMap<Arc<str>, Arc<Object>>,
    namespace: Option<&str>,
    after: Option<&str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> {
    // '0' follows '/' in the order of bytes, so this pair encloses exactly the keys of the namespace.
    let edges = namespace.map(|namespace| (format!("{namespace}/"), format!("{namespace}0")));
    let (first, last) = edges
        .as_ref()
        .map_or((None, None), |(a, b)| (Some(a.as_str()), Some(b.as_str())));
    let start = match (first, after) {
        (_, Some(after)) if first.is_none_or(|first| after >= first) => Bound::Excluded(after),
        (Some(first), _) => Bound::Included(first),
        (None, _) => Bound::Unbounded,
    };
    let end = last.map_or(Bound::Unbounded, Bound::Excluded);
    // A start past the end would panic inside BTreeMap.
    let empty =
        matches!((start, end), (Bound::Excluded(a) | Bound::Included(a), Bound::Excluded(b)) if a >= b);
    let (start, end) = if empty {
        (Bound::Excluded(""), Bound::Included(""))
    } else {
        (start, end)
    };
    objects.range::<str, _>((start, end))
}
