//! Admission on the hub: requests that a controller could only reject later are denied when they are sent.
//!
//! Each kind has a module in [`handlers`]: a row of [`WEBHOOKS`], what it reads from the hub, and a decision. The rights
//! that decisions depend on are named in [`requirement`]; the framework in `writ_process::admission` asks for them as
//! the requester. Every webhook fails closed.

pub mod context;
pub mod handlers;
pub mod requirement;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use writ_controller::Error;
use writ_process::{
    admission::{Authorizer, SubjectAccessReviews, Webhook, configurations, router},
    webhook,
};

use self::context::AdmissionContext;
use crate::{Context, advice};

/// Every webhook of the hub.
pub const WEBHOOKS: &[Webhook<AdmissionContext>] = &[
    handlers::manifest_work::WEBHOOK,
    handlers::replica_set::WEBHOOK,
    handlers::account_binding::WEBHOOK,
    handlers::cluster_permission::WEBHOOK,
    handlers::managed_cluster::MUTATING,
    handlers::managed_cluster::VALIDATING,
    handlers::managed_cluster_set::MUTATING,
    handlers::managed_cluster_set::VALIDATING,
    handlers::managed_cluster_set_binding::WEBHOOK,
];

/// Serves the webhooks until shutdown. Every replica of the hub does, not only the leader.
pub async fn run(context: Context) -> Result<(), Error> {
    let authorizer: Arc<dyn Authorizer> = Arc::new(SubjectAccessReviews(context.client.clone()));
    let handlers = AdmissionContext {
        client: context.client.clone(),
        options: context.options.clone(),
        authorizer: authorizer.clone(),
    };
    webhook::run(
        context.client.clone(),
        context.options.admission.server.clone(),
        configurations(WEBHOOKS),
        router(WEBHOOKS, &handlers, &authorizer),
        &context.health,
        context.shutdown.clone(),
    )
    .await
    .map_err(advice::with_advice)
}
