//! Creating what a watch has not shown yet.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use writ_controller::{Error, error::Context as _, events::Events, write};

use crate::MANAGER;

/// Creates or changes. A view that is behind is no error: what turns out to be there already is read, and taken
/// over if it was there without our label.
pub async fn upsert<K>(api: &Api<K>, current: Option<&K>, wanted: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    upsert_if(api, current, wanted, |_| true).await
}

/// The same, but what was there without our label is taken over only if `ours` says so.
pub async fn upsert_if<K>(
    api: &Api<K>,
    current: Option<&K>,
    wanted: &K,
    ours: impl FnOnce(&K) -> bool,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    match write::ensure(api, current, wanted, MANAGER).await {
        Err(error) if current.is_none() && error.is_code(409) => {
            let name = wanted.name_any();
            let there = api
                .get(&name)
                .await
                .context(|| format!("read {} {name}", K::kind(&())))?;
            if !ours(&there) {
                return Err(Error::Invalid(format!(
                    "there is a {} {name} that is somebody else's: it is left alone, and nothing is done until it is gone",
                    K::kind(&())
                )));
            }
            write::ensure(api, Some(&there), wanted, MANAGER).await?;
            Ok(())
        }
        answer => answer.map(drop),
    }
}

/// Says that a reconcile failed and is tried again: in the log, and where the object is described. That somebody
/// else wrote first is nothing to warn about: the event of that write brings the thing back.
pub async fn will_try_again(
    what: &(dyn Debug + Sync),
    error: &Error,
    events: &Events,
    about: Option<ObjectReference>,
) {
    if error.is_code(409) {
        tracing::debug!(?what, %error, "somebody else wrote first, trying again");
        return;
    }
    tracing::warn!(?what, %error, "will try again");
    if let Some(about) = about {
        events.failed(&about, error).await;
    }
}
