//! What goes wrong, with the numbers that Config Sync's users know.

use writ_api::configsync::{ErrorResource, ErrorSummary, Gvk, SyncError};

use super::object::Key;

/// The most errors that a status lists; the rest is counted.
const MAX_LISTED: usize = 100;
/// The most that a status says about one: what the API server answers may quote a whole schema.
const MAX_LENGTH: usize = 2048;
/// The most that it says of a path: a hundred long ones are more than the API server stores.
const MAX_PATH: usize = 1024;

/// One thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The number, such as `1060`.
    pub code: &'static str,
    /// What went wrong and what to do.
    pub message: String,
    /// The file it is about.
    pub path: Option<String>,
    /// The object it is about.
    pub object: Option<Box<Key>>,
}

impl Problem {
    /// A problem of nothing in particular.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            path: None,
            object: None,
        }
    }

    /// About that file.
    #[must_use]
    pub fn at(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// About that object.
    #[must_use]
    pub fn about(mut self, object: &Key) -> Self {
        self.object = Some(Box::new(object.clone()));
        self
    }

    /// What a status says of it.
    pub fn text(&self) -> String {
        writ_controller::condition::clip(&format!("KNV{}: {}", self.code, self.message), MAX_LENGTH)
    }

    fn report(&self) -> SyncError {
        let resource = ErrorResource {
            source_path: self
                .path
                .as_ref()
                .map(|path| writ_controller::condition::clip(path, MAX_PATH)),
            name: self.object.as_ref().map(|o| o.name.clone()),
            namespace: self
                .object
                .as_ref()
                .map(|o| o.namespace.clone())
                .filter(|n| !n.is_empty()),
            gvk: self.object.as_ref().map(|o| Gvk {
                group: o.group.clone(),
                version: String::new(),
                kind: o.kind.clone(),
            }),
        };
        SyncError {
            code: self.code.to_owned(),
            error_message: self.text(),
            error_resources: (resource != ErrorResource::default()).then(|| vec![resource]),
        }
    }
}

/// As a status lists them, and how many there are.
pub fn report(problems: &[Problem]) -> (Option<Vec<SyncError>>, Option<ErrorSummary>) {
    if problems.is_empty() {
        return (None, None);
    }
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort();
    sorted.dedup();
    let total = sorted.len();
    let listed: Vec<SyncError> = sorted.into_iter().take(MAX_LISTED).map(Problem::report).collect();
    let count = |n: usize| i64::try_from(n).ok();
    let summary = ErrorSummary {
        total_count: count(total),
        truncated: Some(total > listed.len()),
        error_count_after_truncation: count(listed.len()),
    };
    (Some(listed), Some(summary))
}
