//! Transcripts: requests as data.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::{differences, essence, keep_common, scrub};
use super::exchange::{Answer, Pair, Side, Wanted};
use super::values::{Values, fill, read, signing_request, spelled, with_zeros};

/// One request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: Option<String>,
    get: Option<String>,
    post: Option<String>,
    put: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    /// A GET whose answer is a stream of events.
    watch: Option<String>,
    /// The same over a WebSocket.
    socket: Option<String>,
    /// Any other method: `METHOD /path`.
    send: Option<String>,
    /// The kind of patch, or any content type.
    #[serde(rename = "type")]
    content_type: Option<String>,
    body: Option<Value>,
    text: Option<String>,
    /// Sent once with each of these for `${each}`, and named after it.
    #[serde(default)]
    each: Vec<String>,
    /// A text of this many bytes stands for `${big}`.
    big: Option<usize>,
    /// Texts that stand for `${name}`, each a text repeated so many times.
    #[serde(default)]
    rows: BTreeMap<String, (String, usize)>,
    /// A user to impersonate.
    #[serde(rename = "as")]
    user: Option<User>,
    /// Sent without credentials of its own.
    #[serde(default)]
    anonymous: bool,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Values to remember: `${name}`.
    #[serde(default)]
    save: BTreeMap<String, String>,
    /// Ask again until the answer is so.
    until: Option<BTreeMap<String, Value>>,
    /// What is not compared in this answer.
    #[serde(default)]
    ignore: Vec<String>,
    /// Fields that are not compared wherever they are.
    #[serde(default)]
    without: Vec<String>,
    /// Lists and maps of which only those items are compared that the embedded server has.
    #[serde(default)]
    among: Vec<String>,
    /// Headers that are compared too.
    #[serde(default)]
    show: Vec<String>,
    /// Compare the status code only.
    #[serde(default)]
    code_only: bool,
    /// Not compared at all: preparation.
    #[serde(default)]
    setup: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum User {
    Name(String),
    Full {
        user: String,
        #[serde(default)]
        groups: Vec<String>,
        #[serde(default)]
        extra: BTreeMap<String, Vec<String>>,
        uid: Option<String>,
    },
}

/// A difference that is known and has a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    transcript: String,
    step: String,
    /// The beginning of the difference's path.
    #[serde(default)]
    path: String,
    reason: String,
}

/// A file of requests.
pub struct Transcript {
    pub name: String,
    steps: Vec<Step>,
    allowed: Vec<Allowed>,
}

/// What became of a transcript.
#[derive(Default)]
pub struct Outcome {
    pub name: String,
    pub requests: usize,
    pub bad: usize,
    pub differences: Vec<String>,
    pub allowed: Vec<String>,
    pub messages: (usize, usize),
}

/// Where the transcripts are: another folder, for those who try something.
fn folder() -> PathBuf {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    std::env::var_os("CONFORMANCE_TRANSCRIPTS").map_or_else(|| ours.into(), PathBuf::from)
}

/// All transcripts, in order of their names.
pub fn all() -> Vec<Transcript> {
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .filter(|path| path.file_stem().is_some_and(|stem| stem != "allowed"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let steps: Vec<Step> =
                serde_saphyr::from_str(&read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let steps = steps.into_iter().flat_map(Step::expand).collect();
            let allowed: Vec<Allowed> =
                serde_saphyr::from_str(&read(&folder().join("allowed.yaml"))).unwrap();
            let allowed = allowed.into_iter().filter(|a| a.transcript == name).collect();
            Transcript { name, steps, allowed }
        })
        .collect()
}

impl Step {
    /// One step for each value it is to be sent with.
    fn expand(mut self) -> Vec<Self> {
        let each = std::mem::take(&mut self.each);
        if each.is_empty() {
            return vec![self];
        }
        let body = self.body.take().expect("a body").to_string();
        let with = |value: String| {
            let quoted = Value::from(value.as_str()).to_string();
            let body = body.replace("${each}", quoted.trim_matches('"'));
            Self {
                body: Some(serde_json::from_str(&body).expect("JSON")),
                name: Some(value),
                ..self.clone()
            }
        };
        each.into_iter().map(with).collect()
    }

    fn place(&self) -> (&str, &str) {
        if let Some(send) = &self.send {
            return send.split_once(' ').expect("a method and a path");
        }
        let all = [
            ("GET", &self.get),
            ("POST", &self.post),
            ("PUT", &self.put),
            ("PATCH", &self.patch),
            ("DELETE", &self.delete),
            ("GET", &self.watch),
            ("GET", &self.socket),
        ];
        all.into_iter()
            .find_map(|(m, p)| p.as_deref().map(|p| (m, p)))
            .expect("a step has a path")
    }

    fn title(&self) -> String {
        let (method, path) = self.place();
        self.name.clone().unwrap_or_else(|| format!("{method} {path}"))
    }

    fn request(&self, values: &Values) -> Wanted {
        let (method, path) = self.place();
        let mut headers: Vec<(String, String)> = self
            .headers
            .iter()
            .map(|(k, v)| (k.clone(), fill(v, values)))
            .collect();
        let mut header = |name: &str, value: &str| headers.push((name.to_owned(), fill(value, values)));
        match &self.user {
            None => {}
            Some(User::Name(name)) => header("Impersonate-User", name),
            Some(User::Full {
                user,
                groups,
                extra,
                uid,
            }) => {
                header("Impersonate-User", user);
                for group in groups {
                    header("Impersonate-Group", group);
                }
                for (key, all) in extra {
                    for value in all {
                        header(&format!("Impersonate-Extra-{key}"), value);
                    }
                }
                if let Some(uid) = uid {
                    header("Impersonate-Uid", uid);
                }
            }
        }
        let content_type = match self.content_type.as_deref() {
            None if method == "PATCH" => Some("application/merge-patch+json"),
            None => Some("application/json"),
            Some("merge") => Some("application/merge-patch+json"),
            Some("json") => Some("application/json-patch+json"),
            Some("strategic") => Some("application/strategic-merge-patch+json"),
            Some("apply") => Some("application/apply-patch+yaml"),
            Some("none") => None,
            Some(other) => Some(other),
        };
        let body = match (&self.body, &self.text) {
            (Some(body), _) => fill(&with_zeros(body.to_string()), values),
            (None, Some(text)) => fill(text, values),
            (None, None) => String::new(),
        };
        let body = self
            .big
            .map_or_else(|| body.clone(), |n| body.replace("${big}", &"x".repeat(n)));
        let body = self.rows.iter().fold(body, |body, (name, (text, times))| {
            body.replace(&format!("${{{name}}}"), &text.repeat(*times))
        });
        if let Some(content_type) = content_type.filter(|_| !body.is_empty() || self.content_type.is_some()) {
            header("Content-Type", content_type);
        }
        Wanted {
            method: method.to_owned(),
            path: fill(path, values),
            headers,
            body: body.into_bytes(),
            anonymous: self.anonymous,
            stream: self.watch.is_some(),
            socket: self.socket.is_some(),
        }
    }

    fn satisfied(&self, answer: &Answer, values: &Values) -> bool {
        self.until
            .iter()
            .flatten()
            .all(|(pointer, wanted)| match pointer.as_str() {
                "code" => wanted.as_u64() == Some(u64::from(answer.code)),
                pointer => {
                    let found = answer.body.pointer(pointer).unwrap_or(&Value::Null);
                    match wanted.as_str() {
                        Some(wanted) => found.as_str() == Some(&fill(wanted, values)),
                        None => found == wanted,
                    }
                }
            })
    }
}

/// What a webhook was asked, without what no two servers have in common.
fn asked(calls: Vec<(String, Value)>) -> Value {
    let calls = calls.into_iter().map(|(path, mut review)| {
        // Each server has an administrator of its own.
        if let Some(user) = review.get_mut("userInfo").and_then(Value::as_object_mut)
            && user
                .get("groups")
                .is_some_and(|groups| groups[0] == "system:masters")
        {
            user.remove("username");
            user.remove("extra");
        }
        let mut out = scrub(&review);
        out["path"] = path.into();
        out
    });
    calls.collect()
}

impl Transcript {
    /// Who calls the webhook: transcripts run at the same time.
    fn asker(&self, side: &Side) -> String {
        format!("{}.{}", side.name, self.name)
    }

    /// Sends every request to both servers and compares the answers.
    pub async fn run(&self, pair: &Pair) -> Outcome {
        let mut outcome = Outcome {
            name: self.name.clone(),
            ..Outcome::default()
        };
        let own = HashMap::from([
            ("ns".to_owned(), format!("conf-{}", self.name)),
            ("csr".to_owned(), signing_request(&[])),
            ("csrMasters".to_owned(), signing_request(&["system:masters"])),
        ]);
        let mut values = [&pair.real, &pair.ours].map(|side| {
            let mut own = own.clone();
            for (name, door) in [
                ("hook", &pair.webhook.usual),
                ("hookOwn", &pair.webhook.own_authority),
                ("hookOther", &pair.webhook.other_host),
            ] {
                own.insert(name.into(), door.url(&self.asker(side)));
                own.insert(format!("{name}Ca"), door.ca.clone());
            }
            own.insert("hookPlain".into(), pair.webhook.plain.to_string());
            own
        });
        let mut used = vec![false; self.allowed.len()];
        // Validation by a schema speaks in the words of the real server.
        let words = [
            "07-crd",
            "07h-places-named",
            "07i-values-of-a-status",
            "08-crd-rules",
            "08i-cel-evaluated",
            "08l-cel-computed",
            "08m-cel-sets",
            "08n-cel-odd",
            "08o-cel-places",
            "08p-cel-keys",
            "08q-cel-added",
        ]
        .contains(&self.name.as_str());
        for (i, step) in self.steps.iter().enumerate() {
            let mut answers = Vec::new();
            for side in [&pair.real, &pair.ours] {
                pair.webhook.take(&self.asker(side));
            }
            for (side, values) in [&pair.real, &pair.ours].into_iter().zip(&mut values) {
                let wanted = step.request(values);
                let deadline = Instant::now() + Duration::from_mins(1);
                let answer = loop {
                    match side.send(&wanted).await {
                        Ok(answer) if step.satisfied(&answer, values) || Instant::now() > deadline => {
                            break Ok(answer);
                        }
                        Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                        Err(error) => break Err(error),
                    }
                };
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(error) => {
                        outcome
                            .differences
                            .push(format!("{} #{i}: {error:?}", step.title()));
                        return outcome;
                    }
                };
                for (name, pointer) in &step.save {
                    let value = match pointer.strip_prefix("/headers/") {
                        Some(header) => answer.headers.get(header).cloned().map(Value::from),
                        None => answer.body.pointer(pointer).cloned(),
                    };
                    let value = value.unwrap_or_default();
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    values.extend(spelled(name, &text).into_iter().flatten());
                    values.extend(read(name, &text));
                    values.insert(name.clone(), text);
                }
                answers.push(answer);
            }
            if step.setup {
                let failed = |(a, values): (&Answer, &Values)| {
                    if step.until.is_some() {
                        !step.satisfied(a, values)
                    } else {
                        a.code >= 400
                    }
                };
                if let Some(bad) = answers.iter().zip(&values).position(failed) {
                    outcome.differences.push(format!(
                        "setup {} #{i} failed on {bad}: {}",
                        step.title(),
                        answers[bad].body
                    ));
                }
                continue;
            }
            outcome.requests += 1;
            outcome.bad += usize::from(answers[0].code >= 400);
            let message = |a: &Answer| a.body.get("message").cloned();
            if let (Some(real), Some(ours)) = (message(&answers[0]), message(&answers[1])) {
                outcome.messages.1 += 1;
                outcome.messages.0 += usize::from(real == ours);
                if real != ours && std::env::var_os("CONFORMANCE_MESSAGES").is_some() {
                    eprintln!("{}: {}\n  real {real}\n  ours {ours}", self.name, step.title());
                }
            }
            let mut found = Vec::new();
            if step.code_only {
                if answers[0].code != answers[1].code {
                    found.push(format!(
                        "/code: real {}, embedded {} {}",
                        answers[0].code, answers[1].code, answers[1].body
                    ));
                }
            } else {
                let [mut real, ours] = [&answers[0], &answers[1]].map(|answer| {
                    let mut essence = essence(answer, &step.ignore, &step.without, words);
                    for name in &step.show {
                        essence["headers"][name] = json!(answer.headers.get(name));
                    }
                    essence
                });
                step.among.iter().for_each(|at| keep_common(&mut real, &ours, at));
                differences(&real, &ours, "", &mut found);
                // An answer of another kind is one difference, not one per field.
                if answers[0].code != answers[1].code {
                    found = vec![format!(
                        "/code: real {}, embedded {}",
                        answers[0].code, answers[1].code
                    )];
                }
            }
            let [real, ours] =
                [&pair.real, &pair.ours].map(|side| asked(pair.webhook.take(&self.asker(side))));
            differences(&real, &ours, "/webhook", &mut found);
            for difference in found {
                let known = self
                    .allowed
                    .iter()
                    .position(|a| a.step == step.title() && difference.starts_with(&a.path));
                let line = format!("{} #{i}: {difference}", step.title());
                if let Some(n) = known {
                    used[n] = true;
                    outcome
                        .allowed
                        .push(format!("{line} ({})", self.allowed[n].reason));
                } else {
                    let messages: Vec<String> = answers
                        .iter()
                        .filter_map(message)
                        .map(|m| m.to_string().chars().take(300).collect())
                        .collect();
                    outcome
                        .differences
                        .push(format!("{line}  {}", messages.join(" | ")));
                }
            }
        }
        for (allowed, used) in self.allowed.iter().zip(used) {
            if !used {
                outcome
                    .differences
                    .push(format!("allowed but not seen: {} {}", allowed.step, allowed.path));
            }
        }
        outcome
    }
}

impl Outcome {
    /// Fails on any difference that is not allowed, and on a transcript that is too thin.
    pub fn verdict(&self) -> Result<(), String> {
        if self.differences.is_empty() && self.requests >= 15 {
            return Ok(());
        }
        let mut text = format!(
            "{} requests, {} differences",
            self.requests,
            self.differences.len()
        );
        for difference in &self.differences {
            let _ = write!(text, "\n  {difference}");
        }
        Err(text)
    }
}
