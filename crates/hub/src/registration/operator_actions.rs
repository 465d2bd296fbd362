//! What `writ accept`, `deny` and `detach` do, with the operator's own rights.

use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use writ_api::cluster::{CLUSTER_NAME_LABEL, ManagedCluster};
use writ_controller::{Error, backoff::Backoff, error::Context as _, watch};
use writ_process::token;

use super::{
    model::{ACCEPT_CSR_ANNOTATION, FORCE_ANNOTATION},
    plan::agent_requests::{has_agent, read_agent_request},
};
use crate::{
    agent_identity::{AGENT_ACCOUNT, cluster_identity},
    csr::is_pending,
};

/// A certificate request that a person may pick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The name of the request.
    pub name: String,
    /// The user that sent it.
    pub requester: String,
    /// SHA-256 of its public key.
    pub fingerprint: String,
    id: String,
}

/// What accepting came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The cluster is accepted; no certificate request is waiting, and the first that matches is approved.
    Waiting,
    /// The cluster is accepted, and the agent that was let in before is let in again. These requests are not approved:
    /// they may come from another agent.
    Again(Vec<Pending>),
    /// The cluster is accepted, and this request is the one that the hub approves once it has checked it.
    Chosen(Pending),
    /// Several requests match. Nothing was changed: pick one.
    Ambiguous(Vec<Pending>),
}

/// Accepts a cluster and chooses its certificate request: `csr` by name, or the only one that matches.
pub async fn accept(client: &Client, cluster: &str, csr: Option<&str>) -> Result<Accepted, Error> {
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let there = clusters
        .get(cluster)
        .await
        .context(|| format!("read ManagedCluster {cluster}"))?;
    if there.metadata.deletion_timestamp.is_some() {
        return Err(Error::Invalid(format!(
            "cluster {cluster:?} is being detached; accept it when it has come back"
        )));
    }
    let known = has_agent(&there);
    let mut pending = pending(client, cluster).await?;
    if let Some(wanted) = csr {
        let names: Vec<_> = pending.iter().map(|p| p.name.clone()).collect();
        pending.retain(|p| p.name == wanted);
        if pending.is_empty() {
            return Err(Error::Invalid(format!(
                "no pending certificate request {wanted:?} matches cluster {cluster:?}; there are: {}",
                names.join(", ")
            )));
        }
    }
    // A cluster that was denied and is accepted again keeps the agent that it had. A waiting request, which may be old or
    // another agent's, is not chosen unless it is named.
    let again = known && csr.is_none() && !there.spec.hub_accepts_client;
    let others = if again {
        std::mem::take(&mut pending)
    } else {
        Vec::new()
    };
    if pending.len() > 1 {
        return Ok(Accepted::Ambiguous(pending));
    }
    let chosen = pending.pop();
    // Without a choice an earlier one is removed: its request is gone.
    let patch = json!({
        "metadata": {"annotations": {ACCEPT_CSR_ANNOTATION: chosen.as_ref().map(|chosen| &chosen.id)}},
        "spec": {"hubAcceptsClient": true},
    });
    clusters
        .patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context(|| format!("accept ManagedCluster {cluster}"))?;
    Ok(match chosen {
        Some(chosen) => Accepted::Chosen(chosen),
        None if known => Accepted::Again(others),
        None => Accepted::Waiting,
    })
}

/// The certificate requests that would let an agent of this cluster in.
pub async fn pending(client: &Client, cluster: &str) -> Result<Vec<Pending>, Error> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let params = ListParams::default().labels(&format!("{CLUSTER_NAME_LABEL}={cluster}"));
    let list = api
        .list(&params)
        .await
        .context(|| "list CertificateSigningRequests".into())?;
    Ok(list
        .items
        .iter()
        .filter(|request| is_pending(request))
        .filter_map(|request| {
            let asked = read_agent_request(request).ok()?;
            (!asked.is_renewal() && cluster_identity(&asked.requester).is_none()).then(|| Pending {
                name: request.name_any(),
                requester: asked.requester.name,
                fingerprint: asked.fingerprint,
                id: asked.id,
            })
        })
        .collect())
}

/// Denies a cluster: its agent loses every right at once, and needs to be accepted anew. That takes `update` on the
/// cluster and nothing else, so that it can be done quickly.
pub async fn deny(client: &Client, cluster: &str) -> Result<(), Error> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    let patch = json!({"spec": {"hubAcceptsClient": false}});
    api.patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context(|| format!("deny ManagedCluster {cluster}"))?;
    Ok(())
}

/// Detaches a cluster. With `force` its agent is not waited for: what it applied stays on the cluster.
pub async fn detach(client: &Client, cluster: &str, force: bool) -> Result<(), Error> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    if force {
        let patch = json!({"metadata": {"annotations": {FORCE_ANNOTATION: "true"}}});
        api.patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("mark ManagedCluster {cluster} to be detached by force"))?;
    }
    api.delete(cluster, &DeleteParams::default())
        .await
        .context(|| format!("delete ManagedCluster {cluster}"))?;
    Ok(())
}

/// The first token of a cluster's agent, on a hub with the token driver. The caller must hold `create` on
/// `serviceaccounts/token` in the namespace of the cluster; a shared bootstrap identity does not.
pub async fn first_token(client: &Client, cluster: &str, seconds: i64) -> Result<String, Error> {
    let token = token::request(client, cluster, AGENT_ACCOUNT, Some(seconds)).await?;
    Ok(token.text)
}

/// Waits for the moment to ask again for the first token: when the hub has made the account of the cluster's agent.
pub async fn until_account(client: &Client, cluster: &str, pauses: &mut Backoff) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), cluster);
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    watch::until(&accounts, AGENT_ACCOUNT, is_there, pauses).await;
}
