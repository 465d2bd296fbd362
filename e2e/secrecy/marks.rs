//! Texts that are secret, and where they must not be.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::ListParams,
    core::DynamicObject,
    discovery::{Discovery, verbs},
};
use tempfile::NamedTempFile;
use tracing_subscriber::fmt::MakeWriter;
use writ_process::logs;

/// The longest part of a line that a failure shows.
const SHOWN: usize = 300;

/// Everything that is logged, at the level of `trace`, that of all libraries included.
pub struct Log {
    file: NamedTempFile,
}

/// Writes to the log.
#[derive(Clone)]
pub struct Writer(Arc<Mutex<File>>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// From now on everything is kept.
    pub fn install() -> Result<Self> {
        let file = NamedTempFile::new()?;
        let writer = Writer(Arc::new(Mutex::new(file.reopen()?)));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(logs::filter(Some("trace")))
            .with_ansi(false)
            .with_writer(writer);
        subscriber
            .try_init()
            .map_err(|error| anyhow::anyhow!("the log cannot be kept: {error}"))?;
        Ok(Self { file })
    }
}

/// The texts to search for. Each secret of a run holds the run's word.
pub struct Marks {
    word: String,
    needles: Mutex<Vec<String>>,
}

impl Marks {
    /// Marks of one run: what another run says is not this one's.
    pub fn new(run: &str) -> Self {
        let marks = Self {
            word: format!("swordfish-{run}"),
            needles: Mutex::default(),
        };
        marks.add(&marks.word);
        marks
    }

    /// A secret text; `what` tells a reader of a failure where it came from.
    pub fn secret(&self, what: &str) -> String {
        format!("{}-{what}", self.word)
    }

    /// A token: its signature is what nobody can guess.
    pub fn token(&self, token: &str) {
        if let Some((_, signature)) = token.rsplit_once('.') {
            self.add(signature);
        }
    }

    /// The text itself, and what base64 makes of it wherever it begins.
    fn add(&self, text: &str) {
        let mut needles = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        needles.push(text.to_owned());
        for before in 0..3 {
            let padded = [&vec![0; before][..], text.as_bytes()].concat();
            let encoded = STANDARD.encode(padded);
            let encoded = encoded.trim_end_matches('=');
            // The first and the last letters also depend on what stands before and after.
            let (from, to) = (if before == 0 { 0 } else { before + 1 }, encoded.len() - 1);
            needles.extend(encoded.get(from..to).map(str::to_owned));
        }
    }

    /// Where a mark is in this text.
    pub fn search(&self, place: &str, text: &str) -> Vec<String> {
        let needles = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        let at = needles.iter().find_map(|needle| text.find(needle.as_str()));
        at.map(|at| {
            let before: String = text.chars().take(SHOWN).collect();
            let near: String = text.get(at..).unwrap_or_default().chars().take(80).collect();
            format!("{place}: {before} ... {near}")
        })
        .into_iter()
        .collect()
    }

    /// Where a mark is in the log.
    pub fn search_log(&self, log: &Log) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut lines = 0_usize;
        for line in BufReader::new(log.file.reopen()?).split(b'\n') {
            lines += 1;
            found.extend(self.search("log", &String::from_utf8_lossy(&line?)));
        }
        anyhow::ensure!(
            lines > 1000,
            "only {lines} lines were logged: this proves nothing"
        );
        println!("{lines} lines of log");
        found.truncate(20);
        Ok(found)
    }

    /// Where a mark is in the objects of a cluster. Secrets may hold it, and the specs that ask for Secrets.
    pub async fn search_objects(&self, cluster: &str, client: &Client) -> Result<Vec<String>> {
        let discovery = Discovery::new(client.clone()).run().await?;
        let kinds = discovery.groups().flat_map(|group| {
            let listed = group.recommended_resources();
            listed.into_iter().filter(|(kind, can)| {
                can.supports_operation(verbs::LIST) && !(kind.group.is_empty() && kind.plural == "secrets")
            })
        });
        let lists: Vec<_> = stream::iter(kinds.map(|(kind, _)| async move {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let objects = match api.list(&ListParams::default()).await {
                Ok(list) => list.items,
                // Announced, but not to be listed.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Vec::new(),
                Err(error) => return Err(error).with_context(|| format!("list {}", kind.plural)),
            };
            anyhow::Ok((kind, objects))
        }))
        .buffer_unordered(8)
        .try_collect()
        .await?;
        let mut found = Vec::new();
        let mut kinds = Vec::new();
        for (kind, objects) in lists {
            kinds.extend((!objects.is_empty()).then(|| kind.plural.clone()));
            for mut object in objects {
                if kind.group == "work.open-cluster-management.io" {
                    object.data.as_object_mut().map(|data| data.remove("spec"));
                }
                let text = serde_json::to_string(&object)?;
                found.extend(self.search(&format!("{cluster}: {}", kind.kind), &text));
            }
        }
        println!("{cluster}: searched {}", kinds.join(", "));
        Ok(found)
    }
}
