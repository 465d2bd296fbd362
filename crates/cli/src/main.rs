//! The one binary of writ.

fn main() {}
