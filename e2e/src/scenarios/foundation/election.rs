//! A hub of several replicas, with the rights that it is installed with.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::{Fleet, fleet::HUB_NAMESPACE, wait};

/// The replica that acts takes the lease, and keeps it.
pub async fn keeps_the_lease(fleet: Fleet) -> Result<()> {
    let options = writ_hub::Options {
        controllers: vec!["work_ttl".into()],
        leader_election: Some("one".into()),
        ..writ_hub::Options::default()
    };
    let hub = fleet.run_hub(options).await?;
    let leases: Api<Lease> = Api::namespaced(fleet.hub.admin().await?, HUB_NAMESPACE);
    let renewed = |before: Option<_>| {
        let leases = leases.clone();
        async move {
            let spec = leases
                .get_opt("writ-hub")
                .await?
                .and_then(|lease| lease.spec)
                .unwrap_or_default();
            let ours = spec.holder_identity.as_deref() == Some("one");
            Ok(spec
                .renew_time
                .filter(|time| ours && before.as_ref() != Some(time)))
        }
    };
    let first = wait::until("the lease is taken", || renewed(None)).await?;
    wait::until("the lease is renewed", || renewed(Some(first.clone()))).await?;
    hub.stop().await
}
