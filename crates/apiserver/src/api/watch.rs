//! Watches: a cursor into the history of a table, read at the client's pace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::filter::Filter;
use super::list::{check_cache, check_options, check_reached, resource_version};
use super::table::Printer;
use super::{Call, socket, table};
use crate::http::{Body, Media, Shape};
use crate::state::State;
use crate::status::{Failure, Result};
use crate::store::{Change, Event, News, Object};

/// How often a bookmark is sent to those who want them.
const BOOKMARK: Duration = Duration::from_mins(1);
/// How long before its end a watch gets a last one, so that the next watch begins as near to now as can be.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Events are sent in chunks of about this size.
const CHUNK: usize = 64 << 10;

#[expect(clippy::struct_excessive_bools, reason = "independent facts about one stream")]
struct Watch {
    call: Arc<OwnedCall>,
    filter: Filter,
    shape: Shape,
    cursor: u64,
    /// Objects that are sent before the first event.
    initial: VecDeque<Arc<Object>>,
    /// Whether the end of the initial objects is marked.
    mark: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    signal: tokio::sync::watch::Receiver<u64>,
    /// Fires when custom resources have become others.
    definitions: tokio::sync::watch::Receiver<()>,
    first_row: bool,
    done: bool,
    _count: Counted,
}

/// What of the request outlives it.
struct OwnedCall {
    call: Call,
}

struct Counted(Arc<State>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn watch(call: &Call) -> Result<Response<Body>> {
    let accept = call.accept()?;
    // What is asked in the old way has the options of a list.
    let new_way = call.query.flag("watch");
    check_options(call, new_way)?;
    // There is no stream of YAML.
    if accept.media == Media::Yaml {
        return Err(Failure::other_shape(
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch".into(),
        ));
    }
    let filter = Filter::new(call)?;
    if matches!(accept.shape, Shape::Table(_)) {
        Printer::new(call)?;
    }
    let wanted = resource_version(call)?;
    check_cache(call)?;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let initial_events = call.query.optional_flag("sendInitialEvents");
    let store = &call.state.store;
    let signal = store.signal(&call.resource.table);
    // Without a version, and with the version "any", the state comes first.
    let with_state = initial_events.unwrap_or(wanted.is_none_or(|rv| rv == 0));
    // Who wants the state of a version that is not there waits for it in vain; who wants what comes after it gets that.
    if let Some(rv) = wanted.filter(|_| with_state)
        && let Err(failure) = check_reached(store, rv)
    {
        return Ok(ended(call, &failure));
    }
    let (initial, cursor) = if with_state {
        let (objects, rv) = store.list(&call.resource.table, filter.namespace.as_deref());
        (
            objects
                .into_iter()
                .filter(|object| filter.matches(object))
                .collect(),
            rv,
        )
    } else {
        (
            VecDeque::new(),
            wanted.filter(|rv| *rv > 0).unwrap_or_else(|| store.rv()),
        )
    };
    // Custom resources have no past beyond the last change of their definition.
    if cursor < call.since() {
        return Ok(ended(call, &too_old(cursor, call.since())));
    }
    if let News::Gone(floor) = store.news(&call.resource.table, cursor) {
        return Ok(ended(call, &too_old(cursor, floor)));
    }
    let now = Instant::now();
    let life = match call.query.number("timeoutSeconds")? {
        // A watch whose time was over before it began.
        Some(seconds) if seconds < 0 => {
            let failure = Failure::new(500, "InternalError", "context deadline exceeded");
            return Ok(ended(call, &failure));
        }
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        // As the real server: between half an hour and an hour, so that not all come back at once.
        _ => Duration::from_secs(1800 + rand::random::<u64>() % 1800),
    };
    let deadline = now.checked_add(life).unwrap_or(now + BOOKMARK);
    call.state.watches.fetch_add(1, Ordering::Relaxed);
    let watch = Watch {
        filter,
        shape: accept.shape.clone(),
        cursor,
        initial,
        mark: with_state && bookmarks && new_way,
        bookmarks,
        next_bookmark: next_bookmark(now, deadline),
        deadline,
        signal,
        definitions: call.state.registry.changes(),
        first_row: true,
        done: false,
        _count: Counted(call.state.clone()),
        call: Arc::new(OwnedCall {
            call: call.detached(),
        }),
    };
    let chunks = stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        // Who reads fast has the next one at once, and would keep the thread until all is read.
        if chunk.len() >= CHUNK {
            tokio::task::yield_now().await;
        }
        Some((chunk, watch))
    });
    Ok(streamed(call, chunks))
}

/// A watch that ends with an error before it begins.
fn ended(call: &Call, failure: &Failure) -> Response<Body> {
    let mut out = Vec::new();
    push_line(&mut out, "ERROR", failure.to_json().to_string().as_bytes());
    streamed(call, stream::iter([Bytes::from(out)]))
}

fn streamed(call: &Call, chunks: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    if socket::is_asked_for(&call.headers) {
        return socket::answer(call, chunks.boxed());
    }
    let body = Body::from_stream(chunks.map(Ok::<_, std::convert::Infallible>));
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// Every minute, and shortly before the end.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let next = now + BOOKMARK;
    last.map_or(next, |last| last.min(next))
}

fn too_old(cursor: u64, floor: u64) -> Failure {
    Failure::expired(format!("too old resource version: {cursor} ({floor})"))
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done {
                return None;
            }
            let mut out = Vec::new();
            while out.len() < CHUNK
                && let Some(object) = self.initial.pop_front()
            {
                self.push(&mut out, "ADDED", &object, None);
            }
            if self.initial.is_empty() {
                if self.mark {
                    self.mark = false;
                    self.push_bookmark(&mut out, true);
                }
                self.read(&mut out);
            }
            let call = self.call.clone();
            // The client comes back, and finds out what is different.
            if self.initial.is_empty() && call.call.redefined() {
                self.done = true;
            }
            if !out.is_empty() {
                return Some(out.into());
            }
            if self.done {
                return None;
            }
            let wake = if self.bookmarks {
                self.deadline.min(self.next_bookmark)
            } else {
                self.deadline
            };
            tokio::select! {
                changed = self.signal.changed() => {
                    // The table is gone, or the server stops.
                    if changed.is_err() {
                        return None;
                    }
                }
                changed = self.definitions.changed(), if call.call.resource.builtin.is_none() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = call.call.state.stop.cancelled() => return None,
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    self.next_bookmark = next_bookmark(Instant::now(), self.deadline);
                    // Nothing may have happened here for long; the bookmark says up to when.
                    let mut out = Vec::new();
                    self.read(&mut out);
                    if !self.done && self.cursor <= call.call.state.store.rv() {
                        self.push_bookmark(&mut out, false);
                    }
                    if !out.is_empty() {
                        return Some(out.into());
                    }
                }
            }
        }
    }

    /// Appends what happened since the cursor.
    fn read(&mut self, out: &mut Vec<u8>) {
        // Seen before reading, so that what comes in between wakes us again.
        self.signal.borrow_and_update();
        let call = self.call.clone();
        match call.call.state.store.news(&call.call.resource.table, self.cursor) {
            News::Gone(floor) => {
                self.done = true;
                let status = too_old(self.cursor, floor).to_json();
                push_line(out, "ERROR", status.to_string().as_bytes());
            }
            News::Events(events, rv) => {
                // Never back: the watch may begin with a version that is still to come.
                self.cursor = rv.max(self.cursor);
                for event in events {
                    // One pass may be large; the rest is read again from where we stopped.
                    if out.len() >= CHUNK {
                        self.cursor = event.rv - 1;
                        return;
                    }
                    self.push_event(out, &event);
                }
            }
        }
    }

    fn push_event(&mut self, out: &mut Vec<u8>, event: &Event) {
        let now = event.change != Change::Deleted && self.filter.matches(&event.object);
        let before = event
            .previous
            .as_ref()
            .is_some_and(|previous| self.filter.matches(previous));
        match (before, now) {
            (false, true) => self.push(out, "ADDED", &event.object, None),
            (true, true) => self.push(out, "MODIFIED", &event.object, None),
            // The last state that matched, under the version of this event.
            (true, false) if event.change == Change::Deleted => {
                self.push(out, "DELETED", &event.object, None);
            }
            (true, false) => {
                if let Some(previous) = &event.previous {
                    self.push(out, "DELETED", previous, Some(event.rv));
                }
            }
            (false, false) => {}
        }
    }

    fn push(&mut self, out: &mut Vec<u8>, kind: &str, object: &Object, rv: Option<u64>) {
        let call = self.call.clone();
        // An event is no list: the real server breaks off, without a word.
        if matches!(self.shape, Shape::MetadataList(_)) {
            self.done = true;
            return;
        }
        if self.shape == Shape::Whole && rv.is_none() {
            push_line(out, kind, &call.call.json_of(object));
            return;
        }
        let mut value = call.call.value_of(object);
        if let Some(rv) = rv
            && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("resourceVersion".into(), rv.to_string().into());
        }
        let shown = self.shaped(&value);
        push_line(out, kind, shown.to_string().as_bytes());
    }

    fn shaped(&mut self, value: &Value) -> Value {
        let call = self.call.clone();
        match &self.shape {
            Shape::Whole => value.clone(),
            Shape::Metadata(version) | Shape::MetadataList(version) => table::partial(value, version),
            Shape::Table(version) => {
                let first = std::mem::take(&mut self.first_row);
                Printer::new(&call.call)
                    .map(|printer| printer.rows(version, value, first))
                    .unwrap_or_default()
            }
        }
    }

    fn push_bookmark(&mut self, out: &mut Vec<u8>, end_of_initial: bool) {
        if matches!(self.shape, Shape::MetadataList(_)) {
            self.done = true;
            return;
        }
        let mut metadata = json!({ "resourceVersion": self.cursor.to_string() });
        if end_of_initial && let Some(map) = metadata.as_object_mut() {
            map.insert(
                "annotations".into(),
                json!({ "k8s.io/initial-events-end": "true" }),
            );
        }
        let call = &self.call.call;
        // As a table it is a row of an object with nothing in it.
        let object = self.shaped(
            &json!({ "kind": call.resource.kind, "apiVersion": call.api_version(), "metadata": metadata }),
        );
        push_line(out, "BOOKMARK", object.to_string().as_bytes());
    }
}

fn push_line(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_every_minute_and_before_the_end() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        for (end, next) in [(1800, 60), (61, 59), (60, 58), (3, 1), (2, 60), (1, 60)] {
            assert_eq!(next_bookmark(now, after(end)), after(next), "{end}");
        }
    }
}
