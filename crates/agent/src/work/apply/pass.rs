//! One pass over the manifests of a work: wave after wave, the objects of one wave side by side.

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
use writ_api::work::{ManifestCondition, ManifestResourceMeta, ManifestWorkStatus};
use writ_controller::{
    ServedKind,
    backoff::Backoff,
    condition::{self, Wanted},
};

use super::{
    conflicts::ConflictCheck,
    read::read,
    strategies::{self, History, WriteContext},
};
use crate::owner::Owner;
use crate::work::{
    drift::{LastSeen, Need},
    model::{
        ApplyFailure, Key, ManifestOutcome, ManifestReport, PlannedManifest, RbacId, RecordedUids,
        TargetObject, Verdict,
    },
    plan::{
        definitions::definition_name,
        rbac::{bound_role, is_role, rbac_id, refuses_foreign},
    },
    state::Agent,
    status::{self, content::read_content},
};

/// How many objects of one wave are written at once.
pub const CONCURRENCY: usize = 16;

/// How long a new definition may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// The roles of a work that were not written in this pass, and whether it is certain that they do not exist as the work's.
type MissingRoles = HashMap<RbacId, bool>;

/// The manifests, by index, whose objects were checked for conflicts.
pub type CheckedConflicts = HashMap<usize, Result<(), ApplyFailure>>;

/// The reports of a status, by what identifies a manifest.
pub type ReportedManifests<'a> = HashMap<[&'a str; 4], &'a ManifestCondition>;

/// The reports of a status, by what identifies a manifest.
pub fn reported_manifests(status: &ManifestWorkStatus) -> ReportedManifests<'_> {
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
    /// The agent.
    pub agent: &'a Agent,
    /// The work.
    pub key: &'a Key,
    /// The owner of the work's objects.
    pub owner: &'a Owner,
    /// What was reported before about each manifest.
    pub reported: ReportedManifests<'a>,
    /// Whether the work is complete, so that nothing is written any more.
    pub is_complete: bool,
    /// The verdict of the gate.
    pub verdict: &'a Verdict,
    /// Whether the work has an executor.
    pub has_executor: bool,
    /// The conflicts that were checked already.
    pub checked: &'a CheckedConflicts,
    /// Checks the others.
    pub conflicts: &'a ConflictCheck<'a>,
    /// What the work has written before.
    pub recorded: &'a RecordedUids<'a>,
}

impl Pass<'_> {
    /// Delivers wave after wave. The outcomes are in the order of the manifests.
    pub async fn run(
        &self,
        manifests: &[PlannedManifest],
        waves: &[Vec<&PlannedManifest>],
    ) -> Vec<ManifestOutcome> {
        let mut outcomes = Vec::with_capacity(manifests.len());
        let mut missing = MissingRoles::new();
        for wave in waves {
            self.await_kinds(wave, manifests, &outcomes).await;
            let deliveries: Vec<_> = wave
                .iter()
                .map(|manifest| self.deliver(manifest, &missing))
                .collect();
            let delivered: Vec<ManifestOutcome> = stream::iter(deliveries)
                .buffer_unordered(CONCURRENCY)
                .collect()
                .await;
            let unwritten = delivered.iter().filter(|outcome| outcome.recorded.is_none());
            missing.extend(unwritten.filter_map(|outcome| {
                let role = self.guarded_role(manifests.get(outcome.ordinal)?)?;
                Some((role, outcome.is_absent))
            }));
            outcomes.extend(delivered);
        }
        outcomes.sort_by_key(|outcome| outcome.ordinal);
        outcomes
    }

    /// The role that a manifest makes, if a foreign role must not take its place: then its bindings are held back while it is
    /// missing. Other works are applied as far as possible.
    fn guarded_role(&self, manifest: &PlannedManifest) -> Option<RbacId> {
        let target = manifest.target.as_ref().ok()?;
        let is_guarded = is_role(target) && (self.has_executor || refuses_foreign(target));
        rbac_id(target).filter(|_| is_guarded)
    }

    async fn deliver(&self, manifest: &PlannedManifest, missing: &MissingRoles) -> ManifestOutcome {
        let mut outcome = self.attempt(manifest, missing).await;
        if self.is_complete(manifest) {
            // Not written in this pass: the last reported condition still holds; a manifest never written has none.
            outcome.report.applied = self.applied_while_complete(manifest);
            if outcome.report.applied.is_some() {
                outcome.recorded = None;
            }
        }
        outcome
    }

    async fn attempt(&self, manifest: &PlannedManifest, missing: &MissingRoles) -> ManifestOutcome {
        let target = match &manifest.target {
            Ok(target) => target,
            Err(problem) => return Self::report_unmapped(manifest, problem),
        };
        if let Some(refused) = self.verdict.refusal_of(manifest.ordinal) {
            let is_readable = self.verdict.readable.contains(&manifest.ordinal);
            return self.report_refused(manifest, target, refused, is_readable).await;
        }
        if let Some(is_absent) = bound_role(target).and_then(|role| missing.get(&role)) {
            return self.hold_back(manifest, target, *is_absent).await;
        }
        let (name, resource) = (target.full_name(), &target.kind.resource);
        let drift = &self.agent.drift;
        let is_complete = self.is_complete(manifest);
        let wanted = self.wanted_hash(target, is_complete);
        let need = match drift.need(self.key, resource, &name, wanted) {
            Need::Nothing => return self.report_unchanged(manifest, target),
            _ if is_complete => Need::Read,
            need => need,
        };
        let _turn = self.agent.turns.acquire().await.ok();
        drift.begin_request(self.key, resource, &name);
        let answer = if need == Need::Read {
            read(&self.agent.spoke, target).await.map_err(ApplyFailure::from)
        } else {
            self.write(manifest.ordinal, target).await
        };
        let live = answer.as_ref().ok().and_then(Option::as_ref);
        let last_seen = live.map(|live| {
            let reads_content = target.config.reads_content();
            LastSeen::of(&live.metadata, wanted, reads_content, &self.owner.uid)
        });
        if drift.end_request(self.key, resource, &name, last_seen) {
            self.agent.queue.add(self.key.clone());
        }
        match answer {
            Ok(live) => report_live(manifest, target, live.as_ref()),
            Err(failure) => self.report_failure(manifest, target, &failure).await,
        }
    }

    /// Waits once for each kind that this wave needs and that this very pass has defined. That takes no turn, as the turns are
    /// shared by all works. A kind that was defined by an earlier pass, and is not served yet, is awaited by a watch.
    async fn await_kinds(
        &self,
        wave: &[&PlannedManifest],
        manifests: &[PlannedManifest],
        outcomes: &[ManifestOutcome],
    ) {
        let to_come: Vec<&TargetObject> = wave
            .iter()
            .filter(|manifest| self.verdict.refusal_of(manifest.ordinal).is_none())
            .filter_map(|manifest| manifest.target.as_ref().ok())
            .filter(|target| target.kind_to_come)
            .collect();
        if to_come.is_empty() {
            return;
        }
        let defined: HashSet<&str> = outcomes
            .iter()
            .filter(|outcome| {
                !outcome.failed && outcome.recorded.is_some() && outcome.report.available.is_some()
            })
            .filter_map(|outcome| manifests.get(outcome.ordinal)?.target.as_ref().ok())
            .filter(|target| target.kind.resource.kind == "CustomResourceDefinition")
            .map(|target| target.name.as_str())
            .collect();
        let kinds: HashSet<&Arc<ServedKind>> = to_come
            .iter()
            .map(|target| &target.kind)
            .filter(|kind| defined.contains(definition_name(kind).as_str()))
            .collect();
        let waits = kinds.into_iter().map(|kind| async move {
            let is_served = self.await_served(kind).await;
            is_served.then_some(kind)
        });
        let served: HashSet<&Arc<ServedKind>> = join_all(waits).await.into_iter().flatten().collect();
        for target in to_come {
            if served.contains(&target.kind) {
                self.agent.watch_served(self.key, target);
            }
        }
    }

    /// Waits until a kind is served that this work defines. Returns true if it is; if not, the write reports why.
    async fn await_served(&self, kind: &ServedKind) -> bool {
        let resource = &kind.resource;
        let gvk = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let definitions: Api<CustomResourceDefinition> = Api::all(self.agent.spoke.clone());
        let name = definition_name(kind);
        let wait = async {
            // A definition that may not be watched can still be served.
            let _ = await_condition(definitions, &name, is_crd_established()).await;
            // Discovery follows the condition with a lag that no event shows.
            let mut lag = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
            loop {
                self.agent.mapper.expect_new_kinds();
                if matches!(self.agent.mapper.find(&self.agent.spoke, &gvk).await, Ok(Some(_))) {
                    return;
                }
                tokio::time::sleep(lag.next_delay()).await;
            }
        };
        tokio::time::timeout(SERVED_WITHIN, wait).await.is_ok()
    }

    async fn write(
        &self,
        ordinal: usize,
        target: &TargetObject,
    ) -> Result<Option<DynamicObject>, ApplyFailure> {
        match self.checked.get(&ordinal) {
            Some(Ok(())) => {}
            Some(Err(ApplyFailure::Foreign(why))) => return Err(ApplyFailure::Foreign(why.clone())),
            Some(Err(ApplyFailure::HeldBack(why))) => return Err(ApplyFailure::HeldBack(why.clone())),
            Some(Err(_)) | None => self.conflicts.check(target).await?,
        }
        let last_seen = self
            .agent
            .drift
            .last_seen(self.key, &target.kind.resource, &target.full_name());
        let history = match (self.recorded.contains_key(&target.identity()), last_seen) {
            (false, _) => History::NeverWritten,
            (true, None) => History::WrittenBefore,
            (true, Some(_)) => History::Changed,
        };
        let context = WriteContext {
            // The executor was asked for the right to delete objects that the work owns, and of no others.
            may_recreate: (target.owned || !self.has_executor).then_some(&self.agent.recreate_lock),
            history,
        };
        strategies::write(&self.agent.spoke, target, self.owner, context).await
    }

    /// Whether a manifest that would be written is not, because it or the work is complete.
    fn is_complete(&self, manifest: &PlannedManifest) -> bool {
        let is_manifest_complete = || {
            self.reported(manifest)
                .is_some_and(|reported| condition::is_true(&reported.conditions, status::COMPLETE))
        };
        manifest.target.as_ref().is_ok_and(TargetObject::is_written)
            && (self.is_complete || is_manifest_complete())
    }

    /// The condition of a manifest that is not written because it or the work is complete; `None` if it was written before
    /// and its status says so.
    fn applied_while_complete(&self, manifest: &PlannedManifest) -> Option<Wanted> {
        let was_written = self
            .reported(manifest)
            .is_some_and(|reported| condition::is_true(&reported.conditions, status::APPLIED));
        let complete = if self.is_complete { "work" } else { "manifest" };
        (!was_written).then(|| status::held_back(&format!("Not written: the {complete} is complete")))
    }

    /// What was reported about this manifest before.
    fn reported(&self, manifest: &PlannedManifest) -> Option<&ManifestCondition> {
        self.reported.get(&identity(&manifest.meta)).copied()
    }

    /// The hash of what the work asks of an object: the manifest, owned by this very AppliedManifestWork. An object that was
    /// only read because it is complete has to be written once it is not.
    fn wanted_hash(&self, target: &TargetObject, is_complete: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        target.hash.hash(&mut hasher);
        is_complete.hash(&mut hasher);
        self.owner.uid.hash(&mut hasher);
        hasher.finish()
    }

    /// The outcome for an object that is as it was left.
    fn report_unchanged(&self, manifest: &PlannedManifest, target: &TargetObject) -> ManifestOutcome {
        let last_seen = self
            .agent
            .drift
            .last_seen(self.key, &target.kind.resource, &target.full_name());
        ManifestOutcome {
            ordinal: manifest.ordinal,
            report: ManifestReport {
                meta: manifest.meta.clone(),
                applied: Some(status::applied()),
                available: None,
                content: None,
            },
            recorded: last_seen.map(|last_seen| target.to_record(&last_seen.uid.to_string())),
            is_absent: false,
            failed: false,
            waits_for: None,
        }
    }
}

/// The outcome for an object that was written or read.
fn report_live(
    manifest: &PlannedManifest,
    target: &TargetObject,
    live: Option<&DynamicObject>,
) -> ManifestOutcome {
    ManifestOutcome {
        ordinal: manifest.ordinal,
        report: ManifestReport {
            meta: manifest.meta.clone(),
            applied: Some(status::applied()),
            available: Some(live.map_or_else(status::not_available, |_| status::available())),
            content: live.map(|live| read_content(live, &target.config)),
        },
        recorded: live.map(|live| target.to_record(live.metadata.uid.as_deref().unwrap_or_default())),
        is_absent: false,
        failed: false,
        waits_for: None,
    }
}
