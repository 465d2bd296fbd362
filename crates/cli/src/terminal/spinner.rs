//! A spinner for steps that take longer.

use std::{borrow::Cow, time::Duration};

use indicatif::ProgressBar;

/// A spinner on standard error, hidden unless that is a terminal.
pub fn spinner(text: impl Into<Cow<'static, str>>) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(text);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
