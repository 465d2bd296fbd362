//! Chores of the project: see `cargo xtask help`.

fn main() {}
