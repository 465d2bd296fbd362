//! Objects that are kept and seldom looked at, as compressed text: typed, each takes many times that.

use serde::{Serialize, de::DeserializeOwned};

/// Packs an object.
pub fn pack<T: Serialize>(object: &T) -> Result<Box<[u8]>, serde_json::Error> {
    let text = serde_json::to_vec(object)?;
    Ok(lz4_flex::compress_prepend_size(&text).into_boxed_slice())
}

/// The object that was packed.
pub fn unpack<T: DeserializeOwned>(packed: &[u8]) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    let text = lz4_flex::decompress_size_prepended(packed)?;
    Ok(serde_json::from_slice(&text)?)
}
