//! What goes wrong: Config Sync's error codes, problems as a status lists them, and failures of requests.

use std::fmt;

use writ_api::configsync::{ErrorResource, ErrorSummary, Gvk, SyncError};
use writ_controller::{ObjectId, condition::clip};

/// The most errors that a status lists; the rest is counted.
const MAX_LISTED: usize = 100;
/// The longest message of one error: an answer of the API server may quote a whole schema.
const MAX_MESSAGE: usize = 2048;
/// The longest path of one error: a hundred long ones exceed what the API server stores.
const MAX_PATH: usize = 1024;

/// An error code of Config Sync. A status shows code 1060 as `KNV1060`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// A file or an object in it cannot be parsed.
    ObjectParse = 1006,
    /// The namespace of an object contradicts its folder.
    IllegalMetadataNamespace = 1009,
    /// An object depends on selectors, which are not supported.
    UnknownSelector = 1013,
    /// A repository in hierarchy format has no Repo object.
    MissingRepo = 1017,
    /// A Namespace is directly below `namespaces/`.
    IllegalTopLevelNamespace = 1019,
    /// A Namespace is in a folder of another name.
    InvalidNamespaceName = 1020,
    /// The API server does not serve the kind.
    UnknownKind = 1021,
    /// An object in `system/` does not belong there.
    IllegalKindInSystem = 1024,
    /// An object is outside of the folders of the hierarchy format.
    InvalidDirectory = 1028,
    /// An object is declared more than once.
    NameCollision = 1029,
    /// An object has no name.
    MissingObjectName = 1031,
    /// The name of an object cannot be used.
    InvalidMetadataName = 1036,
    /// No Namespace inherits an object.
    UnsyncableObject = 1044,
    /// An object in `cluster/` has a namespace.
    IllegalNamespaceOnClusterObject = 1052,
    /// Labels or annotations are not strings.
    InvalidAnnotationValue = 1054,
    /// The namespace of an object cannot be used.
    InvalidNamespace = 1055,
    /// An object is not of the scope that its sync or its kind has.
    BadScope = 1058,
    /// Two syncs declare one object.
    ManagementConflict = 1060,
    /// The sync itself is invalid.
    InvalidSync = 1061,
    /// The source must be rendered first.
    Rendering = 1068,
    /// A sync declares itself.
    SelfReconcile = 1069,
    /// A file cannot be read.
    Path = 2001,
    /// The API server did not answer, or failed.
    ApiServer = 2002,
    /// The repository cannot be read.
    Source = 2004,
    /// Another writer changes an object again and again.
    ResourceFight = 2005,
    /// A commit would delete every namespace.
    EmptySource = 2006,
    /// An object is still being deleted.
    Apply = 2009,
    /// The API server refused an object.
    Resource = 2010,
    /// The account lacks a right.
    InsufficientPermission = 2013,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", *self as u16)
    }
}

/// One error of a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The error code.
    pub code: Code,
    /// What is wrong, and how to mend it.
    pub message: String,
    /// The file that it concerns.
    pub path: Option<String>,
    /// The object that it concerns.
    pub object: Option<Box<ObjectId>>,
}

impl Problem {
    /// A problem that concerns neither a file nor an object.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            path: None,
            object: None,
        }
    }

    /// Adds the file.
    #[must_use]
    pub fn at(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Adds the object.
    #[must_use]
    pub fn about(mut self, object: &ObjectId) -> Self {
        self.object = Some(Box::new(object.clone()));
        self
    }

    /// The message as a status shows it.
    pub fn text(&self) -> String {
        clip(&format!("KNV{}: {}", self.code, self.message), MAX_MESSAGE)
    }

    fn to_sync_error(&self) -> SyncError {
        let object = self.object.as_deref();
        let resource = ErrorResource {
            source_path: self.path.as_ref().map(|path| clip(path, MAX_PATH)),
            name: object.map(|id| id.name.name.to_string()),
            namespace: object
                .map(|id| id.name.namespace.to_string())
                .filter(|namespace| !namespace.is_empty()),
            gvk: object.map(|id| Gvk {
                group: id.group.to_string(),
                version: String::new(),
                kind: id.kind.to_string(),
            }),
        };
        SyncError {
            code: self.code.to_string(),
            error_message: self.text(),
            error_resources: (resource != ErrorResource::default()).then(|| vec![resource]),
        }
    }
}

/// Problems as a status lists them, sorted and without duplicates, and their count.
pub fn list(problems: &[Problem]) -> (Option<Vec<SyncError>>, Option<ErrorSummary>) {
    if problems.is_empty() {
        return (None, None);
    }
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort();
    sorted.dedup();
    let total = sorted.len();
    let listed: Vec<SyncError> = sorted
        .into_iter()
        .take(MAX_LISTED)
        .map(Problem::to_sync_error)
        .collect();
    let count = |n: usize| i64::try_from(n).ok();
    let summary = ErrorSummary {
        total_count: count(total),
        truncated: Some(total > listed.len()),
        error_count_after_truncation: count(listed.len()),
    };
    (Some(listed), Some(summary))
}

/// Why a request about an object failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The problem for the status.
    pub problem: Problem,
    /// The cause, on which decisions rest.
    pub cause: Cause,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The request was refused, or cannot be made.
    Refused,
    /// The account lacks a right.
    Forbidden,
    /// Another sync manages the object.
    ManagementConflict,
    /// The token of the account was refused; another one must be requested.
    Unauthorized,
    /// The API server failed; the request may have taken effect.
    ServerError,
    /// No answer came; the request may have taken effect.
    Unanswered,
    /// The kind is not served in this version.
    KindNotServed,
    /// The namespace does not exist.
    NamespaceMissing,
}

impl Cause {
    /// The cause that a status code of the API server stands for; `None` is no answer.
    pub fn of_code(code: Option<u16>) -> Self {
        match code {
            None => Self::Unanswered,
            Some(401) => Self::Unauthorized,
            Some(403) => Self::Forbidden,
            Some(400 | 404 | 405 | 409 | 422) => Self::Refused,
            Some(_) => Self::ServerError,
        }
    }

    /// Whether the object may have been written all the same.
    pub fn may_have_taken_effect(self) -> bool {
        matches!(self, Self::Unauthorized | Self::ServerError | Self::Unanswered)
    }

    /// Whether an object that cannot be removed for this cause is left behind, if the sync asks for that. An API server
    /// that is away, or refuses the token, says nothing about the object.
    pub fn may_be_abandoned(self) -> bool {
        !matches!(self, Self::Unauthorized | Self::Unanswered)
    }
}

impl Failure {
    /// A request that was refused, or that this reconciler does not make.
    pub fn refused(problem: Problem) -> Self {
        Self {
            problem,
            cause: Cause::Refused,
        }
    }

    /// A failure that a status code of the API server stands for.
    pub fn of_code(problem: Problem, code: Option<u16>) -> Self {
        Self {
            problem,
            cause: Cause::of_code(code),
        }
    }
}
