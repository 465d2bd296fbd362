//! Which certificate requests are approved: exactly the one that matches.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::CertificateSigningRequest,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::cluster::{CLUSTER_NAME_LABEL, ManagedCluster};
use writ_controller::{Error, Name, error::Context as _, events::Events};

use super::observe::Caches;
use crate::{
    Context,
    csr::{self, ClientRequest},
    options::RegistrationDriver,
    registration::{
        model::{ACCEPT_CSR_ANNOTATION, AGENT_USER_ANNOTATION, Choice, ISSUED_ANNOTATION},
        plan::agent_requests::{approved_by_hand, choose, may_renew, pending_requests},
    },
};

/// Approves the certificate requests of clusters' agents.
pub struct CertificateRequests {
    client: Client,
    driver: RegistrationDriver,
    caches: Arc<Caches>,
    events: Events,
}

impl CertificateRequests {
    /// Sees the requests that these caches show.
    pub fn new(context: &Context, caches: Arc<Caches>, events: Events) -> Self {
        Self {
            client: context.client.clone(),
            driver: context.options.registration_driver,
            caches,
            events,
        }
    }

    /// Approves what may be approved among the pending requests of a cluster.
    pub async fn answer(&self, cluster: &ManagedCluster) -> Result<(), Error> {
        let name = cluster.name_any();
        let requests = self.caches.requests_of(&name);
        let requests = || requests.iter().map(|request| &**request);
        let pending = pending_requests(&name, requests());
        // A hub that hands out tokens approves no certificate, even where a signer exists: it would be a way in for every
        // holder of the shared bootstrap identity.
        let by_token = self.driver == RegistrationDriver::Token;
        if !cluster.spec.hub_accepts_client {
            return Ok(());
        }
        if !by_token && let Some(asked) = approved_by_hand(cluster, requests()) {
            // The event of this write brings the cluster back.
            return self.record(cluster, &asked).await;
        }
        if pending.is_empty() {
            return Ok(());
        }
        if by_token {
            let note = format!(
                "certificate requests wait, but this hub hands out tokens (--registration-driver token) and approves \
                 none; `writ accept {name} --hub-kubeconfig-out FILE` writes the first token"
            );
            self.events
                .warning(cluster, "CertificateRequestNotApproved", note)
                .await;
            return Ok(());
        }
        for asked in pending.iter().filter(|asked| asked.is_renewal()) {
            // A certificate of a cluster that was detached is no certificate of the one that has its name now.
            if !may_renew(cluster) {
                let note = format!(
                    "{:?} asks to renew a certificate, but no agent has come in for this cluster yet: the certificate may be \
                     of a former cluster of the name, and is not renewed before another request was accepted",
                    asked.user
                );
                self.events
                    .warning(cluster, "CertificateRequestNotApproved", note)
                    .await;
                continue;
            }
            let renew = attributes(
                "renew",
                "register.open-cluster-management.io",
                "managedclusters",
                Some("clientcertificates"),
                None,
            );
            if self.allows(asked, renew).await? {
                self.approve(asked, csr::AUTO_APPROVED).await?;
            }
        }
        let (choice, pending) = match choose(cluster, &pending) {
            // The cache of requests can lag behind the cache of clusters, so the server is asked whether there is really
            // only one: a second one makes the choice a person's.
            Choice::Record(_) => {
                let pending = self.pending_now(&name).await?;
                (choose(cluster, &pending), pending)
            }
            choice => (choice, pending),
        };
        match choice {
            Choice::Nothing => {}
            Choice::Ambiguous(ids) => {
                let note = format!(
                    "{} certificate requests match; `writ accept {name}` lists them, `--csr` picks one",
                    ids.len()
                );
                self.events
                    .warning(cluster, "AmbiguousCertificateRequests", note)
                    .await;
            }
            Choice::Record(id) => {
                if !self.may_join(cluster, &pending, &id).await? {
                    return Ok(());
                }
                if let Some(asked) = pending.iter().find(|asked| asked.id == id) {
                    self.record(cluster, asked).await?;
                }
            }
            Choice::Approve(id) => {
                if self.may_join(cluster, &pending, &id).await? {
                    for asked in pending.iter().filter(|asked| asked.id == id) {
                        self.approve(asked, "ApprovedByAcceptance").await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Records the request that the agent of a cluster came in with: no other is ever chosen automatically. From then on the
    /// rights are its user's.
    async fn record(&self, cluster: &ManagedCluster, asked: &ClientRequest) -> Result<(), Error> {
        let name = cluster.name_any();
        let patch = json!({"metadata": {
            "uid": cluster.uid(), "resourceVersion": cluster.resource_version(),
            "annotations": {ISSUED_ANNOTATION: asked.id, AGENT_USER_ANNOTATION: asked.user, ACCEPT_CSR_ANNOTATION: null},
        }});
        Api::<ManagedCluster>::all(self.client.clone())
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
            .context(|| format!("record the certificate request of ManagedCluster {name}"))
    }

    /// The pending requests of a cluster as the server has them.
    async fn pending_now(&self, cluster: &str) -> Result<Vec<ClientRequest>, Error> {
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_NAME_LABEL}={cluster}"));
        let requests = api
            .list(&of_cluster)
            .await
            .context(|| format!("list the certificate requests of cluster {cluster}"))?;
        Ok(pending_requests(cluster, &requests.items))
    }

    /// Returns true if the requester may bring this cluster in at all: a user that may not create it cannot be its agent. An
    /// event tells a refusal.
    async fn may_join(
        &self,
        cluster: &ManagedCluster,
        pending: &[ClientRequest],
        id: &str,
    ) -> Result<bool, Error> {
        let name = cluster.name_any();
        let create = attributes(
            "create",
            "cluster.open-cluster-management.io",
            "managedclusters",
            None,
            Some(&name),
        );
        let Some(asked) = pending.iter().find(|asked| asked.id == id) else {
            return Ok(false);
        };
        let may = self.allows(asked, create).await?;
        if !may {
            let request = asked.id.split('@').next().unwrap_or_default();
            let note = format!(
                "the certificate request {request} is not approved: its requester {:?} may not create ManagedCluster \
                 {name}",
                asked.requester.name
            );
            self.events
                .warning(cluster, "CertificateRequestNotApproved", note)
                .await;
        }
        Ok(may)
    }

    async fn allows(&self, asked: &ClientRequest, attributes: ResourceAttributes) -> Result<bool, Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(asked.requester.name.clone()),
                groups: Some(asked.requester.groups.clone()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .context(|| format!("ask what {} may do", asked.requester.name))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, asked: &ClientRequest, reason: &str) -> Result<(), Error> {
        let Some((name, uid)) = asked.id.split_once('@') else {
            return Ok(());
        };
        let seen = self.caches.requests.get(&Name::global(name));
        let Some(request) = seen.filter(|request| request.uid().as_deref() == Some(uid)) else {
            return Ok(());
        };
        let message = format!("approved by writ for the agent of cluster {}", asked.cluster);
        csr::approve(&self.client, &request, reason, message, Timestamp::now()).await?;
        tracing::info!(cluster = %asked.cluster, request = %name, key = %asked.fingerprint, "approved a certificate");
        Ok(())
    }
}

fn attributes(
    verb: &str,
    group: &str,
    resource: &str,
    subresource: Option<&str>,
    name: Option<&str>,
) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some(verb.into()),
        group: Some(group.into()),
        resource: Some(resource.into()),
        subresource: subresource.map(str::to_owned),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}
