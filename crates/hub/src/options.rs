//! How a hub is started. The command line fills this in; tests write it down.

/// The options of `writ hub`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The controllers to run, by folder name; none means all.
    pub controllers: Vec<String>,
    /// Who this process is in the election of the one that acts; `None` means it acts alone.
    pub leader_election: Option<String>,
}
