//! What is watched, and what of it is kept.

use std::{collections::BTreeSet, fmt::Debug, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::{
    Cache, IndexOf, Source,
    slot::{Codec, Seen},
    tolerant::Tolerant,
    watch::Outage,
};
use crate::{Name, backoff::Backoff};

/// A page of a compressed cache: as few objects as possible are held whole at a time.
const SMALL_PAGE: u32 = 100;
/// The pauses before a list that follows an interruption.
const FIRST_RELIST: Duration = Duration::from_millis(200);
const LAST_RELIST: Duration = Duration::from_secs(30);

/// A watch that is to be started.
#[must_use = "nothing is watched before it is started"]
pub struct Watch<K, V = K> {
    api: Api<Tolerant<K>>,
    what: String,
    config: watcher::Config,
    keep: Box<dyn Fn(K) -> V + Send>,
    keeps_managed_fields: bool,
    relists: bool,
    advice: &'static str,
    codec: Codec<V>,
    index_of: Option<IndexOf<V>>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Default + Send + 'static,
{
    /// A watch of everything that `api` reaches.
    pub fn new(api: Api<Tolerant<K>>) -> Self
    where
        K::DynamicType: Default,
    {
        let what = K::kind(&K::DynamicType::default()).into_owned() + "s";
        Self::named(api, what)
    }

    /// The same for a kind that is known at run time only; `what` names it in the plural.
    pub fn named(api: Api<Tolerant<K>>, what: impl Into<String>) -> Self {
        Self {
            api,
            what: what.into(),
            config: watcher::Config::default(),
            keep: Box::new(|object| object),
            keeps_managed_fields: false,
            relists: false,
            advice: "",
            codec: Codec::Whole,
            index_of: None,
        }
    }

    /// Keeps what `keep` makes of each object.
    pub fn keep<V>(self, keep: impl Fn(K) -> V + Send + 'static) -> Watch<K, V> {
        Watch {
            api: self.api,
            what: self.what,
            config: self.config,
            keep: Box::new(keep),
            keeps_managed_fields: self.keeps_managed_fields,
            relists: self.relists,
            advice: self.advice,
            codec: Codec::Whole,
            index_of: None,
        }
    }
}

impl<K, V> Watch<K, V>
where
    K: Resource + Clone + Debug + DeserializeOwned + Default + Send + 'static,
    V: Send + Sync + 'static,
{
    /// Only objects with these labels.
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only objects with these fields.
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Shows who wrote what to `keep`; otherwise managed fields are dropped first.
    pub fn with_managed_fields(mut self) -> Self {
        self.keeps_managed_fields = true;
        self
    }

    /// What to do where the API server does not know the kind; logged once per outage.
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// Lists everything again after each interruption, for those who must know when the cache is complete again: where a
    /// watch merely goes on, no event tells that.
    pub fn relist_after_outage(mut self) -> Self {
        self.relists = true;
        self
    }

    /// Compresses what is kept: for kinds with many objects that are seldom read.
    pub fn compressed(mut self) -> Self
    where
        V: Serialize + DeserializeOwned,
    {
        self.codec = Codec::compressed();
        self.config = self.config.page_size(SMALL_PAGE);
        self
    }

    /// Finds objects by these entries; see [`super::index_key`].
    pub fn index(mut self, entries: impl Fn(&V) -> Vec<u64> + Send + Sync + 'static) -> Self {
        self.index_of = Some(Box::new(entries));
        self
    }

    /// Starts the watch; it ends at shutdown.
    pub fn start(self, shutdown: &CancellationToken) -> Cache<V> {
        let (api, config, relists) = (self.api.clone(), self.config.clone(), self.relists);
        let (cache, feed) = self.open();
        let run = feed.run(api, config, relists);
        let shutdown = shutdown.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(run).await });
        cache
    }

    /// A cache that no watch fills, for simulations that record what a watch would show.
    pub fn without_watch(self) -> Cache<V> {
        self.open().0
    }

    /// The cache, and what brings events into it.
    pub(super) fn open(self) -> (Cache<V>, Feed<K, V>) {
        let cache = Cache::new(self.what, self.codec, self.index_of);
        let feed = Feed {
            cache: cache.clone(),
            keep: self.keep,
            keeps_managed_fields: self.keeps_managed_fields,
            outage: Outage::new(cache.what(), self.advice),
            listed: BTreeSet::new(),
        };
        (cache, feed)
    }
}

/// Brings what a watch shows into its cache.
pub(super) struct Feed<K, V> {
    cache: Cache<V>,
    keep: Box<dyn Fn(K) -> V + Send>,
    keeps_managed_fields: bool,
    outage: Outage,
    /// What the list that is under way has shown.
    listed: BTreeSet<Name>,
}

impl<K, V> Feed<K, V>
where
    K: Resource + Clone + Debug + DeserializeOwned + Default + Send + 'static,
    V: Send + Sync + 'static,
{
    async fn run(mut self, api: Api<Tolerant<K>>, config: watcher::Config, relists: bool) {
        let mut pauses = Backoff::new(FIRST_RELIST, LAST_RELIST);
        loop {
            let mut events = std::pin::pin!(watcher(api.clone(), config.clone()).default_backoff());
            while let Some(event) = events.next().await {
                let Some(event) = self.outage.log(event) else {
                    self.cache.interrupted();
                    if relists {
                        break;
                    }
                    continue;
                };
                if let Event::InitDone = event {
                    pauses.reset();
                }
                self.feed(event);
                if !relists {
                    self.cache.resumed();
                }
            }
            tokio::time::sleep(pauses.next_delay()).await;
        }
    }

    pub(super) fn feed(&mut self, event: Event<Tolerant<K>>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(Name::of(&object));
                self.take(object, Source::List);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                for name in self.cache.names() {
                    if !listed.contains(&name) {
                        self.cache.remove(&name, None, true);
                    }
                }
                self.cache.listed();
            }
            Event::Apply(object) => self.take(object, Source::Event),
            Event::Delete(object) => {
                self.cache
                    .remove(&Name::of(&object), Some(&Seen::of(&object)), false);
            }
        }
    }

    fn take(&self, mut object: Tolerant<K>, source: Source) {
        let (name, seen) = (Name::of(&object), Seen::of(&object));
        if !self.keeps_managed_fields {
            object.meta_mut().managed_fields = None;
        }
        let (object, problem) = object.into_parts();
        let taken = self.cache.take(
            name.clone(),
            seen,
            (self.keep)(object),
            problem.as_deref(),
            source,
        );
        if let Err(error) = taken {
            tracing::error!(%name, %error, "one of the {} cannot be kept", self.cache.what());
        }
    }
}
