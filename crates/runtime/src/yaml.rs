//! YAML in and out, behind one door: the parser's crate may change, its callers need not.

use serde::{Serialize, de::DeserializeOwned};

use crate::Error;

/// Reads one document.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str(text).map_err(|e| Error::Invalid(format!("not the YAML that is expected: {e}")))
}

/// Reads every document of a stream; empty ones are left out.
pub fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    let all: Vec<Option<T>> = serde_saphyr::from_multiple(text)
        .map_err(|e| Error::Invalid(format!("not the YAML that is expected: {e}")))?;
    Ok(all.into_iter().flatten().collect())
}

/// Writes one document.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|e| Error::Invalid(format!("cannot be written as YAML: {e}")))
}
