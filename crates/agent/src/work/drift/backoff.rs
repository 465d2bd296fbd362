//! Growing pauses for an object that another writer changes again and again.

use std::time::Duration;

use tokio::time::Instant;

/// So many changes in a row are corrected at once.
const FREE: u32 = 10;

/// After this time without a change the count starts again.
const CALM: Duration = Duration::from_mins(1);

/// How often the change of another writer was corrected of late. That others change their own fields does not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriftBackoff {
    count: u32,
    last: Option<Instant>,
}

impl DriftBackoff {
    /// Counts a change that was corrected.
    pub fn count_correction(&mut self) {
        self.count = self.recent().saturating_add(1);
        self.last = Some(Instant::now());
    }

    /// How long to wait before the next correction.
    pub fn delay(&self) -> Duration {
        match (self.recent() + 1).saturating_sub(FREE) {
            0 => Duration::ZERO,
            over => Duration::from_secs(1 << over.min(5)),
        }
    }

    fn recent(&self) -> u32 {
        let is_calm = self.last.is_none_or(|last| last.elapsed() > CALM);
        if is_calm { 0 } else { self.count }
    }
}
