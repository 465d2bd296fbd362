//! What the handlers of the hub are given.

use std::sync::Arc;

use kube::Client;
use writ_process::admission::Authorizer;

use crate::options::Options;

/// The webhook configuration that the webhooks of clusters, sets and bindings share.
pub const CLUSTERS_CONFIGURATION: &str = "clusters.admission.writ.dev";

/// What a handler may use.
#[derive(Clone)]
pub struct AdmissionContext {
    /// A client of the hub.
    pub client: Client,
    /// How the hub was started.
    pub options: Arc<Options>,
    /// Answers which rights the requester has.
    pub authorizer: Arc<dyn Authorizer>,
}
