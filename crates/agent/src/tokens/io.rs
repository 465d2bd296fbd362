//! The requests about one account's Secret, token and status.

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec},
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{Error, cache::index_key, error::Context as _, write};

use super::{
    model::{Facts, Report, Stop, Wish},
    plan::{secret, status, token},
    reconcile::Reconciler,
    state::{Held, Minted, State},
};
use crate::{MANAGER, token_claims};

impl Reconciler {
    /// Writes the Secret: changes it, or recreates it if it cannot be changed. `known` means that it was written before.
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
                // Its type or data is immutable.
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
                        Err(token::secret_not_ours(name).into())
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

    /// Changes the Secret; keys, labels and annotations of others stay.
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

    /// Requests a token of the ServiceAccount.
    pub(super) async fn request_token(&self, facts: &Facts<'_>) -> Result<Minted, Error> {
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
        let claims = token_claims::read(&token)
            .ok_or_else(|| Error::Invalid("the managed cluster issued something that is no token".into()))?;
        self.learn_skew(claims.issued, before);
        Ok(Minted {
            token,
            claims,
            request: wish.request(),
            uid: facts.uid.to_owned(),
            ca: index_key(facts.cluster.ca),
        })
    }

    /// Returns true if the managed cluster accepts the token for these audiences; none means for itself.
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

    /// Reports the token that the Secret holds.
    pub(super) async fn report_held(
        &self,
        name: &str,
        facts: &Facts<'_>,
        held: &Held,
        refreshed: Option<Timestamp>,
        state: &mut State,
    ) -> Result<(), Error> {
        let report = if token::stays_expired(&held.claims, facts) {
            Report::Expired
        } else {
            Report::Good {
                expires: held.claims.expires,
                digest: held.digest.clone(),
                refreshed,
                authenticates: held.authenticates,
                previous: state.previous_error.clone(),
                keys: token::keys_missing(facts.wish, facts.cluster.address),
            }
        };
        self.report(name, &report, state).await
    }

    /// Writes the status if it differs: from the cache, or from what was written since.
    pub(super) async fn report(&self, name: &str, report: &Report, state: &mut State) -> Result<(), Error> {
        let Some(account) = self.caches.accounts.get(&self.account_name(name)) else {
            return Ok(());
        };
        let mut account = (*account).clone();
        let seen = (account.uid(), account.resource_version());
        if let Some((_, status)) = state.reported.take_if(|(before, _)| *before == seen) {
            account.status = Some(status);
        }
        let status = status::status(&account, report, self.clock.now());
        let api: Api<ManagedServiceAccount> = Api::namespaced(self.hub.clone(), &self.settings.cluster);
        match self
            .in_time(write::ensure_status(&api, &account, &status, MANAGER))
            .await
        {
            // It was deleted meanwhile.
            Err(error) if error.is_code(404) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                state.reported = Some((seen, status));
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
}
