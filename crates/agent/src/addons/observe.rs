//! What is observed: the add-on on the hub, and its Secret in the namespace that the registration names.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio_util::sync::{CancellationToken, DropGuard};
use writ_api::addon::ManagedClusterAddOn;
use writ_controller::{Cache, Name, Queue, Watch, cache::Subscription};

use super::model::{ADDON, SECRET};
use crate::Context;

/// Starts the watch of the add-on.
pub fn watch_add_on(context: &Context) -> Cache<ManagedClusterAddOn> {
    let api = Api::namespaced(context.hub.clone(), &context.options.cluster_name);
    Watch::new(api)
        .fields(&format!("metadata.name={ADDON}"))
        .start(&context.shutdown)
}

/// The watch of the Secret in one namespace: the agent may read it there and nowhere else. It ends when this is dropped.
pub struct SecretWatch {
    /// The namespace.
    pub namespace: String,
    secrets: Cache<Secret>,
    _subscription: Subscription,
    _stop: DropGuard,
}

impl SecretWatch {
    /// Starts the watch; every change brings the add-on to be reconciled.
    pub fn start(context: &Context, namespace: &str, queue: &Queue<&'static str>) -> Self {
        let stop: CancellationToken = context.shutdown.child_token();
        let secrets = Watch::new(Api::<_>::namespaced(context.spoke.clone(), namespace))
            .fields(&format!("metadata.name={SECRET}"))
            .start(&stop);
        let queue = queue.clone();
        Self {
            namespace: namespace.to_owned(),
            _subscription: secrets.subscribe(move |_| queue.add(ADDON)),
            secrets,
            _stop: stop.drop_guard(),
        }
    }

    /// Returns true once it is known whether there is a Secret.
    pub fn is_ready(&self) -> bool {
        self.secrets.is_ready()
    }

    /// The Secret.
    pub fn secret(&self) -> Option<Arc<Secret>> {
        self.secrets.get(&Name::new(self.namespace.as_str(), SECRET))
    }
}
