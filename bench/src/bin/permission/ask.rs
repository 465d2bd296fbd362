//! When the managed cluster's authorizer changes its mind.

use std::{
    collections::BTreeSet,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::PostParams,
    core::PartialObjectMeta,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// From when a time begins to count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The request: the bare client has nothing but its write.
    Request,
    /// The moment that the hub has accepted the write.
    Accepted,
}

/// Asks for the rights that bindings in one namespace give. It asks from the moment on that the binding is there or
/// gone: questions before that would take the processors from those who are waited for.
pub struct Asker {
    reviews: Api<SubjectAccessReview>,
    namespace: &'static str,
    there: watch::Receiver<BTreeSet<String>>,
    _watch: AbortOnDropHandle<()>,
}

impl Asker {
    /// Follows the bindings of a namespace.
    pub fn new(client: Client, namespace: &'static str) -> Self {
        let (sender, there) = watch::channel(BTreeSet::new());
        let api: Api<PartialObjectMeta<RoleBinding>> = Api::namespaced(client.clone(), namespace);
        let events = watcher::watcher(api, watcher::Config::default());
        let follow = events.for_each(move |event| {
            sender.send_modify(|names| match event {
                Ok(Event::InitApply(binding) | Event::Apply(binding)) => {
                    names.insert(binding.name_any());
                }
                Ok(Event::Delete(binding)) => {
                    names.remove(&binding.name_any());
                }
                Ok(Event::Init) => names.clear(),
                Ok(Event::InitDone) | Err(_) => {}
            });
            std::future::ready(())
        });
        Self {
            reviews: Api::all(client),
            namespace,
            there,
            _watch: AbortOnDropHandle::new(tokio::spawn(follow)),
        }
    }

    /// How long it takes from a write until a user has the right, or has it no more.
    pub async fn timed(
        &self,
        from: From,
        user: &str,
        wanted: bool,
        write: impl Future<Output = Result<(), kube::Error>>,
    ) -> Result<Duration> {
        let mut there = self.there.clone();
        let mut started = Instant::now();
        write.await?;
        if from == From::Accepted {
            started = Instant::now();
        }
        let changed = there.wait_for(|names| names.contains(user) == wanted);
        tokio::time::timeout(Duration::from_mins(1), changed)
            .await
            .with_context(|| format!("the binding of {user} is not as wanted after a minute"))??;
        while self.allows(user).await? != wanted {
            ensure!(
                started.elapsed() < Duration::from_mins(1),
                "{user} is not allowed={wanted} after a minute"
            );
        }
        Ok(started.elapsed())
    }

    async fn allows(&self, user: &str) -> Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.into()),
                groups: Some(vec!["system:authenticated".into()]),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("get".into()),
                    resource: Some("pods".into()),
                    namespace: Some(self.namespace.into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
