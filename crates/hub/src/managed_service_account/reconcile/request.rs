//! One request for the certificate of the add-on's agent.

use writ_controller::{Error, Name, Next};

use super::Reconciler;
use crate::{
    csr,
    managed_service_account::{
        model::ADDON,
        plan::{addon, credential_request::approvable_cluster},
    },
    options::RegistrationDriver,
};

impl Reconciler {
    pub(super) async fn request(&self, name: &str) -> Result<Next, Error> {
        let request = self.caches.requests.get(&Name::global(name));
        let Some(request) = request.filter(|request| csr::is_pending(request)) else {
            return Ok(Next::Wait);
        };
        if self.driver == RegistrationDriver::Token {
            // The rights are the account's: a certificate would have none, and would become a way in if that changed.
            return Ok(Next::Wait);
        }
        let cluster = match approvable_cluster(&request) {
            Ok(cluster) => cluster,
            Err(why) => {
                tracing::warn!(
                    request = name,
                    why,
                    "the request for the add-on's credential is not approved"
                );
                return Ok(Next::Wait);
            }
        };
        let found = self.caches.clusters.get(&Name::global(cluster.as_str()));
        let accepted =
            found.is_some_and(|cluster| cluster.spec.hub_accepts_client && !addon::runs_our_agent(&cluster));
        let add_on = self.caches.add_ons.get(&Name::new(cluster.as_str(), ADDON));
        if accepted && add_on.is_some() {
            let message = format!("the add-on {ADDON} of cluster {cluster}");
            csr::approve(&self.client, &request, csr::AUTO_APPROVED, message, self.now()).await?;
        }
        Ok(Next::Wait)
    }
}
