//! Where log lines go: to standard error, or below the live table while it is shown.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

/// How many lines are kept below the table.
const KEPT: usize = 5;

/// The last lines while the table is shown; `None` otherwise.
static LINES: Mutex<Option<VecDeque<String>>> = Mutex::new(None);

fn lines() -> MutexGuard<'static, Option<VecDeque<String>>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds the screen for the live table until it is dropped.
pub struct Taken;

/// Takes the screen: log lines are kept instead of written to it.
pub fn take() -> Taken {
    *lines() = Some(VecDeque::new());
    Taken
}

impl Taken {
    /// The last log lines.
    #[expect(clippy::unused_self, reason = "there are some only while the screen is taken")]
    pub fn last(&self) -> Vec<String> {
        lines().iter().flatten().cloned().collect()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The kept lines were visible only in the table; print them below it.
        for line in lines().take().into_iter().flatten() {
            eprintln!("{line}");
        }
    }
}

/// Writes log lines.
#[derive(Clone, Copy, Debug)]
pub struct Logs;

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lines() {
            Some(kept) => {
                let text = String::from_utf8_lossy(bytes);
                kept.extend(text.lines().map(str::to_owned));
                let old = kept.len().saturating_sub(KEPT);
                kept.drain(..old);
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_while_screen_is_taken_are_kept() {
        let taken = take();
        for number in 0..8 {
            // A log line comes in one piece.
            Logs.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let last = taken.last();
        assert_eq!(last.first().map(String::as_str), Some("line 3"));
        assert_eq!(last.len(), KEPT);
        drop(taken);
        assert!(lines().is_none());
    }
}
