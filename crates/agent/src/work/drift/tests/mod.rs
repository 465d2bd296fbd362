//! Tests of the index, and of the watches.

mod index;
mod watches;
