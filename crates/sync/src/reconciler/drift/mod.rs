//! What others change on the objects of a sync: the watches that show it, and how often it is undone.

pub mod backoff;
pub mod watch;
