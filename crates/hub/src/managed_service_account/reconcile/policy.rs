//! The admission policy on the Secrets that agents write.

use std::sync::PoisonError;

use kube::{Api, ResourceExt as _};
use writ_controller::{
    Error, Name, Next,
    write::{self, Ensure},
};

use super::Reconciler;
use crate::{
    MANAGER,
    managed_service_account::{model::POLICY, plan::policy},
};

/// The resourceVersions of the policy and of its binding.
pub(super) type Versions = (Option<String>, Option<String>);

const EXACT: [&str; 1] = ["/spec"];

impl Reconciler {
    pub(super) async fn policy(&self) -> Result<Next, Error> {
        let (policy, binding) = policy::policy()?;
        let name = Name::global(POLICY);
        let current = self.caches.policies.get(&name);
        let api = Api::all(self.client.clone());
        let ensure = Ensure::new(&api, MANAGER).exact(&EXACT);
        ensure.run(current.as_deref(), &policy).await?;
        let current = self.caches.policy_bindings.get(&name);
        let api = Api::all(self.client.clone());
        let ensure = Ensure::new(&api, MANAGER).exact(&EXACT);
        ensure.run(current.as_deref(), &binding).await?;
        Ok(Next::Wait)
    }

    /// Returns true if the policy is in place exactly as wanted: with one more selector or exception it would not see every
    /// Secret.
    pub(super) fn policy_holds(&self) -> Result<bool, Error> {
        let name = Name::global(POLICY);
        let (policy, binding) = (
            self.caches.policies.get(&name),
            self.caches.policy_bindings.get(&name),
        );
        let (Some(policy), Some(binding)) = (policy, binding) else {
            return Ok(false);
        };
        let versions = (policy.resource_version(), binding.resource_version());
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, holds)) = judged.as_ref().filter(|(of, _)| *of == versions) {
            return Ok(*holds);
        }
        let (want_policy, want_binding) = policy::policy()?;
        let holds = write::patch(&*policy, &want_policy, &EXACT)?.is_none()
            && write::patch(&*binding, &want_binding, &EXACT)?.is_none();
        *judged = Some((versions, holds));
        Ok(holds)
    }
}
