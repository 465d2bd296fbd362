//! Figures over all transcripts: are there enough, of each kind?

use std::collections::BTreeMap;

use super::transcript::Outcome;

/// What the server must do, by the numbers of the transcripts.
const POINTS: [(&str, &str); 15] = [
    ("01", "storage"),
    ("02", "reads"),
    ("03", "watch"),
    ("04", "writes"),
    ("05", "server-side apply"),
    ("06", "kinds"),
    ("07", "custom resources"),
    ("08", "definitions and rules"),
    ("09", "who are you"),
    ("10", "may you"),
    ("11", "admission"),
    ("12", "certificates"),
    ("13", "discovery"),
    ("14", "bad input"),
    ("15", "serving"),
];

/// Figures over all transcripts.
#[derive(Default)]
pub struct Tally {
    rows: Vec<(String, usize, usize)>,
    allowed: Vec<String>,
    messages: (usize, usize),
}

impl Tally {
    pub fn add(&mut self, outcome: &Outcome) {
        self.rows
            .push((outcome.name.clone(), outcome.requests, outcome.bad));
        self.allowed
            .extend(outcome.allowed.iter().map(|a| format!("{}: {a}", outcome.name)));
        self.messages.0 += outcome.messages.0;
        self.messages.1 += outcome.messages.1;
    }

    /// Requests and bad ones for each point of what the server must do. A transcript's name starts with its point's number.
    fn points(&self) -> BTreeMap<&'static str, (usize, usize)> {
        let mut points = BTreeMap::new();
        for (name, requests, bad) in &self.rows {
            let point = POINTS.iter().find(|(prefix, _)| name.starts_with(prefix));
            let row: &mut (usize, usize) = points.entry(point.map_or("?", |(_, point)| point)).or_default();
            row.0 += requests;
            row.1 += bad;
        }
        points
    }

    /// Whether each point has its 15 requests, and a third of all are bad. Asked only when all transcripts ran.
    pub fn enough(&self) -> Result<(), String> {
        let points = self.points();
        let thin: Vec<_> = POINTS
            .iter()
            .filter(|(_, point)| {
                points
                    .get(point)
                    .is_none_or(|(requests, bad)| *requests < 15 || *bad < 3)
            })
            .collect();
        let (requests, bad) = self
            .rows
            .iter()
            .fold((0, 0), |(r, b), row| (r + row.1, b + row.2));
        if thin.is_empty() && requests >= 300 && bad * 3 >= requests {
            return Ok(());
        }
        Err(format!("{requests} requests, {bad} bad; too thin: {thin:?}"))
    }

    pub fn print(&self) {
        if self.rows.is_empty() {
            return;
        }
        let (requests, bad) = self
            .rows
            .iter()
            .fold((0, 0), |(r, b), row| (r + row.1, b + row.2));
        println!(
            "\n{} transcripts, {requests} requests, {bad} of them bad",
            self.rows.len()
        );
        for (point, (requests, bad)) in self.points() {
            println!("  {point}: {requests} requests, {bad} bad");
        }
        println!(
            "{} of {} error messages are word for word the same",
            self.messages.0, self.messages.1
        );
        for allowed in &self.allowed {
            println!("allowed difference: {allowed}");
        }
    }
}
