//! The row of a pod: how far its containers are, in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, Column, NAME, human, is_ending, list, number, or_none, size, string, text, wide};

pub(in crate::builtin) const POD: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        let row = Row::of(o);
        format!("{}/{}", row.ready, row.containers).into()
    }),
    text("Status", |o, _| Row::of(o).word.into()),
    text("Restarts", |o, now| {
        let restarts = Row::of(o).restarts;
        match restarts.last.filter(|_| restarts.count != 0) {
            None => restarts.count.to_string(),
            Some(last) => {
                let since = human(now.as_second().saturating_sub(last.as_second()));
                format!("{} ({since} ago)", restarts.count)
            }
        }
        .into()
    }),
    AGE,
    wide(text("IP", |o, _| {
        let first = list(o, "/status/podIPs").first();
        or_none(first.map_or_else(|| string(o, "/status/podIP"), |first| string(first, "/ip")))
    })),
    wide(text("Node", |o, _| or_none(string(o, "/spec/nodeName")))),
    wide(text("Nominated Node", |o, _| {
        or_none(string(o, "/status/nominatedNodeName"))
    })),
    wide(text("Readiness Gates", |o, _| {
        let gates = list(o, "/spec/readinessGates");
        if gates.is_empty() {
            return "<none>".into();
        }
        let open = gates
            .iter()
            .filter(|gate| is_true(o, &string(gate, "/conditionType")));
        format!("{}/{}", open.count(), gates.len()).into()
    })),
];

/// What a reader of a table is told of a pod that has ended: it may leave it out.
pub(in crate::builtin) fn conditions(pod: &Value) -> Option<Value> {
    let phase = string(pod, "/status/phase");
    let message = match phase.as_str() {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": phase, "message": message }]))
}

/// Whether the first condition of this type is true.
fn is_true(pod: &Value, ty: &str) -> bool {
    let conditions = list(pod, "/status/conditions");
    let found = conditions
        .iter()
        .find(|condition| string(condition, "/type") == ty);
    found.is_some_and(|condition| string(condition, "/status") == "True")
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "/restartCount");
        let ended = string(status, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(ended);
    }
}

struct Row {
    ready: usize,
    containers: usize,
    word: String,
    restarts: Restarts,
}

impl Row {
    fn of(pod: &Value) -> Self {
        let phase = string(pod, "/status/phase");
        let reason = string(pod, "/status/reason");
        let unreachable = reason == "NodeLost";
        let gated = list(pod, "/status/conditions").iter().any(|condition| {
            string(condition, "/type") == "PodScheduled" && string(condition, "/reason") == "SchedulingGated"
        });
        let word = match reason {
            _ if gated => "SchedulingGated".to_owned(),
            reason if reason.is_empty() => phase.clone(),
            reason => reason,
        };
        let mut row = Self {
            ready: 0,
            containers: size(pod, "/spec/containers"),
            word,
            restarts: Restarts::default(),
        };
        let initializing = row.initialize(pod);
        if !initializing || is_true(pod, "Initialized") {
            row.run(pod);
        }
        if is_ending(pod) {
            if unreachable {
                row.word = "Unknown".into();
            } else if !matches!(phase.as_str(), "Succeeded" | "Failed") {
                row.word = "Terminating".into();
            }
        }
        row
    }

    /// Looks at what runs before the containers, or beside them. Tells whether one of these is awaited.
    fn initialize(&mut self, pod: &Value) -> bool {
        let first = list(pod, "/spec/initContainers");
        let is_sidecar = |name: &str| {
            let found = first.iter().find(|container| string(container, "/name") == name);
            found.is_some_and(|container| string(container, "/restartPolicy") == "Always")
        };
        self.containers += first
            .iter()
            .filter(|one| is_sidecar(&string(one, "/name")))
            .count();
        let mut all = Restarts::default();
        for (i, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            let sidecar = is_sidecar(&string(status, "/name"));
            all.add(status);
            if sidecar {
                self.restarts.add(status);
            }
            let waits = string(status, "/state/waiting/reason");
            match terminated(status) {
                Some(end) if number(end, "/exitCode") == 0 => continue,
                _ if sidecar && status.get("started") == Some(&Value::Bool(true)) => {
                    self.ready += usize::from(is_ready(status));
                    continue;
                }
                Some(end) => self.word = format!("Init:{}", why(end)),
                None if !waits.is_empty() && waits != "PodInitializing" => {
                    self.word = format!("Init:{waits}");
                }
                None => self.word = format!("Init:{i}/{}", first.len()),
            }
            if !is_true(pod, "Initialized") {
                self.restarts = all;
            }
            return true;
        }
        false
    }

    /// Looks at the containers, the last one first: what the first one says counts.
    fn run(&mut self, pod: &Value) {
        let mut running = false;
        let mut failed = None;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waits = string(status, "/state/waiting/reason");
            if !waits.is_empty() {
                self.word = waits;
            } else if let Some(end) = terminated(status) {
                self.word = why(end);
                if number(end, "/exitCode") != 0 {
                    failed = Some(self.word.clone());
                }
            } else if is_ready(status) && status.pointer("/state/running").is_some_and(Value::is_object) {
                running = true;
                self.ready += 1;
            }
        }
        if self.word != "Completed" {
            return;
        }
        if running && is_true(pod, "Ready") {
            self.word = "Running".into();
        } else if let Some(failed) = failed {
            self.word = failed;
        } else if running {
            self.word = "NotReady".into();
        }
    }
}

fn is_ready(status: &Value) -> bool {
    status.get("ready") == Some(&Value::Bool(true))
}

fn terminated(status: &Value) -> Option<&Value> {
    status.pointer("/state/terminated").filter(|end| end.is_object())
}

/// Why a container ended.
fn why(end: &Value) -> String {
    match (string(end, "/reason"), number(end, "/signal")) {
        (reason, _) if !reason.is_empty() => reason,
        (_, 0) => format!("ExitCode:{}", number(end, "/exitCode")),
        (_, signal) => format!("Signal:{signal}"),
    }
}
