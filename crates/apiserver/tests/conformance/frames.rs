//! What comes over a connection that became a WebSocket.

use std::time::Duration;

use anyhow::Result;
use http::Response;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// What asks for one, unless a step says otherwise.
pub const ASKING: [(&str, &str); 5] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Origin", "https://example.org"),
];

/// All frames until the other end hangs up.
pub async fn read(response: Response<Body>) -> Result<Value> {
    let mut connection = TokioIo::new(hyper::upgrade::on(response).await?);
    let mut bytes = Vec::new();
    // An end without a word is an end, too.
    let all = connection.read_to_end(&mut bytes);
    drop(tokio::time::timeout(Duration::from_secs(15), all).await?);
    let mut frames = Vec::new();
    let mut rest = bytes.as_slice();
    while let [first, length, after @ ..] = rest {
        assert!(first & 0x70 == 0 && length & 0x80 == 0, "no flags, no mask");
        let (size, after) = match length {
            126 => (2, after),
            127 => (8, after),
            _ => (0, after),
        };
        let (long, after) = after.split_at(size);
        let long = long.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let (payload, after) = after.split_at(if size == 0 { usize::from(*length) } else { long });
        rest = after;
        frames.push(match first & 0x0f {
            1 => json!({ "last": first & 0x80 != 0, "ends": payload.last(), "text": serde_json::from_slice::<Value>(payload)? }),
            8 => json!({ "close": payload }),
            other => json!({ "kind": other, "bytes": payload }),
        });
    }
    Ok(frames.into())
}
