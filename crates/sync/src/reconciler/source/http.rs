//! Git's smart HTTP with our own TLS: the backends of `gix` cannot trust a certificate authority from a Secret.
//!
//! Git blocks and runs on a thread of its own; the network runs on the runtime.

use std::{
    io::{self, BufRead, Cursor, Read, Write},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use gix::error::Error;
use gix_transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    net::TcpStream,
    runtime::Handle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

use super::{insecure, model::BOUNDS};

/// The time to make a connection, and for a response to begin.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// The longest silence within a response.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// The number of redirects followed.
const MAX_REDIRECTS: usize = 3;

/// A client of one repository.
pub struct Client {
    tls: Arc<ClientConfig>,
    runtime: Handle,
    /// The end of the whole fetch.
    deadline: Instant,
    redirected: Option<String>,
}

impl Client {
    /// A client that trusts the authorities of the system, or only the given one. Must be called on a thread of the runtime.
    pub fn new(ca: Option<&[u8]>, no_verify: bool) -> Result<Self, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = if no_verify {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(insecure::AnyCertificate(provider)))
        } else {
            builder.with_root_certificates(roots(ca)?)
        };
        Ok(Self {
            tls: Arc::new(config.with_no_client_auth()),
            runtime,
            deadline: Instant::now() + BOUNDS.whole,
            redirected: None,
        })
    }
}

/// The authorities that this machine trusts. Read once, as every fetch needs them.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

fn roots(ca: Option<&[u8]>) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate
                    .map_err(|_| "the key `cert` of the CA's Secret is no PEM certificate".to_owned())?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("the key `cert` of the CA's Secret is no CA: {error}"))?;
            }
            if roots.is_empty() {
                return Err("the key `cert` of the CA's Secret holds no PEM certificate".into());
            }
        }
        None => return Ok(SYSTEM.clone()),
    }
    Ok(Arc::new(roots))
}

/// One request.
#[derive(Clone)]
struct Call {
    tls: Arc<ClientConfig>,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    /// Sends the request. The deadline is that of the whole fetch: many short requests count like a long one.
    async fn send_before(&self, deadline: Instant) -> io::Result<Response<Incoming>> {
        match tokio::time::timeout_at(deadline, self.send()).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the server is too slow")),
        }
    }

    async fn send(&self) -> io::Result<Response<Incoming>> {
        let uri: Uri = self.url.parse().map_err(io::Error::other)?;
        let secure = uri.scheme_str() == Some("https");
        let host = uri
            .host()
            .ok_or_else(|| io::Error::other("the address has no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authority = uri
            .authority()
            .map(|a| a.as_str().rsplit('@').next().unwrap_or_default().to_owned());
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
            .body(Full::new(self.body.clone()))
            .map_err(io::Error::other)?;
        *request.headers_mut() = self.headers.clone();
        if let Some(Ok(value)) = authority.map(|a| HeaderValue::from_str(&a)) {
            request.headers_mut().insert(header::HOST, value);
        }
        let stream = timeout(CONNECT_WITHIN, TcpStream::connect((host.as_str(), port))).await??;
        let answer = if secure {
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let stream = timeout(
                CONNECT_WITHIN,
                TlsConnector::from(self.tls.clone()).connect(name, stream),
            )
            .await??;
            exchange(TokioIo::new(stream), request).await?
        } else {
            exchange(TokioIo::new(stream), request).await?
        };
        Ok(answer)
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = timeout(CONNECT_WITHIN, hyper::client::conn::http1::handshake(stream))
        .await?
        .map_err(uniform)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the repository ended");
        }
    });
    timeout(CONNECT_WITHIN, sender.send_request(request))
        .await?
        .map_err(uniform)
}

/// One message for the many ways in which a connection ends too early, so that a status does not change with each.
fn uniform(error: hyper::Error) -> io::Error {
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() || cause.is_some() {
        return io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the server ended the connection",
        );
    }
    io::Error::other(error)
}

fn check(status: StatusCode) -> io::Result<()> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the server answered {status}: the repository needs other credentials"),
        )),
        status => Err(io::Error::other(format!("the server answered {status}"))),
    }
}

fn headers(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.as_ref().split_once(':') else {
            continue;
        };
        if let (Ok(name), Ok(mut value)) = (
            HeaderName::from_bytes(name.trim().as_bytes()),
            HeaderValue::from_str(value.trim()),
        ) {
            value.set_sensitive(name == header::AUTHORIZATION);
            map.append(name, value);
        }
    }
    map
}

fn lines(headers: &HeaderMap) -> Cursor<Vec<u8>> {
    let mut text = Vec::new();
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    Cursor::new(text)
}

impl Http for Client {
    type Headers = Answer;
    type ResponseBody = Answer;
    type PostBody = Upload;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        header_lines: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<GetResponse<Answer, Answer>, Error> {
        let mut call = Call {
            tls: self.tls.clone(),
            method: Method::GET,
            url: url.to_owned(),
            headers: headers(header_lines),
            body: Bytes::new(),
        };
        for _ in 0..=MAX_REDIRECTS {
            let answer = self
                .runtime
                .block_on(call.send_before(self.deadline))
                .map_err(Error::from_error)?;
            if let Some(next) = redirect(&call.url, &answer) {
                let next = next.map_err(Error::from_error)?;
                if origin(&next) != origin(&call.url) {
                    call.headers.remove(header::AUTHORIZATION);
                }
                // The part after the address of the repository stays the same.
                let tail = url.strip_prefix(base_url).unwrap_or_default();
                self.redirected = next.strip_suffix(tail).map(str::to_owned);
                call.url = next;
                continue;
            }
            check(answer.status()).map_err(Error::from_error)?;
            let (parts, body) = answer.into_parts();
            return Ok(GetResponse {
                headers: Answer::text(self, lines(&parts.headers)),
                body: Answer::new(self, State::Stream(body)),
            });
        }
        Err(Error::from_error(io::Error::other("too many redirects")))
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        header_lines: impl IntoIterator<Item = impl AsRef<str>>,
        _kind: PostBodyDataKind,
    ) -> Result<PostResponse<Answer, Answer, Upload>, Error> {
        let pending = Arc::new(Mutex::new(Pending {
            call: Call {
                tls: self.tls.clone(),
                method: Method::POST,
                url: url.to_owned(),
                headers: headers(header_lines),
                body: Bytes::new(),
            },
            upload: Vec::new(),
            parts: None,
        }));
        Ok(PostResponse {
            post_body: Upload(pending.clone()),
            headers: Answer::new(self, State::Headers(pending.clone())),
            body: Answer::new(self, State::Body(pending)),
        })
    }

    fn configure(&mut self, _config: &dyn std::any::Any) -> Result<(), Error> {
        // The Git configuration of this machine does not apply.
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

fn redirect(from: &str, answer: &Response<Incoming>) -> Option<io::Result<String>> {
    if !answer.status().is_redirection() {
        return None;
    }
    let to = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    let to = if to.starts_with('/') {
        format!("{}{to}", origin(from))
    } else {
        to.to_owned()
    };
    if from.starts_with("https://") && !to.starts_with("https://") {
        return Some(Err(io::Error::other(
            "the server redirects to an address without TLS",
        )));
    }
    Some(Ok(to))
}

fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url
        .get(start..)
        .and_then(|rest| rest.find('/'))
        .map_or(url.len(), |at| start + at);
    url.get(..end).unwrap_or(url)
}

/// A POST. It is sent when its response is first read; by then Git has written the whole body.
struct Pending {
    call: Call,
    upload: Vec<u8>,
    parts: Option<(HeaderMap, Option<Incoming>)>,
}

impl Pending {
    fn sent(
        &mut self,
        runtime: &Handle,
        deadline: Instant,
    ) -> io::Result<&mut (HeaderMap, Option<Incoming>)> {
        if self.parts.is_none() {
            self.call.body = std::mem::take(&mut self.upload).into();
            let answer = runtime.block_on(self.call.send_before(deadline))?;
            check(answer.status())?;
            let (parts, body) = answer.into_parts();
            self.parts = Some((parts.headers, Some(body)));
        }
        self.parts
            .as_mut()
            .ok_or_else(|| io::Error::other("the request was not sent"))
    }
}

/// The body that Git writes.
pub struct Upload(Arc<Mutex<Pending>>);

impl Write for Upload {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.upload.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A response of the server: its headers as lines, or its body.
pub struct Answer {
    runtime: Handle,
    deadline: Instant,
    received: u64,
    state: State,
    chunk: Cursor<Bytes>,
}

enum State {
    Headers(Arc<Mutex<Pending>>),
    Body(Arc<Mutex<Pending>>),
    Stream(Incoming),
    Done,
}

impl Answer {
    fn new(client: &Client, state: State) -> Self {
        Self {
            runtime: client.runtime.clone(),
            deadline: client.deadline,
            received: 0,
            state,
            chunk: Cursor::new(Bytes::new()),
        }
    }

    fn text(client: &Client, text: Cursor<Vec<u8>>) -> Self {
        Self {
            chunk: Cursor::new(text.into_inner().into()),
            ..Self::new(client, State::Done)
        }
    }

    fn exhausted(&self) -> bool {
        usize::try_from(self.chunk.position()).is_ok_and(|at| at >= self.chunk.get_ref().len())
    }

    fn refill(&mut self) -> io::Result<()> {
        while self.exhausted() {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Ok(()),
                State::Headers(pending) => {
                    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
                    let (headers, _) = pending.sent(&self.runtime, self.deadline)?;
                    self.chunk = Cursor::new(lines(headers).into_inner().into());
                }
                State::Body(pending) => {
                    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
                    let (_, body) = pending.sent(&self.runtime, self.deadline)?;
                    if let Some(body) = body.take() {
                        self.state = State::Stream(body);
                    }
                }
                State::Stream(mut body) => {
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    let frame = self
                        .runtime
                        .block_on(async { timeout(MAX_SILENCE.min(left), body.frame()).await })
                        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the server is too slow"))?;
                    if let Some(frame) = frame {
                        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                            self.received += u64::try_from(data.len()).unwrap_or(u64::MAX);
                            if self.received > BOUNDS.answer {
                                return Err(io::Error::other(format!(
                                    "the server sends more than {} bytes",
                                    BOUNDS.answer
                                )));
                            }
                            self.chunk = Cursor::new(data);
                        }
                        self.state = State::Stream(body);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.refill()?;
        self.chunk.read(buffer)
    }
}

impl BufRead for Answer {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.refill()?;
        self.chunk.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.consume(amount);
    }
}
