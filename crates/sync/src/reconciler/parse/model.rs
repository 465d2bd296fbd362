//! The types of parsing: the layout of files, and what they declare.

use crate::reconciler::{error::Problem, object::Raw};

/// The layout of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Objects may be in any file.
    Unstructured,
    /// Objects are in `system`, `cluster` and `namespaces`.
    Hierarchy,
}

/// The objects that files declare, and the problems of the files.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects.
    pub objects: Vec<Raw>,
    /// Problems of files and objects.
    pub problems: Vec<Problem>,
    /// Parts of the source that must be rendered first, which is not supported.
    pub rendering: Vec<Problem>,
}
