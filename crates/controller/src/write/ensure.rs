//! Creates what is missing and patches what differs.

use std::fmt::Debug;

use kube::{Api, Resource, ResourceExt, api::Patch};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    MAX_CONFLICTS, Outcome, answered, create,
    difference::{difference, remove_at, remove_the_rest},
    full_name, patch_params, recreate, to_value,
};
use crate::{Error, error::Context as _};

/// How an object is made to hold what is wanted of it.
#[must_use = "nothing is written before it is run"]
pub struct Ensure<'a, K> {
    api: &'a Api<K>,
    manager: &'a str,
    exact: &'a [&'a str],
    adopts: Option<&'a (dyn Fn(&K) -> bool + Sync)>,
    recreates: Option<&'a (dyn Fn(&K) -> bool + Sync)>,
}

impl<'a, K> Ensure<'a, K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    /// Creates and patches as this field manager, and leaves what others added.
    pub fn new(api: &'a Api<K>, manager: &'a str) -> Self {
        Self {
            api,
            manager,
            exact: &[],
            adopts: None,
            recreates: None,
        }
    }

    /// Removes what is not wanted at and below these JSON pointers.
    pub fn exact(mut self, pointers: &'a [&'a str]) -> Self {
        self.exact = pointers;
        self
    }

    /// Changes an object that is there although `current` did not show it, if `adopts` says so. Without this, such an
    /// object is a conflict (409).
    pub fn adopt(mut self, adopts: &'a (dyn Fn(&K) -> bool + Sync)) -> Self {
        self.adopts = Some(adopts);
        self
    }

    /// Deletes an object and creates it anew if `recreates` says so, as what differs cannot be changed.
    pub fn recreate_if(mut self, recreates: &'a (dyn Fn(&K) -> bool + Sync)) -> Self {
        self.recreates = Some(recreates);
        self
    }

    /// Does what is needed.
    pub async fn run(&self, current: Option<&K>, wanted: &K) -> Result<Outcome, Error> {
        let mut read: Option<Option<K>> = None;
        for _ in 0..MAX_CONFLICTS {
            let seen = match &read {
                Some(live) => live.as_ref(),
                None => current,
            };
            let stale = match self.attempt(seen, wanted).await {
                Err(error) if error.is_code(409) || error.is_code(404) => error,
                done => return done,
            };
            let Some(adopts) = self.adopts else {
                return Err(stale);
            };
            let found = self.api.get_opt(&wanted.name_any()).await;
            let live = found.context(|| format!("read {}", full_name(wanted)))?;
            if live.as_ref().is_some_and(|live| !adopts(live)) {
                return Err(Error::Invalid(format!(
                    "{} belongs to something else and is left alone; nothing is done until it is gone",
                    full_name(wanted)
                )));
            }
            read = Some(live);
        }
        Err(Error::Busy(format!(
            "{} is being changed by others",
            full_name(wanted)
        )))
    }

    async fn attempt(&self, current: Option<&K>, wanted: &K) -> Result<Outcome, Error> {
        let Some(current) = current else {
            return self.create(wanted).await;
        };
        if self.recreates.is_some_and(|recreates| recreates(current)) {
            recreate(self.api, current, wanted, self.manager).await?;
            return Ok(Outcome::Changed);
        }
        let Some(mut patch) = patch(current, wanted, self.exact)? else {
            return Ok(Outcome::Unchanged);
        };
        // With the uid, an object that was deleted and made again is not changed.
        if let (Some(uid), Value::Object(patch)) = (current.uid(), &mut patch) {
            let metadata = patch
                .entry("metadata")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("uid".into(), Value::String(uid));
            }
        }
        let params = patch_params(self.manager);
        let patched = self
            .api
            .patch(&wanted.name_any(), &params, &Patch::Merge(&patch))
            .await;
        answered(patched).context(|| format!("change {}", full_name(wanted)))?;
        Ok(Outcome::Changed)
    }

    async fn create(&self, wanted: &K) -> Result<Outcome, Error> {
        create(self.api, wanted, self.manager).await?;
        Ok(Outcome::Created)
    }
}

/// The merge patch that makes `current` hold everything in `wanted`, and nothing else at and below the JSON pointers
/// `exact`; `None` if it does.
pub fn patch<K: Serialize>(current: &K, wanted: &K, exact: &[&str]) -> Result<Option<Value>, Error> {
    let (have, mut want) = (to_value(current)?, to_value(wanted)?);
    for pointer in exact {
        match (have.pointer(pointer), want.pointer_mut(pointer)) {
            (Some(have), Some(want)) => remove_the_rest(have, want),
            (Some(_), None) => remove_at(&mut want, pointer),
            (None, _) => {}
        }
    }
    Ok(difference(&have, &want))
}
