//! Watches clusters, sets, bindings, placements, decisions and scores, and writes what is planned.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::{Api, Resource as _};
use writ_api::cluster::{AddOnPlacementScore, Placement};
use writ_controller::{Cache, Controller, Error, Name, Next, Watch, cache::Change, events::Events};

use super::{apply::apply, scheduler::Scheduler};
use crate::Context;

/// How many placements are written side by side.
const CONCURRENCY: usize = 8;
/// Added to the time at which a plan changes, so that it has passed.
const MARGIN: Duration = Duration::from_millis(50);

/// The scheduler, shared by the watches and the reconciles.
#[derive(Clone)]
struct Shared(Arc<Mutex<Scheduler>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a watch does with each change: the scheduler takes it in, and names the placements to plan again.
    fn on_change<V>(
        &self,
        take: fn(&mut Scheduler, &Change<'_, V>),
    ) -> impl Fn(&Change<'_, V>) -> BTreeSet<Name> + Send + Sync + 'static
    where
        V: 'static,
    {
        let shared = self.clone();
        move |change| {
            let mut scheduler = shared.lock();
            take(&mut scheduler, change);
            scheduler.take_dirty()
        }
    }
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let context = Arc::new(context);
    let scheduler = Scheduler::new(context.options.guards.default_key);
    let shared = Shared(Arc::new(Mutex::new(scheduler)));
    let (client, caches) = (&context.client, &context.caches);
    let placements: Cache<Placement> = Watch::new(Api::all(client.clone())).start(&context.shutdown);
    let scores: Cache<AddOnPlacementScore> = Watch::new(Api::all(client.clone())).start(&context.shutdown);
    let events = Events::new(client.clone(), "writ-hub/placement");
    let described = placements.clone();
    Controller::new("placement", &context.health)
        .watch(
            caches.clusters(),
            shared.on_change(|scheduler, change| {
                scheduler.take_cluster(&change.name.name, change.new.as_ref());
            }),
        )
        .watch(
            caches.sets(),
            shared.on_change(|scheduler, change| scheduler.take_set(&change.name.name, change.new.as_ref())),
        )
        .watch(
            caches.set_bindings(),
            shared.on_change(|scheduler, change| scheduler.take_binding(&change.name, change.new.as_ref())),
        )
        .watch(
            &placements,
            shared.on_change(|scheduler, change| scheduler.take_placement(&change.name, change.new.as_ref())),
        )
        .watch(
            caches.decisions(),
            shared.on_change(|scheduler, change| scheduler.take_decision(&change.name, change.new.as_ref())),
        )
        .watch(
            &scores,
            shared.on_change(|scheduler, change| scheduler.take_score(&change.name, change.new.as_ref())),
        )
        .report(events, move |name| Some(described.get(name)?.object_ref(&())))
        .run(CONCURRENCY, &context.shutdown, |name| {
            let (context, shared) = (context.clone(), shared.clone());
            async move { reconcile(&context, &shared, &name).await }
        })
        .await;
    Ok(())
}

async fn reconcile(context: &Context, shared: &Shared, name: &Name) -> Result<Next, Error> {
    let now = Timestamp::now();
    let Some(schedule) = shared.lock().schedule(name, now) else {
        return Ok(Next::Wait);
    };
    let held_back = apply(&context.client, &schedule, now)
        .await
        .inspect_err(|_| shared.lock().forget_layout(name))?;
    let until = schedule.until.into_iter().chain(held_back).min();
    Ok(until.map_or(Next::Wait, |delay| Next::After(delay + MARGIN)))
}
