//! One pass over the manifests of a work: rank after rank, the objects of one rank side by side.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    core::{DynamicObject, GroupVersionKind},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use writ_api::work::{AppliedResource, ManifestCondition, ManifestResourceMeta, ManifestWorkStatus};
use writ_controller::{
    backoff::Backoff,
    condition::{self, Wanted},
};

use super::{
    Agent, Key,
    apply::{self, Failure, Known, Owner, Past},
    content,
    executor::{Place, Verdict, bound_role, is_role, place},
    mapper::Kind,
    objects::{Mark, Need},
    plan::{Item, Target},
    read::read,
    records::{Recorded, key},
    status::{self, Report},
    strangers::{Strangers, refuses},
};

/// How many objects of one rank are written at once.
pub const CONCURRENCY: usize = 16;

/// How many objects of all works are written or read at once: each request under way is a connection with its buffers.
pub const TURNS: usize = 24;

/// How long the definition of a kind may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// What one pass found out about one manifest.
pub struct Done {
    /// The manifest's index.
    pub ordinal: usize,
    /// What the status says about it.
    pub report: Report,
    /// The object that exists now, as the AppliedManifestWork records it.
    pub applied: Option<AppliedResource>,
    /// Whether it is certain that there is no such object of the work: none at all, or somebody else's.
    pub lacking: bool,
    /// Whether another attempt is needed.
    pub failed: bool,
    /// What that attempt needs first.
    pub wait: Option<Wait>,
}

/// What has to happen before another attempt can succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// A namespace appears.
    Namespace(String),
    /// A kind is defined.
    Kind,
    /// A permission of the agent is granted.
    Permission,
}

/// The roles of a work that are not there, or are not the work's; whether that is certain.
pub type Missing = HashMap<Place, bool>;

/// What was reported before, by what names a manifest.
pub type Reported<'a> = HashMap<[&'a str; 4], &'a ManifestCondition>;

/// The reports of a status, ready to be looked up.
pub fn reported(status: &ManifestWorkStatus) -> Reported<'_> {
    let manifests = &status.resource_status.manifests;
    manifests
        .iter()
        .map(|manifest| (identity(&manifest.resource_meta), manifest))
        .collect()
}

fn identity(meta: &ManifestResourceMeta) -> [&str; 4] {
    [&meta.group, &meta.kind, &meta.namespace, &meta.name]
}

/// One pass over the manifests of a work.
pub struct Pass<'a> {
    /// The agent that makes it.
    pub agent: &'a Agent,
    /// The work.
    pub key: &'a Key,
    /// The owner of the work's objects.
    pub owner: &'a Owner,
    /// What was reported before about each manifest.
    pub reported: Reported<'a>,
    /// Whether the work is complete, so that nothing is written any more.
    pub complete: bool,
    /// What the gate said.
    pub verdict: &'a Verdict,
    /// Whether the work is written for an executor.
    pub for_executor: bool,
    /// Whether objects that are to be made are somebody else's, as far as it was looked.
    pub looked: &'a Looked,
    /// Tells what is somebody else's, where it was not looked.
    pub strangers: &'a Strangers<'a>,
    /// What the work has written before.
    pub recorded: &'a Recorded<'a>,
}

/// The manifests, by index, for which it was looked whether the object is there and is somebody else's.
pub type Looked = HashMap<usize, Result<(), Failure>>;

impl Pass<'_> {
    /// Rank after rank, the objects of one rank side by side; the results in the order of the manifests.
    pub async fn run(&self, items: &[Item]) -> Vec<Done> {
        let mut order: Vec<&Item> = items.iter().collect();
        order.sort_by_key(|item| item.rank);
        let mut done = Vec::with_capacity(items.len());
        let mut missing = Missing::new();
        for rank in order.chunk_by(|a, b| a.rank == b.rank) {
            self.await_kinds(rank, items, &done).await;
            let writes: Vec<_> = rank.iter().map(|item| self.one(item, &missing)).collect();
            let ready: Vec<Done> = stream::iter(writes).buffer_unordered(CONCURRENCY).collect().await;
            let absent = ready.iter().filter(|done| done.applied.is_none());
            missing.extend(
                absent.filter_map(|done| Some((self.guarded_role(items.get(done.ordinal)?)?, done.lacking))),
            );
            done.extend(ready);
        }
        done.sort_by_key(|done| done.ordinal);
        done
    }

    /// The place of the role that a manifest makes, if it makes one that nobody else's may stand for: then what binds it
    /// waits for it. A work that does not say so is applied as far as it can be.
    fn guarded_role(&self, item: &Item) -> Option<Place> {
        let target = item.target.as_ref().ok()?;
        let guarded = is_role(target) && (self.for_executor || refuses(target));
        place(target).filter(|_| guarded)
    }

    /// One manifest.
    async fn one(&self, item: &Item, missing: &Missing) -> Done {
        let mut done = self.attempt(item, missing).await;
        if self.is_complete(item) {
            // Nothing was written: what was said of the last write still holds, and of what never was there is none.
            done.report.applied = self.unwritten(item);
            if done.report.applied.is_some() {
                done.applied = None;
            }
        }
        done
    }

    async fn attempt(&self, item: &Item, missing: &Missing) -> Done {
        let target = match &item.target {
            Ok(target) => target,
            Err(problem) => return Self::unmapped(item, problem),
        };
        if let Some(refused) = self.verdict.of(item.ordinal) {
            let readable = self.verdict.readable.contains(&item.ordinal);
            return self.refused(item, target, refused, readable).await;
        }
        if let Some(lacking) = bound_role(target).and_then(|role| missing.get(&role)) {
            return self.held_back(item, target, *lacking).await;
        }
        let name = target.place();
        let resource = &target.kind.resource;
        let objects = &self.agent.objects;
        let complete = self.is_complete(item);
        let wanted = self.wanted(target, complete);
        let mut need = objects.need(self.key, resource, &name, wanted);
        if need != Need::Nothing && complete {
            need = Need::Read;
        }
        let _turn = if need == Need::Nothing {
            None
        } else {
            let turn = self.agent.turns.acquire().await.ok();
            objects.begin(self.key, resource, &name);
            turn
        };
        let outcome = match need {
            Need::Nothing => {
                let mark = objects.get(self.key, resource, &name);
                return Done {
                    ordinal: item.ordinal,
                    report: Report {
                        meta: item.meta.clone(),
                        applied: Some(status::applied()),
                        available: None,
                        content: None,
                    },
                    applied: mark.map(|mark| target.applied(&mark.uid.to_string())),
                    lacking: false,
                    failed: false,
                    wait: None,
                };
            }
            Need::Read => read(&self.agent.spoke, target).await.map_err(Failure::from),
            Need::Write => self.write(item.ordinal, target).await,
        };
        let mark = match &outcome {
            Ok(Some(live)) => Some(Mark::of(
                &live.metadata,
                wanted,
                target.config.reads_content(),
                &self.owner.uid,
            )),
            Ok(None) | Err(_) => None,
        };
        if objects.mark(self.key, resource, &name, mark) {
            self.agent.queue.add(self.key.clone());
        }
        match outcome {
            Ok(live) => found(item, target, live.as_ref()),
            Err(failure) => self.failed(item, target, &failure).await,
        }
    }

    /// Waits once for each kind that this rank needs and that this very pass has defined, without holding a turn: the
    /// turns are shared by all works. What was defined by an earlier pass, and is not served yet, comes by a watch.
    async fn await_kinds(&self, rank: &[&Item], items: &[Item], done: &[Done]) {
        let to_come: Vec<&Target> = rank
            .iter()
            .filter(|item| self.verdict.of(item.ordinal).is_none())
            .filter_map(|item| item.target.as_ref().ok())
            .filter(|target| target.kind_to_come)
            .collect();
        if to_come.is_empty() {
            return;
        }
        let defined: HashSet<&str> = done
            .iter()
            .filter(|done| !done.failed && done.applied.is_some() && done.report.available.is_some())
            .filter_map(|done| items.get(done.ordinal)?.target.as_ref().ok())
            .filter(|target| target.kind.resource.kind == "CustomResourceDefinition")
            .map(|target| target.name.as_str())
            .collect();
        let kinds: HashSet<&Arc<Kind>> = to_come
            .iter()
            .map(|target| &target.kind)
            .filter(|kind| defined.contains(definition(kind).as_str()))
            .collect();
        let waits = kinds.into_iter().map(|kind| async move {
            let served = self.served(kind).await;
            served.then_some(kind)
        });
        let served: HashSet<&Arc<Kind>> = join_all(waits).await.into_iter().flatten().collect();
        for target in to_come {
            if served.contains(&target.kind) {
                self.agent.declare_served(self.key, target);
            }
        }
    }

    async fn write(&self, ordinal: usize, target: &Target) -> Result<Option<DynamicObject>, Failure> {
        match self.looked.get(&ordinal) {
            Some(Ok(())) => {}
            Some(Err(Failure::Foreign(why))) => return Err(Failure::Foreign(why.clone())),
            Some(Err(Failure::Held(why))) => return Err(Failure::Held(why.clone())),
            Some(Err(_)) | None => {
                self.strangers.none(target).await?;
            }
        }
        let mark = self
            .agent
            .objects
            .get(self.key, &target.kind.resource, &target.place());
        let past = match (self.recorded.contains_key(&key(target)), mark) {
            (false, _) => Past::Nothing,
            (true, None) => Past::Written,
            (true, Some(_)) => Past::Changes,
        };
        let known = Known {
            // An executor was asked about the deletion of what is owned, and of nothing else.
            may_replace: (target.owned || !self.for_executor).then_some(&self.agent.replacements),
            past,
        };
        apply::write(&self.agent.spoke, target, self.owner, known).await
    }

    /// Waits until a kind that this very work defines is served; whether it is. If not, the write says so.
    async fn served(&self, kind: &Kind) -> bool {
        let resource = &kind.resource;
        let gvk = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let definitions: Api<CustomResourceDefinition> = Api::all(self.agent.spoke.clone());
        let name = definition(kind);
        let wait = async {
            // A definition that cannot be watched can still be served: discovery tells.
            let _ = await_condition(definitions, &name, is_crd_established()).await;
            // Discovery follows the condition with a lag that no event tells of.
            let mut lag = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
            while !matches!(self.agent.mapper.find(&gvk).await, Ok(Some(_))) {
                tokio::time::sleep(lag.next_delay()).await;
            }
        };
        tokio::time::timeout(SERVED_WITHIN, wait).await.is_ok()
    }

    /// Whether a manifest that would be written is not, because it or the work is complete.
    fn is_complete(&self, item: &Item) -> bool {
        let of_manifest = || {
            self.reported(item)
                .is_some_and(|manifest| condition::is_true(&manifest.conditions, status::COMPLETE))
        };
        item.target.as_ref().is_ok_and(Target::written) && (self.complete || of_manifest())
    }

    /// What is said of a manifest that is not written any more; `None` if it was written and its status says so.
    fn unwritten(&self, item: &Item) -> Option<Wanted> {
        let written = self
            .reported(item)
            .is_some_and(|manifest| condition::is_true(&manifest.conditions, status::APPLIED));
        let of = if self.complete { "work" } else { "manifest" };
        (!written).then(|| status::held(&format!("Not written: the {of} is complete")))
    }

    /// What was reported about this manifest before.
    fn reported(&self, item: &Item) -> Option<&ManifestCondition> {
        self.reported.get(&identity(&item.meta)).copied()
    }

    /// What is wanted of an object: what the manifest says, owned by this very AppliedManifestWork. What was only read
    /// because it is complete has to be written once it is not.
    fn wanted(&self, target: &Target, complete: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        target.hash.hash(&mut hasher);
        complete.hash(&mut hasher);
        self.owner.uid.hash(&mut hasher);
        hasher.finish()
    }
}

/// The name of the definition of a kind.
fn definition(kind: &Kind) -> String {
    format!("{}.{}", kind.resource.plural, kind.resource.group)
}

fn found(item: &Item, target: &Target, live: Option<&DynamicObject>) -> Done {
    Done {
        ordinal: item.ordinal,
        report: Report {
            meta: item.meta.clone(),
            applied: Some(status::applied()),
            available: Some(live.map_or_else(status::not_available, |_| status::available())),
            content: live.map(|live| content::read(live, &target.config)),
        },
        applied: live.map(|live| target.applied(live.metadata.uid.as_deref().unwrap_or_default())),
        lacking: false,
        failed: false,
        wait: None,
    }
}
