//! Objects that are kept and seldom read, as compressed text: typed, each takes many times that.

use serde::{Serialize, de::DeserializeOwned};

/// Compresses an object.
pub fn compress<T: Serialize>(object: &T) -> Result<Box<[u8]>, serde_json::Error> {
    let text = serde_json::to_vec(object)?;
    Ok(lz4_flex::compress_prepend_size(&text).into_boxed_slice())
}

/// The object that was compressed.
pub fn decompress<T: DeserializeOwned>(
    compressed: &[u8],
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    let text = lz4_flex::decompress_size_prepended(compressed)?;
    Ok(serde_json::from_slice(&text)?)
}
