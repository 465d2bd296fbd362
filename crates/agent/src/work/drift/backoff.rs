//! Two that fight over an object must not do so at full speed.

use std::time::Duration;

use tokio::time::Instant;

/// How often what somebody did to an object had to be undone of late. Two that fight over an object must not do so at
/// full speed; that others change what is theirs is no fight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fights {
    count: u32,
    last: Option<Instant>,
}

/// So many changes in a row are undone at once.
const PATIENCE: u32 = 10;

/// After this time without a change the count starts again.
const CALM: Duration = Duration::from_mins(1);

impl Fights {
    /// A change was undone.
    pub fn one_more(&mut self) {
        self.count = self.recent().saturating_add(1);
        self.last = Some(Instant::now());
    }

    /// How long to wait before the next change is undone.
    pub fn delay(&self) -> Duration {
        match (self.recent() + 1).saturating_sub(PATIENCE) {
            0 => Duration::ZERO,
            over => Duration::from_secs(1 << over.min(5)),
        }
    }

    fn recent(&self) -> u32 {
        let calm = self.last.is_none_or(|last| last.elapsed() > CALM);
        if calm { 0 } else { self.count }
    }
}
