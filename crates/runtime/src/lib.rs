//! Text formats and CEL: what reads and writes the languages that fields of Kubernetes objects hold.

pub mod cel;
pub mod path;
pub mod quantity;
pub mod segment;
pub mod yaml;
