//! One pass over the manifests of a work: rank after rank, the objects of one rank side by side.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    core::{DynamicObject, GroupVersionKind},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use writ_api::work::{AppliedResource, ManifestCondition, ManifestResourceMeta, ManifestWorkStatus};
use writ_runtime::{
    backoff::Backoff,
    condition::{self, Wanted},
};

use super::{
    Agent, Key,
    apply::{self, Failure, Owner},
    content,
    executor::{Refused, Verdict},
    mapper::Kind,
    objects::{Mark, Need},
    plan::{Item, Target},
    status::{self, Report},
};

/// How many objects of one rank are written at once.
pub const CONCURRENCY: usize = 16;

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
}

impl Pass<'_> {
    /// Rank after rank, the objects of one rank side by side; the results in the order of the manifests.
    pub async fn run(&self, items: &[Item]) -> Vec<Done> {
        let mut order: Vec<&Item> = items.iter().collect();
        order.sort_by_key(|item| item.rank);
        let mut done = Vec::with_capacity(items.len());
        for rank in order.chunk_by(|a, b| a.rank == b.rank) {
            let writes: Vec<_> = rank.iter().map(|item| self.one(item)).collect();
            let ready: Vec<Done> = stream::iter(writes).buffer_unordered(CONCURRENCY).collect().await;
            done.extend(ready);
        }
        done.sort_by_key(|done| done.ordinal);
        done
    }

    async fn one(&self, item: &Item) -> Done {
        let target = match &item.target {
            Ok(target) => target,
            Err(problem) => return Self::unmapped(item, problem),
        };
        if let Some(refused) = self.verdict.of(item.ordinal) {
            return self.refused(item, refused);
        }
        let name = target.place();
        let resource = &target.kind.resource;
        let objects = &self.agent.objects;
        let wanted = self.wanted(target);
        let mut need = objects.need(self.key, resource, &name, wanted);
        if need != Need::Nothing && (self.complete || self.manifest_complete(item)) {
            need = Need::Read;
        }
        if need != Need::Nothing {
            objects.begin(self.key, resource, &name);
        }
        let outcome = match need {
            Need::Nothing => {
                let mark = objects.get(self.key, resource, &name);
                return Done {
                    ordinal: item.ordinal,
                    report: Report {
                        meta: item.meta.clone(),
                        applied: status::applied(),
                        available: None,
                        content: None,
                    },
                    applied: mark.map(|mark| target.applied(&mark.uid)),
                    failed: false,
                    wait: None,
                };
            }
            Need::Read => apply::api(&self.agent.spoke, &target.kind, &target.namespace)
                .get_opt(&target.name)
                .await
                .map_err(Failure::from),
            Need::Write => self.write(target).await,
        };
        let mark = match &outcome {
            Ok(Some(live)) => Some(Mark::of(&live.metadata, wanted, target.config.reads_content())),
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

    async fn write(&self, target: &Target) -> Result<Option<DynamicObject>, Failure> {
        if target.kind_to_come && self.served(&target.kind).await {
            self.agent.declare_served(self.key, target);
        }
        apply::write(&self.agent.spoke, target, self.owner).await
    }

    /// Waits until a kind that this very work defines is served; whether it is. If not, the write says so.
    async fn served(&self, kind: &Kind) -> bool {
        let resource = &kind.resource;
        let gvk = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let definitions: Api<CustomResourceDefinition> = Api::all(self.agent.spoke.clone());
        let name = format!("{}.{}", resource.plural, resource.group);
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

    fn manifest_complete(&self, item: &Item) -> bool {
        self.reported(item)
            .is_some_and(|manifest| condition::is_true(&manifest.conditions, status::COMPLETE))
    }

    /// What was reported about this manifest before.
    fn reported(&self, item: &Item) -> Option<&ManifestCondition> {
        self.reported.get(&identity(&item.meta)).copied()
    }

    /// What is wanted of an object: what the manifest says, owned by this very AppliedManifestWork.
    fn wanted(&self, target: &Target) -> u64 {
        let mut hasher = DefaultHasher::new();
        target.hash.hash(&mut hasher);
        self.owner.uid.hash(&mut hasher);
        hasher.finish()
    }

    fn unmapped(item: &Item, problem: &str) -> Done {
        let wait = (!item.meta.kind.is_empty()).then_some(Wait::Kind);
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied: status::failed(problem),
                available: Some(Wanted::new(
                    status::AVAILABLE,
                    condition::Status::Unknown,
                    "IncompleteResourceMeta",
                    "Resource meta is incompleted",
                )),
                content: None,
            },
            applied: None,
            failed: true,
            wait,
        }
    }

    /// What happens to its object meanwhile is remembered, and looked at once it is allowed.
    fn refused(&self, item: &Item, refused: &Refused) -> Done {
        let known = self
            .reported(item)
            .is_some_and(|manifest| condition::find(&manifest.conditions, status::AVAILABLE).is_some());
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied: match refused {
                    Refused::Denied(reason) => status::failed(reason),
                    Refused::Held(reason) => status::held(reason),
                },
                available: (!known).then(status::not_available),
                content: None,
            },
            applied: None,
            failed: true,
            wait: None,
        }
    }

    async fn failed(&self, item: &Item, target: &Target, failure: &Failure) -> Done {
        let message = shown(failure, target);
        let wait = match failure.code() {
            Some(404) if failure.message().contains("namespaces \"") => {
                Some(Wait::Namespace(target.namespace.clone()))
            }
            Some(404) => {
                self.agent.mapper.forget(&target.kind.resource.group);
                Some(Wait::Kind)
            }
            Some(403) => Some(Wait::Permission),
            _ => None,
        };
        let applied = match failure {
            Failure::IgnoreFields(message) => Wanted::new(
                status::APPLIED,
                false,
                "AppliedManifestSSAIgnoreFieldError",
                format!("Failed to process ignoreFields: {message}"),
            ),
            Failure::Conflict(_) | Failure::Foreign(_) | Failure::Server(_) => status::failed(&message),
        };
        let api = apply::api(&self.agent.spoke, &target.kind, &target.namespace);
        let (available, uid) = match api.get_metadata_opt(&target.name).await {
            Ok(Some(live)) => (status::available(), live.metadata.uid),
            Ok(None) => (status::not_available(), None),
            Err(error) => (status::availability_unknown(&error.to_string()), None),
        };
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied,
                available: Some(available),
                content: None,
            },
            // What is not ours is not recorded as ours.
            applied: uid
                .filter(|_| !matches!(failure, Failure::Foreign(_)))
                .map(|uid| target.applied(&uid)),
            // A conflict is not a failure that time heals; that somebody removes the object comes by a watch.
            failed: !matches!(failure, Failure::Conflict(_) | Failure::Foreign(_)),
            wait,
        }
    }
}

/// What a condition may say about a failure: a server's words about a Secret can hold what is in it.
fn shown(failure: &Failure, target: &Target) -> String {
    let resource = &target.kind.resource;
    match (failure, failure.code()) {
        // These name who, what and which fields, never their values.
        (Failure::Server(_), Some(403 | 404 | 409)) => failure.message(),
        (Failure::Server(_), Some(code)) if resource.group.is_empty() && resource.plural == "secrets" => {
            format!(
                "the server refused the Secret with code {code}; its words are withheld, as they may hold secrets"
            )
        }
        _ => failure.message(),
    }
}

fn found(item: &Item, target: &Target, live: Option<&DynamicObject>) -> Done {
    Done {
        ordinal: item.ordinal,
        report: Report {
            meta: item.meta.clone(),
            applied: status::applied(),
            available: Some(live.map_or_else(status::not_available, |_| status::available())),
            content: live.map(|live| content::read(live, &target.config)),
        },
        applied: live.map(|live| target.applied(live.metadata.uid.as_deref().unwrap_or_default())),
        failed: false,
        wait: None,
    }
}
