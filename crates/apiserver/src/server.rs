//! The face of the crate: a server that can be started, asked for clients, and stopped.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::auth::{Authorizer, Issuer, Peer, Recorder, StaticTokens, User, Ways};
use crate::bootstrap::Definitions;
use crate::clock::Clock;
use crate::controllers::{self, Follower, Work};
use crate::http::{Body, Slow};
use crate::registry::Registry;
use crate::serve::{Authority, ClientWish};
use crate::state::State;
use crate::store::{OpenError, Store};
use crate::{bootstrap, serve as serving};

/// The user of [`Server::client`] and of the kubeconfig.
const ADMIN: &str = "kubernetes-admin";
const MASTERS: &str = crate::auth::MASTERS;

/// A server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// Keys or certificates cannot be made or read.
    #[error("the cluster's keys cannot be made: {0}")]
    Keys(String),
    /// The port cannot be opened.
    #[error("the server cannot listen on port {0}: {1}")]
    Listen(u16, String),
    /// The kubeconfig cannot be written.
    #[error("the kubeconfig {0} cannot be written: {1}")]
    Kubeconfig(String, std::io::Error),
}

/// How a server is to be.
#[derive(Default)]
pub struct Builder {
    port: Option<u16>,
    data: Option<PathBuf>,
    clock: Clock,
    tokens: Vec<(String, User)>,
    recorder: Option<Arc<Recorder>>,
    definitions: Option<Definitions>,
}

impl Builder {
    /// Serves HTTPS on this port of the local machine; 0 picks a free one. Without a port there is no socket, only clients in this
    /// process.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Keeps everything in a folder. Without one, everything is gone when the server stops.
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// The clock to live by.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Accepts a bearer token for a user.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.push((token.into(), user));
        self
    }

    /// Is told which RBAC rule allowed each request. Requests of `system:masters` are allowed by no rule.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Begins with these definitions, those that are not there yet.
    #[must_use]
    pub fn definitions(mut self, definitions: Definitions) -> Self {
        self.definitions = Some(definitions);
        self
    }

    /// Starts the server; it is ready when this returns.
    pub async fn start(self) -> Result<Server, StartError> {
        let store = Store::open(self.data.as_deref())?;
        let now = self.clock.now();
        let authority = Authority::open(&store, now).map_err(StartError::Keys)?;
        let issuer = Issuer::new(&signing_key(&store)?).map_err(StartError::Keys)?;
        let (authorizer, registry, work) = (
            Arc::new(Authorizer::new()),
            Arc::new(Registry::new()),
            Arc::new(Work::default()),
        );
        if let Some(recorder) = self.recorder {
            authorizer.record(recorder);
        }
        let tokens = StaticTokens::default();
        for (token, user) in self.tokens {
            tokens.add(token, user);
        }
        let state = Arc::new(State {
            store,
            registry: registry.clone(),
            clock: self.clock,
            authorizer: authorizer.clone(),
            tokens,
            ways: Ways::default(),
            issuer,
            authority,
            work: work.clone(),
            stop: CancellationToken::new(),
            admission: Admission::new(),
            own_uid: crate::store::new_uid(),
            requests: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            slow: Slow::default(),
            address: OnceLock::new(),
        });
        state
            .store
            .observe(Arc::new(Follower::new(authorizer, registry, work)));
        bootstrap::fill(&state);
        if let Some(definitions) = &self.definitions {
            definitions.fill(&state);
        }
        controllers::settle(&state).await;
        tokio::spawn(controllers::run(state.clone()));
        if let Some(port) = self.port {
            serving::listen(&state, port)
                .await
                .map_err(|error| StartError::Listen(port, error))?;
        }
        Ok(Server { state })
    }
}

/// The key that signs tokens, kept with the data.
fn signing_key(store: &Store) -> Result<rcgen::KeyPair, StartError> {
    let keys = |error: rcgen::Error| StartError::Keys(error.to_string());
    let kept = store
        .secret("sa.key")
        .and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(pem) = kept {
        return rcgen::KeyPair::from_pem(&pem).map_err(keys);
    }
    let key = rcgen::KeyPair::generate().map_err(keys)?;
    store.keep_secret("sa.key", key.serialize_pem().as_bytes())?;
    Ok(key)
}

/// A running server. It stops when it is dropped.
pub struct Server {
    state: Arc<State>,
}

impl Server {
    /// How a server is to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client in this process, as the administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(ADMIN, [MASTERS])
    }

    /// A client in this process, as any user. The group `system:authenticated` is added.
    pub fn client_as<S: Into<String>>(
        &self,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = S>,
    ) -> kube::Client {
        self.in_process(Caller::Trusted(Box::new(User::new(user, groups))))
    }

    /// A client in this process that shows a bearer token with each request.
    pub fn client_with_token(&self, token: &str) -> Result<kube::Client, StartError> {
        let mut header = http::HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| StartError::Keys("a token cannot be sent as a header".into()))?;
        header.set_sensitive(true);
        Ok(self.in_process(Caller::Token(header)))
    }

    /// A client in this process that is nobody, unless a request carries a token.
    pub fn anonymous(&self) -> kube::Client {
        self.in_process(Caller::Nobody)
    }

    fn in_process(&self, caller: Caller) -> kube::Client {
        let state = self.state.clone();
        kube::Client::new(InProcess { state, caller }, "default")
    }

    /// The address of the API, if there is a socket.
    pub fn url(&self) -> Option<String> {
        self.state.url()
    }

    /// The certificate authority of the cluster, PEM.
    pub fn ca(&self) -> &str {
        &self.state.authority.pem
    }

    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self) -> Result<String, StartError> {
        self.kubeconfig_as(ADMIN, &[MASTERS.to_owned()])
    }

    /// A kubeconfig for any user, with a client certificate. Without a socket its server is a name that nobody answers to.
    pub fn kubeconfig_as(&self, user: &str, groups: &[String]) -> Result<String, StartError> {
        let wish = ClientWish { name: user, groups };
        let (certificate, key) = self
            .state
            .authority
            .client_certificate(&wish, self.state.clock.now())
            .map_err(|error| StartError::Keys(error.to_string()))?;
        let url = self.url().unwrap_or_else(|| "https://embedded.invalid".into());
        Ok(serving::kubeconfig(&url, self.ca(), user, &certificate, &key))
    }

    /// The definitions that are installed now, to begin further servers with.
    pub fn definitions(&self) -> Definitions {
        Definitions::of(&self.state)
    }

    /// Forgets the history of changes, as compaction does: watches from before now are told 410.
    pub fn compact(&self) {
        self.state.store.compact();
    }

    /// Ends all watches, finishes writing, and stops.
    pub async fn stop(self) {
        self.state.stop.cancel();
        let state = self.state.clone();
        // Waits for the disk, so not on a thread of the runtime.
        drop(tokio::task::spawn_blocking(move || state.store.close()).await);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.cancel();
    }
}

/// Requests that never leave the process.
#[derive(Clone)]
struct InProcess {
    state: Arc<State>,
    caller: Caller,
}

/// Who makes them.
#[derive(Clone)]
enum Caller {
    Trusted(Box<User>),
    Token(http::HeaderValue),
    Nobody,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let state = self.state.clone();
        let mut request = request.map(Body::new);
        match &self.caller {
            Caller::Trusted(user) => {
                request.extensions_mut().insert(Peer::Trusted(user.clone()));
            }
            Caller::Token(header) => {
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, header.clone());
            }
            Caller::Nobody => {}
        }
        Box::pin(async move { Ok(crate::http::handle(&state, request).await) })
    }
}

/// Options of [`serve`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The port; 0 picks a free one.
    pub port: u16,
    /// Where everything is kept; nowhere, if not given.
    pub data: Option<PathBuf>,
    /// Where the administrator's kubeconfig is written when the server is ready.
    pub kubeconfig_out: Option<PathBuf>,
}

/// Serves until `shutdown` ends. `ready` is told the address and the kubeconfig.
pub async fn serve(
    options: Options,
    ready: impl FnOnce(&str, &str),
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let mut builder = Server::builder().port(options.port);
    if let Some(folder) = options.data {
        builder = builder.data(folder);
    }
    let server = builder.start().await?;
    let kubeconfig = server.kubeconfig()?;
    if let Some(path) = &options.kubeconfig_out {
        write_kubeconfig(path, &kubeconfig)
            .map_err(|error| StartError::Kubeconfig(path.display().to_string(), error))?;
    }
    ready(&server.url().unwrap_or_default(), &kubeconfig);
    shutdown.await;
    server.stop().await;
    Ok(())
}

/// Written beside and moved into place, so that whoever waits for the file finds it whole; and readable by its owner alone.
fn write_kubeconfig(path: &Path, kubeconfig: &str) -> std::io::Result<()> {
    // What is a pipe or a device, such as `/dev/stdout`, must stay one. A folder refuses to be written to.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut there = std::fs::OpenOptions::new().write(true).open(path)?;
        return there.write_all(kubeconfig.as_bytes());
    }
    // So must a link: what it leads to is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // Left by one that was killed, or laid by somebody who wants to read along: never written into.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&beside)?
        .write_all(kubeconfig.as_bytes())
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        drop(std::fs::remove_file(&beside));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_kubeconfig_is_for_its_owner_alone() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("config"), folder.path().join("config.new"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        std::fs::write(&beside, "left over").unwrap();
        assert_eq!(mode(&beside) & 0o044, 0o044);
        write_kubeconfig(&path, "first").unwrap();
        assert_eq!(mode(&path), 0o600);
        // Somebody waits for the key elsewhere.
        let elsewhere = folder.path().join("elsewhere");
        symlink(&elsewhere, &beside).unwrap();
        write_kubeconfig(&path, "second").unwrap();
        assert!(!elsewhere.exists());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
    }
}
