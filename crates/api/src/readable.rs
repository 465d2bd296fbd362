//! Lists with several writers. An element that the definition accepts but that does not parse, such as a condition with an
//! impossible time, is skipped: otherwise an agent could report one to keep the hub from reading the rest.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// The elements that parse.
pub fn elements<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let all = Vec::<Value>::deserialize(deserializer)?;
    Ok(all
        .into_iter()
        .filter_map(|element| T::deserialize(element).ok())
        .collect())
}
