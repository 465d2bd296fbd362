//! Lists: selectors, pages of one snapshot, tables, metadata alone.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::Filter;
use super::table::{Position, Printer};
use super::{Call, meta, table};
use crate::http::{Accept, Body, Shape};
use crate::schema::Cause;
use crate::status::{Failure, Result};
use crate::store::{Object, Page, Store};

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// What a continue token says, in the real server's form.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    start: String,
}

/// Which state a list shows.
pub(super) struct Moment {
    pub at: Option<u64>,
    pub after: Option<String>,
}

fn options_invalid(causes: &[Cause]) -> Failure {
    Failure::invalid("meta.k8s.io", "ListOptions", "", causes)
}

/// Checks the parameters that say which state is wanted.
pub(super) fn check_options(call: &Call, watch: bool) -> Result<()> {
    let query = &call.query;
    query.number("limit")?;
    query.number("timeoutSeconds")?;
    let matching = query.get("resourceVersionMatch");
    let version = query.get("resourceVersion");
    let initial = query.optional_flag("sendInitialEvents");
    let forbid = |field: &str, why: &str| Err(options_invalid(&[Cause::forbidden(field, why)]));
    if watch {
        return check_watch(query.get("continue"), version, matching, initial);
    }
    if initial.is_some() {
        let mut causes = vec![Cause::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        )];
        if matching.is_some() && version.is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.insert(0, Cause::forbidden("resourceVersionMatch", why));
        }
        return Err(options_invalid(&causes));
    }
    if let Some(matching) = matching {
        let mut causes = Vec::new();
        if version.is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
        if query.get("continue").is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
        if !causes.is_empty() {
            return Err(options_invalid(&causes));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            return Err(options_invalid(&[Cause::not_supported(
                "resourceVersionMatch",
                &matching.into(),
                &["Exact", "NotOlderThan", ""],
            )]));
        }
        if matching == "Exact" && version == Some("0") {
            return forbid(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    Ok(())
}

/// The same for a watch.
fn check_watch(
    continued: Option<&str>,
    version: Option<&str>,
    mut matching: Option<&str>,
    mut initial: Option<bool>,
) -> Result<()> {
    const FIELD: &str = "resourceVersionMatch";
    // A watch from no version in particular is one with initial events, whatever the client knows of that.
    if initial.is_none() && matching.is_none() && matches!(version, None | Some("" | "0")) {
        (initial, matching) = (Some(true), Some("NotOlderThan"));
    }
    let mut causes = Vec::new();
    if initial.is_some() && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(FIELD, why));
    }
    if let Some(matching) = matching.filter(|matching| !matching.is_empty()) {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(FIELD, why));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(FIELD, &matching.into(), &["NotOlderThan"]));
        }
        if continued.is_some_and(|token| !token.is_empty()) {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(FIELD, why));
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(options_invalid(&causes))
    }
}

/// A resourceVersion from the query. Nothing and zero are both "any".
pub(super) fn resource_version(call: &Call) -> Result<Option<u64>> {
    let Some(text) = call.query.get("resourceVersion") else {
        return Ok(None);
    };
    meta::parse_version(text).map(Some).ok_or_else(|| {
        let why = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        // The real server does not classify the error of a watch, or of one object.
        if matches!(call.target.verb(&call.method, &call.query), "get" | "watch") {
            Failure::new(500, "", why)
        } else {
            Failure::bad_request(format!("invalid resource version: {why}"))
        }
    })
}

/// Refuses a version that the server has not reached.
pub(super) fn check_reached(store: &Store, rv: u64) -> Result<()> {
    let current = store.rv();
    if rv <= current {
        return Ok(());
    }
    let message = format!("Too large resource version: {rv}, current: {current}");
    Err(
        Failure::new(504, "Timeout", format!("Timeout: {message}")).with_details(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        })),
    )
}

fn moment(call: &Call) -> Result<Moment> {
    let limited = call.query.number("limit")?.unwrap_or(0) > 0;
    if let Some(token) = call.query.get("continue") {
        if resource_version(call)?.is_some_and(|rv| rv != 0) {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Continue>(&bytes).ok())
            .filter(|token| token.v == "meta.k8s.io/v1" && !token.start.is_empty())
            .ok_or_else(|| {
                Failure::bad_request(
                    "invalid continue token: continue key is not valid: encoded version is not recognized",
                )
            })?;
        // A key names no folder above its own.
        if token
            .start
            .trim_start_matches('/')
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
        {
            let start = &token.start;
            let why = format!("invalid continue token: continue key is not valid: {start}");
            return Err(Failure::bad_request(why));
        }
        let after = Some(token.start.trim_end_matches('\0').to_owned());
        return Ok(Moment {
            at: u64::try_from(token.rv).ok(),
            after,
        });
    }
    let rv = resource_version(call)?.filter(|rv| *rv != 0);
    if let Some(rv) = rv {
        check_reached(&call.state.store, rv)?;
    }
    // A limit with a version means that version exactly, unless the client says otherwise.
    let exact = match call.query.get("resourceVersionMatch") {
        Some(matching) => matching == "Exact",
        None => limited,
    };
    Ok(Moment {
        at: rv.filter(|_| exact),
        after: None,
    })
}

/// The objects that a list with these parameters shows, and how it goes on.
pub(super) fn page(call: &Call) -> Result<(Page, Position)> {
    let filter = Filter::new(call)?;
    let moment = moment(call)?;
    // Whoever takes any version gets all of it at once, as from the real server's cache.
    let limit = match call.query.get("resourceVersion") {
        Some("0") => 0,
        _ => usize::try_from(call.query.number("limit")?.unwrap_or(0)).unwrap_or(0),
    };
    let page = call
        .state
        .store
        .page(
            &call.resource.table,
            filter.namespace.as_deref(),
            moment.after.as_deref(),
            limit,
            moment.at,
            &|object| filter.is_everything() || filter.matches(object),
        )
        .map_err(|current| gone(&moment, current))?;
    let position = position(&page, &filter, limit);
    Ok((page, position))
}

pub(super) fn list(call: &Call) -> Result<Response<Body>> {
    let accept = call.accept()?;
    check_options(call, false)?;
    // A page is read past the cache.
    let paged = call.query.number("limit")?.unwrap_or(0) > 0 && Filter::new(call)?.is_everything();
    if !paged {
        check_cache(call)?;
    }
    let (page, position) = page(call)?;
    if paged {
        page.objects.iter().try_for_each(|object| call.readable(object))?;
    }
    render(call, &accept, &page, position)
}

/// The real server reads from a cache of the whole resource, and has none while one object cannot be read: that of a version
/// which its definition has lost.
pub(super) fn check_cache(call: &Call) -> Result<()> {
    if call.resource.builtin.is_some() {
        return Ok(());
    }
    let versions = call.resource.versions.iter();
    let known: Vec<String> = versions
        .map(|version| call.resource.api_version(&version.name))
        .collect();
    let lost = |object: &Object| {
        object.rv <= call.since() && !known.iter().any(|version| object.is_stored_as(version))
    };
    let Some(object) = call.state.store.find(&call.resource.table, lost) else {
        return Ok(());
    };
    call.readable(&object).map_err(|failure| {
        let kind = format!("{}, Kind={}", call.api_version(), call.resource.kind);
        let why = format!(
            "storage is (re)initializing: failed to list {kind}: {}",
            failure.message()
        );
        Failure::retry(429, "TooManyRequests", why, 1)
    })
}

/// An answer with a page of a list in the shape that was asked for.
pub(super) fn render(
    call: &Call,
    accept: &Accept,
    page: &Page,
    mut position: Position,
) -> Result<Response<Body>> {
    if call.resource.builtin.is_none() && accept.shape == Shape::Whole {
        // Lists of custom resources always have the field.
        position.token.get_or_insert_default();
    }
    let json = match &accept.shape {
        Shape::Whole => whole(call, page, &position),
        Shape::Table(version) => {
            let values: Vec<Value> = page.objects.iter().map(|object| call.value_of(object)).collect();
            Printer::new(call)?
                .table(version, &values, &position)
                .to_string()
                .into()
        }
        Shape::Metadata(_) => {
            return Err(Failure::other_shape(format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*core.{})",
                call.resource.list_kind
            )));
        }
        Shape::MetadataList(version) => {
            let mut items: Value = page
                .objects
                .iter()
                .map(|object| table::partial(&object.value(), version))
                .collect();
            // Of nothing there is not even a list.
            if page.objects.is_empty() {
                items = Value::Null;
            }
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": position.to_json(),
                "items": items,
            });
            list.to_string().into()
        }
    };
    accept.media.respond(StatusCode::OK, json)
}

fn gone(moment: &Moment, current: u64) -> Failure {
    match &moment.after {
        None => Failure::expired(format!(
            "The resourceVersion for the provided list is too old: {} ({current})",
            moment.at.unwrap_or_default()
        )),
        Some(start) => {
            let token = encode(None, start);
            let mut failure = Failure::expired(TOO_OLD);
            if let Some(token) = token {
                failure = failure.with_metadata(json!({ "continue": token }));
            }
            failure
        }
    }
}

fn encode(rv: Option<u64>, after: &str) -> Option<String> {
    let token = Continue {
        v: "meta.k8s.io/v1".into(),
        rv: rv.map_or(Some(-1), |rv| i64::try_from(rv).ok())?,
        start: format!("{after}\0"),
    };
    Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).ok()?))
}

fn position(page: &Page, filter: &Filter, limit: usize) -> Position {
    let mut position = Position {
        rv: page.rv.to_string(),
        ..Position::default()
    };
    if limit > 0
        && page.remaining > 0
        && let Some(last) = page.objects.last()
    {
        position.token = encode(Some(page.rv), &last.key);
        // With selectors the real server does not know how many are left.
        position.remaining = filter.is_everything().then_some(page.remaining);
    }
    position
}

/// The list from the bytes as they are stored.
fn whole(call: &Call, page: &Page, position: &Position) -> Bytes {
    let size: usize = page.objects.iter().map(|object| object.size() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let head = json!({ "kind": call.resource.list_kind, "apiVersion": call.api_version(), "metadata": position.to_json() });
    let head = head.to_string();
    out.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    out.extend_from_slice(b",\"items\":[");
    let convert = crate::registry::must_convert(&call.resource);
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if convert {
            let mut value = object.value();
            crate::registry::from_storage(&call.resource, &mut value);
            if let Some(map) = value.as_object_mut() {
                map.remove("apiVersion");
                map.remove("kind");
            }
            out.extend_from_slice(value.to_string().as_bytes());
        } else if call.resource.builtin.is_some() {
            object.json_bare(&mut out);
        } else {
            out.extend_from_slice(&call.json_of(object));
        }
    }
    out.extend_from_slice(b"]}");
    out.into()
}
