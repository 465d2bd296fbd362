//! Where the time goes: which requests were made, when, and how long each took.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::Request;
use kube::{Client, client::Body};

/// The requests of several clients, in one timeline. Clones are the same one.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    who: &'static str,
    what: String,
    began: Instant,
    took: Duration,
    code: u16,
    lists: bool,
}

impl Trace {
    /// A client whose requests are noted, besides watches, which never end.
    pub fn follow(&self, who: &'static str, client: Client) -> Client {
        let trace = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, trace) = (client.clone(), trace.clone());
            async move {
                let what = format!("{} {}", request.method(), request.uri().path());
                let query = request.uri().query().unwrap_or_default();
                let watches = query.contains("watch=");
                let lists = query.contains("limit=") || query.contains("resourceVersion");
                let began = Instant::now();
                let answer = client.send(request).await;
                let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                if !watches {
                    trace.note(Entry {
                        who,
                        what,
                        began,
                        took: began.elapsed(),
                        code,
                        lists,
                    });
                }
                answer.map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { Box::new(error) })
            }
        });
        Client::new(service, "default")
    }

    fn note(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// Forgets what was noted; returns how many requests that were, besides lists.
    pub fn take(&self) -> usize {
        self.drain().iter().filter(|entry| !entry.lists).count()
    }

    fn drain(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prints what was noted since a moment, which took that long in the end, and forgets it.
    pub fn tell(&self, what: &str, times: &[Duration], since: Instant) {
        println!("{what}: {:.1?}", times.last().copied().unwrap_or_default());
        let mut entries = self.drain();
        entries.sort_by_key(|entry| entry.began);
        for entry in entries {
            println!(
                "{:>8.1} ms  +{:>6.1} ms  {:<6} {} {}",
                entry.began.saturating_duration_since(since).as_secs_f64() * 1000.0,
                entry.took.as_secs_f64() * 1000.0,
                entry.who,
                entry.code,
                entry.what
            );
        }
    }
}
