//! Spoiling what writ keeps, to see it put right.

use std::fmt::Debug;

use anyhow::{Result, ensure};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::wait;

/// Puts `change` where `pointer` points, as the owner of `api`, and waits until it is again what it was.
pub async fn repaired<K>(api: &Api<K>, name: &str, pointer: &str, change: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let what = format!("{pointer} of {} {name}", K::kind(&()));
    let read = async || -> Result<Value> {
        let object = serde_json::to_value(api.get(name).await?)?;
        Ok(object.pointer(pointer).cloned().unwrap_or_default())
    };
    let before = wait::until(&format!("{what} is there"), || async {
        Ok(Some(read().await?).filter(|value| !value.is_null()))
    })
    .await?;
    let patch = pointer
        .rsplit('/')
        .filter(|key| !key.is_empty())
        .fold(change, |inner, key| json!({ key.replace("~1", "/"): inner }));
    let params = PatchParams::default();
    let spoilt = serde_json::to_value(api.patch(name, &params, &Patch::Merge(patch)).await?)?;
    ensure!(spoilt.pointer(pointer) != Some(&before), "{what} was not changed");
    wait::until_true(&format!("{what} is repaired"), || async {
        Ok(read().await? == before)
    })
    .await
}
