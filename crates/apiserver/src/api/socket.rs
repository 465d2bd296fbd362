//! Watches over a WebSocket: one event is one frame of text.

use std::sync::PoisonError;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use axum::extract::{FromRequestParts, WebSocketUpgrade};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header, request};

use super::Call;
use crate::http::Body;

/// What a client says is not heard; it may not be long.
const HEARD: usize = 64 << 10;

/// Whether the connection is to become a WebSocket.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let mut connection = headers.get_all(header::CONNECTION).iter();
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| text(value) == "websocket")
        && connection.any(|value| text(value).contains("upgrade"))
}

/// What is needed to become one; nothing where there is no connection, or one of many streams.
pub(crate) fn prepare(parts: &mut request::Parts) -> Option<Box<WebSocketUpgrade>> {
    if !is_asked_for(&parts.headers) {
        return None;
    }
    // Nothing in it waits.
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).now_or_never()?;
    upgrade.ok().map(Box::new)
}

/// Shakes hands, and sends what comes.
pub(super) fn answer(call: &Call, chunks: BoxStream<'static, Bytes>) -> Response<Body> {
    let text = |name: header::HeaderName| {
        let value = call.headers.get(name);
        value.map_or_else(String::new, |value| {
            String::from_utf8_lossy(value.as_bytes()).trim().to_owned()
        })
    };
    if call.method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "bad method");
    }
    if text(header::SEC_WEBSOCKET_KEY).is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    }
    if text(header::SEC_WEBSOCKET_VERSION) != "13" {
        let mut response = refuse(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static("13");
        response
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_VERSION, version);
        return response;
    }
    // Browsers say from where they come, and the real server wants it of everybody.
    let origin = text(header::ORIGIN);
    if !origin.starts_with('/') && !origin.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some()) {
        return refuse(StatusCode::FORBIDDEN, "");
    }
    let protocols = text(header::SEC_WEBSOCKET_PROTOCOL);
    let mut protocols = protocols.split(',').map(str::trim);
    let protocol = protocols.next().unwrap_or_default().to_owned();
    // One is as good as another, but nobody chooses.
    if protocols.next().is_some() {
        return refuse(StatusCode::BAD_REQUEST, "");
    }
    let upgrade = call.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(upgrade) = upgrade else {
        return refuse(StatusCode::BAD_REQUEST, "not websocket protocol");
    };
    let upgrade = upgrade.max_message_size(HEARD).max_frame_size(HEARD);
    let upgrade = if protocol.is_empty() {
        upgrade
    } else {
        upgrade.protocols([protocol])
    };
    upgrade.on_upgrade(|socket| send(socket, chunks))
}

/// As the real server does it below HTTP: without a type, and the connection ends.
fn refuse(code: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Each chunk is sent before the next is made, so a slow reader costs no more than one.
async fn send(mut socket: WebSocket, mut chunks: BoxStream<'static, Bytes>) {
    loop {
        tokio::select! {
            chunk = chunks.next() => {
                let Some(chunk) = chunk else { break };
                for event in chunk.split_inclusive(|byte| *byte == b'\n') {
                    let Ok(text) = Utf8Bytes::try_from(chunk.slice_ref(event)) else { return };
                    if socket.send(Message::Text(text)).await.is_err() {
                        return;
                    }
                }
            }
            heard = socket.recv() => match heard {
                // The next one brings the answer to it on its way.
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
    let close = CloseFrame {
        code: close_code::NORMAL,
        reason: Utf8Bytes::default(),
    };
    drop(socket.send(Message::Close(Some(close))).await);
}
