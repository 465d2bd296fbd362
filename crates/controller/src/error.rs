//! The error of a controller: what was tried, and what the server said.

/// Why a controller or one of its reconciles failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to an API server failed.
    #[error("{what}: {}", explain(.source))]
    Api {
        /// What was tried, as a verb phrase: `create ManifestWork cluster1/web`.
        what: String,
        /// What the client or the server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object could not be understood; retrying without a change cannot help.
    #[error("{0}")]
    Invalid(String),
    /// Something is in the way at this moment; a retry is expected to succeed.
    #[error("{0}")]
    Busy(String),
    /// Something outside of an API server failed (a file, a socket, a certificate).
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Wraps an error that is not the API server's.
    pub fn io(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }

    /// The category, in PascalCase: a condition's or an event's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { source, .. } => match status_code(source) {
                Some(403) => "Forbidden",
                Some(404) => "NotFound",
                Some(409) => "Conflict",
                Some(422 | 400) => "Refused",
                Some(_) => "ApiError",
                None => "Unreachable",
            },
            Self::Invalid(_) => "Invalid",
            Self::Busy(_) => "Busy",
            Self::Io { .. } => "Failed",
        }
    }

    /// Whether the server answered with this HTTP status code.
    pub fn is_code(&self, code: u16) -> bool {
        self.code() == Some(code)
    }

    /// The HTTP status code of the server's answer, if it answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => status_code(source),
            Self::Invalid(_) | Self::Busy(_) | Self::Io { .. } => None,
        }
    }
}

/// Adds what was tried to a failed request.
pub trait Context<T> {
    /// `what` is a verb phrase: `list ManagedClusters`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, kube::Error> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Api {
            what: what(),
            source: Box::new(source),
        })
    }
}

/// The HTTP status code of an API server's answer, if it answered.
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether a write was refused because there is no such namespace, and not because its object or kind is missing.
pub fn is_namespace_missing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            let details = status.details.as_ref();
            status.code == 404 && details.is_some_and(|details| details.kind == "namespaces")
        }
        _ => false,
    }
}

/// Whether a write was refused because its namespace is being deleted.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            status.code == 403 && causes.any(|cause| cause.reason == "NamespaceTerminating")
        }
        _ => false,
    }
}

/// The server's own words where it answered, the client's otherwise.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
