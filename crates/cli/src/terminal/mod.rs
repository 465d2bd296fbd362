//! What is shown on a terminal while a command runs: a spinner, the live table of a fleet, log lines below it.

pub mod live_table;
pub mod log_screen;
mod spinner;

pub use spinner::spinner;
