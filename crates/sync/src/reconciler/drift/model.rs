//! The types of drift: what a watch covers, and what it shows.

use serde_json::Value;
use writ_controller::ObjectId;

/// What a watch covers: the objects of a kind, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all of them, and for a kind without namespaces.
    pub namespace: String,
}

/// What a watch has shown.
#[derive(Debug)]
pub enum Seen {
    /// An object was listed, created or changed.
    Live {
        /// Its id.
        id: ObjectId,
        /// Its content, without managed fields.
        object: Box<Value>,
        /// The field manager that wrote it last, as far as managed fields show that.
        by: Option<String>,
    },
    /// An object was deleted, or lost the label of the sync.
    Gone(ObjectId),
    /// A list is complete.
    Ready(Scope),
    /// The account may not watch this scope, with the answer of the API server.
    Refused(Scope, String),
    /// The watch keeps failing, with the last error.
    Failing(Scope, String),
}
