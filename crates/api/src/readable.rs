//! Lists that several write. An element that a definition lets through and nobody can read, such as a condition with a time
//! that is none, must not take the others along: an agent could report it to keep the hub from reading the rest.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// The elements that can be read.
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
