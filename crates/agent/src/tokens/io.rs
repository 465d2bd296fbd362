//! The requests that looking at an account makes.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec},
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::reflector::ObjectRef,
};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{Error, error::Context as _, write};

use super::{
    claims,
    plan::{self, Facts, Wish},
    reconcile::{Watched, Worker},
    secret,
    state::{Held, Minted, State, Stop},
    status::{self, Report},
};
use crate::MANAGER;

impl Worker {
    pub(super) async fn write_secret(
        &self,
        facts: &Facts<'_>,
        found: Option<&Secret>,
        known: bool,
        wanted: &Secret,
    ) -> Result<(), Stop> {
        let secrets = self.secrets();
        let name = &facts.wish.name;
        if let Some(found) = found.filter(|found| secret::must_be_replaced(found)) {
            write::delete(&secrets, name, found.uid().as_deref()).await?;
        } else if found.is_some() || known {
            match self.patch_secret(found, wanted).await {
                Err(error) if error.is_code(404) => {}
                // Its type or data cannot be changed any more.
                Err(error) if error.is_code(422) => {
                    let current = secrets
                        .get_opt(name)
                        .await
                        .context(|| format!("read the Secret {name} on the hub"))?;
                    if let Some(current) = current.filter(|current| secret::is_ours(current, facts.account)) {
                        write::delete(&secrets, name, current.uid().as_deref()).await?;
                    }
                }
                done => return Ok(done?),
            }
        }
        match write::ensure(&secrets, None, wanted, MANAGER).await {
            Err(error) if error.is_code(409) => {
                let current = secrets
                    .get_opt(name)
                    .await
                    .context(|| format!("read the Secret {name} on the hub"))?;
                match current {
                    Some(current) if !secret::is_ours(&current, facts.account) && !facts.wish.adopt => {
                        Err(plan::secret_not_ours(name).into())
                    }
                    Some(current) if secret::must_be_replaced(&current) => {
                        write::delete(&secrets, name, current.uid().as_deref()).await?;
                        write::ensure(&secrets, None, wanted, MANAGER).await?;
                        Ok(())
                    }
                    Some(current) => Ok(self.patch_secret(Some(&current), wanted).await?),
                    None => Err(error.into()),
                }
            }
            done => {
                done?;
                Ok(())
            }
        }
    }

    pub(super) async fn patch_secret(&self, current: Option<&Secret>, wanted: &Secret) -> Result<(), Error> {
        let name = wanted.name_any();
        let patch = secret::patch(current, wanted)
            .map_err(|error| Error::Invalid(format!("the Secret cannot be written: {error}")))?;
        self.secrets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .context(|| format!("change the Secret {name} on the hub"))?;
        Ok(())
    }

    pub(super) async fn mint(&self, facts: &Facts<'_>, ca: &Arc<Vec<u8>>) -> Result<Minted, Error> {
        let (wish, name) = (facts.wish, &facts.wish.name);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: (!wish.audiences.is_empty()).then(|| wish.audiences.clone()),
                expiration_seconds: i64::try_from(wish.validity.as_secs()).ok(),
                bound_object_ref: None,
            }),
            ..TokenRequest::default()
        };
        let before = self.clock.now();
        let answer = self
            .spoke_accounts()
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .context(|| {
                format!(
                    "request a token for the ServiceAccount {}/{name}",
                    self.settings.namespace
                )
            })?;
        let token = answer
            .status
            .and_then(|status| status.token)
            .unwrap_or_default()
            .into_bytes();
        let claims = claims::read(&token)
            .ok_or_else(|| Error::Invalid("the managed cluster issued something that is no token".into()))?;
        self.learn_skew(claims.issued, before);
        Ok(Minted {
            token,
            claims,
            request: wish.request(),
            uid: facts.uid.to_owned(),
            ca: ca.clone(),
        })
    }

    /// Remembers how far the managed cluster's clock is from ours.
    pub(super) fn learn_skew(&self, theirs: Timestamp, ours: Timestamp) {
        self.skew.store(Arc::new(plan::skew(theirs, ours)));
    }

    pub(super) fn spoke_now(&self) -> Timestamp {
        let skew = **self.skew.load();
        self.clock.now().saturating_add(skew).unwrap_or(Timestamp::MAX)
    }

    /// Whether the managed cluster accepts the token for these audiences; none means for itself.
    pub(super) async fn review(&self, token: &[u8], audiences: &[String]) -> Result<bool, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: String::from_utf8_lossy(token).into_owned(),
                audiences: (!audiences.is_empty()).then(|| audiences.to_vec()),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.spoke.clone());
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .context(|| "review a token on the managed cluster".into())?;
        Ok(answer
            .status
            .is_some_and(|status| status.authenticated == Some(true)))
    }

    /// With audiences of its own, whether the token also authenticates to the API server.
    pub(super) async fn authenticates(&self, token: &[u8], wish: &Wish) -> Result<Option<bool>, Error> {
        if wish.audiences.is_empty() {
            return Ok(None);
        }
        self.review(token, &[]).await.map(Some)
    }

    pub(super) async fn report_held(
        &self,
        name: &str,
        facts: &Facts<'_>,
        held: &Held,
        refreshed: Option<Timestamp>,
        state: &mut State,
    ) -> Result<(), Error> {
        let report = if plan::stays_expired(&held.claims, facts) {
            Report::Expired
        } else {
            Report::Good {
                expires: held.claims.expires,
                digest: held.digest.clone(),
                refreshed,
                authenticates: held.authenticates,
                left: state.left.clone(),
                keys: plan::keys_missing(facts.wish, facts.cluster.address),
            }
        };
        self.report(name, &report, state).await
    }

    /// Writes the status if it differs: from what the watch shows, or from what was written since.
    pub(super) async fn report(&self, name: &str, report: &Report, state: &mut State) -> Result<(), Error> {
        let Some(watched) = self.accounts.get(&self.account_ref(name)) else {
            return Ok(());
        };
        let Ok(account) = &watched.0 else {
            return Ok(());
        };
        let mut account = account.clone();
        let seen = (account.uid(), account.resource_version());
        if let Some((_, status)) = state.told.take_if(|(before, _)| *before == seen) {
            account.status = Some(status);
        }
        let status = status::status(&account, report, self.clock.now());
        let api: Api<ManagedServiceAccount> = Api::namespaced(self.hub.clone(), &self.settings.cluster);
        match self
            .in_time(write::ensure_status(&api, &account, &status, MANAGER))
            .await
        {
            // It was deleted meanwhile; the watch will say so.
            Err(error) if error.is_code(404) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                state.told = Some((seen, status));
                Ok(())
            }
        }
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.hub.clone(), &self.settings.cluster)
    }

    pub(super) fn spoke_accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.spoke.clone(), &self.settings.namespace)
    }

    pub(super) fn account_ref(&self, name: &str) -> ObjectRef<Watched> {
        ObjectRef::new(name).within(&self.settings.cluster)
    }

    pub(super) fn service_account_ref(&self, name: &str) -> ObjectRef<ServiceAccount> {
        ObjectRef::new(name).within(&self.settings.namespace)
    }
}
