//! The client that reaches webhooks.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as HttpBody;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::target::{Door, Target};
use super::trust::Trust;

/// Idle connections kept in all.
const KEPT: usize = 32;
/// How often a webhook that asks for it is asked again.
const RETRIES: usize = 10;
/// How many redirects are followed.
const REDIRECTS: usize = 10;

type Connection = SendRequest<Full<Bytes>>;

/// Calls webhooks; connections are kept for the next call.
#[derive(Default)]
pub(super) struct Client {
    idle: Mutex<Vec<(Door, Connection)>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What came back.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// How long to wait before the webhook is asked again, if it wants that.
    fn pause(&self) -> Option<Duration> {
        let busy = self.status == StatusCode::TOO_MANY_REQUESTS || self.status.as_u16() >= 500;
        let seconds: i64 = self.header(header::RETRY_AFTER).filter(|_| busy)?.parse().ok()?;
        Some(Duration::from_secs(seconds.try_into().unwrap_or_default()))
    }

    /// Where it sends the client, and with which method.
    fn redirect(&self, method: &Method) -> Option<(&str, Method)> {
        let method = match self.status.as_u16() {
            301..=303 => Method::GET,
            307 | 308 => method.clone(),
            _ => return None,
        };
        let location = self.header(header::LOCATION).filter(|to| !to.is_empty())?;
        Some((location, method))
    }

    /// The body of a good answer.
    fn content(self) -> Result<Bytes, String> {
        if !(200..=206).contains(&self.status.as_u16()) {
            return Err(format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                String::from_utf8_lossy(&self.body)
            ));
        }
        if let Some(media) = self
            .header(header::CONTENT_TYPE)
            .filter(|media| !media.is_empty())
        {
            check_media(media)?;
        }
        Ok(self.body)
    }
}

/// Any type will do, as long as it is one.
fn check_media(media: &str) -> Result<(), String> {
    let kind = media.split(';').next().unwrap_or_default().trim();
    let token = |text: &str| {
        let odd = |c: char| !c.is_ascii_graphic() || "()<>@,;:\\\"/[]?=".contains(c);
        !text.is_empty() && !text.contains(odd)
    };
    let (main, sub) = kind
        .split_once('/')
        .map_or((kind, None), |(main, sub)| (main, Some(sub)));
    if token(main) && sub.is_none_or(token) {
        Ok(())
    } else {
        Err(format!("mime: unexpected content after media subtype: {media}"))
    }
}

impl Client {
    /// Sends a review and reads the answer.
    pub(super) async fn post(
        &self,
        target: &Target,
        review: &Value,
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let mut target = target.clone();
        let left = crate::http::time_left().map_or(timeout, |left| left.min(timeout));
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        target.path = format!("{}?timeout={seconds}s", target.path);
        let shown = format!("Post \"{}\"", target.url());
        let body = Bytes::from(review.to_string());
        // It is large, and most requests wait for no webhook.
        let asked = Box::pin(self.insist(&target, &body));
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(reply)) => reply.content(),
            Ok(Err(why)) => Err(format!("{shown}: {why}")),
            Err(_) => Err(format!("{shown}: context deadline exceeded")),
        }
    }

    /// Asks again as long as the webhook wants it.
    async fn insist(&self, target: &Target, body: &Bytes) -> Result<Reply, String> {
        let mut retries = 0;
        loop {
            let reply = self.follow(target, body).await?;
            match reply.pause() {
                Some(pause) if retries < RETRIES => tokio::time::sleep(pause).await,
                _ => return Ok(reply),
            }
            retries += 1;
        }
    }

    /// Follows redirects.
    async fn follow(&self, target: &Target, body: &Bytes) -> Result<Reply, String> {
        let (mut target, mut method) = (target.clone(), Method::POST);
        for _ in 0..REDIRECTS {
            let reply = self.exchange(&target, &method, body).await?;
            let Some((location, next)) = reply.redirect(&method) else {
                return Ok(reply);
            };
            target = target.redirected(location)?;
            method = next;
        }
        Err(format!("stopped after {REDIRECTS} redirects"))
    }

    async fn exchange(&self, target: &Target, method: &Method, body: &Bytes) -> Result<Reply, String> {
        let kept = self.take(&target.door);
        let reused = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(&target.door).await?,
        };
        match self.send(target, connection, method, body).await {
            // A kept connection may have died meanwhile; a fresh one decides.
            Err(_) if reused => {
                let connection = connect(&target.door).await?;
                self.send(target, connection, method, body).await
            }
            outcome => outcome,
        }
    }

    fn take(&self, door: &Door) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, connection)| !connection.is_closed());
        let i = idle
            .iter()
            .position(|(kept, connection)| kept == door && connection.is_ready())?;
        Some(idle.swap_remove(i).1)
    }

    async fn send(
        &self,
        target: &Target,
        mut connection: Connection,
        method: &Method,
        body: &Bytes,
    ) -> Result<Reply, String> {
        let mut request = HttpRequest::builder()
            .method(method)
            .uri(&target.path)
            .header(header::HOST, &target.named)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::ACCEPT_ENCODING, "gzip")
            .header(header::USER_AGENT, "kube-apiserver-admission");
        // What is only fetched is sent nothing.
        let mut sent = Bytes::new();
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
            sent = body.clone();
        }
        let request = request.body(Full::new(sent)).map_err(|e| e.to_string())?;
        let response = connection
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        let (parts, incoming) = response.into_parts();
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        let packed = encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let body = if packed {
            unpacked(incoming).await?
        } else {
            let whole = incoming.collect().await.map_err(|e| e.to_string())?;
            whole.to_bytes()
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push((target.door.clone(), connection));
        }
        drop(idle);
        Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

/// What was packed by gzip; nothing is nothing. Unpacked as it comes, so that what is packed too well ends with the time for it.
async fn unpacked(mut body: impl HttpBody<Data = Bytes, Error: ToString> + Unpin) -> Result<Bytes, String> {
    let mut unpacking = MultiGzDecoder::new(Vec::new());
    let mut empty = true;
    let bad = |error: std::io::Error| format!("gzip: {error}");
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
            empty = false;
            unpacking.write_all(data).map_err(bad)?;
        }
    }
    if empty {
        return Ok(Bytes::new());
    }
    Ok(unpacking.finish().map_err(bad)?.into())
}

async fn connect(door: &Door) -> Result<Connection, String> {
    if !door.secure {
        return greet(dial(door).await?).await;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let trust = Trust::read(&door.authority, provider.clone());
    // A bundle that is none shows before anything is dialled, and that there is none only when certificates are shown.
    let stream = match &trust {
        Err(why) if !door.authority.is_empty() => return Err(why.clone()),
        _ => dial(door).await?,
    };
    let trust = Arc::new(trust?);
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(trust)
        .with_no_client_auth();
    let name = ServerName::try_from(door.host.clone()).map_err(|e| e.to_string())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|e| format!("tls: failed to verify certificate: {e}"))?;
    greet(stream).await
}

async fn dial(door: &Door) -> Result<TcpStream, String> {
    let address = door.address.as_ref().map_err(String::clone)?;
    TcpStream::connect(address)
        .await
        .map_err(|e| format!("dial tcp {address}: {e}"))
}

async fn greet(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection, String> {
    let (connection, driver) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "webhook connection ended");
        }
    });
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_packed_is_unpacked_whole_or_not_at_all() {
        let pack = |text: &str| {
            let mut packing = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packing.write_all(text.as_bytes()).unwrap();
            packing.finish().unwrap()
        };
        let unpack = async |packed: &[u8]| unpacked(Full::new(Bytes::copy_from_slice(packed))).await;
        let packed = pack("once");
        assert_eq!(unpack(&packed).await.unwrap(), "once");
        assert_eq!(
            unpack(&[packed.clone(), pack(" more")].concat()).await.unwrap(),
            "once more"
        );
        assert_eq!(unpack(b"").await.unwrap(), "");
        for cut in 1..packed.len() {
            assert!(
                unpack(&packed[..cut]).await.is_err(),
                "{cut} bytes of {}",
                packed.len()
            );
        }
        assert!(unpack(&[packed.as_slice(), b"rest"].concat()).await.is_err());
        assert!(unpack(b"plain").await.is_err());
    }
}
