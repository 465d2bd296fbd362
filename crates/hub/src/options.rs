//! How a hub is started. The command line fills this in; tests write it down.

/// The options of `writ hub`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The controllers to run, by folder name; none means all.
    pub controllers: Vec<String>,
}
