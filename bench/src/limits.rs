//! Rows of figures, each with its limit; a bench ends with a failure if one is broken.

use std::{process::ExitCode, time::Duration};

/// The figures of one bench.
#[derive(Debug, Default)]
pub struct Figures {
    rows: Vec<[String; 3]>,
    broken: usize,
}

impl Figures {
    /// A figure without a limit: what others are compared with.
    pub fn note(&mut self, what: &str, measured: impl Into<String>) {
        self.push(what, measured.into(), String::new());
    }

    /// A figure that must not be larger.
    pub fn at_most(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.limited(what, measured, limit, unit, "at most", measured <= limit);
    }

    /// A figure that must not be smaller.
    pub fn at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.limited(what, measured, limit, unit, "at least", measured >= limit);
    }

    fn limited(&mut self, what: &str, measured: f64, limit: f64, unit: &str, word: &str, holds: bool) {
        let mut text = format!("{word} {limit}{unit}");
        if !holds {
            self.broken += 1;
            text.push_str(", **broken**");
        }
        self.push(what, format!("{measured:.2}{unit}"), text);
    }

    fn push(&mut self, what: &str, measured: String, limit: String) {
        eprintln!("{what}: {measured} ({limit})");
        self.rows.push([what.into(), measured, limit]);
    }

    /// Prints the table; a failure if a limit is broken.
    pub fn finish(&self) -> ExitCode {
        println!("| what | measured | limit |\n| --- | --- | --- |");
        for [what, measured, limit] in &self.rows {
            println!("| {what} | {measured} | {limit} |");
        }
        if self.broken == 0 {
            ExitCode::SUCCESS
        } else {
            println!("\n{} limits are broken", self.broken);
            ExitCode::FAILURE
        }
    }
}

/// Durations of many runs.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// One more run.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many runs.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The quantile, in per cent, in seconds.
    pub fn quantile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(0.0, Duration::as_secs_f64)
    }

    /// `p50 and p99` for people.
    pub fn text(&self) -> String {
        let ms = |percent| self.quantile(percent) * 1e3;
        format!("p50 {:.1} ms, p99 {:.1} ms", ms(50), ms(99))
    }
}
