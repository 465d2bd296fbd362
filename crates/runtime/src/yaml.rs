//! YAML in and out, behind one door: the parser's crate may change, its callers need not.

use serde::{Serialize, de::DeserializeOwned};

use crate::Error;

/// Reads one document.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str(text).map_err(|e| unexpected(&e))
}

/// Reads every document of a stream; empty ones are left out.
pub fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    let all: Vec<Option<T>> = serde_saphyr::from_multiple(text).map_err(|e| unexpected(&e))?;
    Ok(all.into_iter().flatten().collect())
}

/// Only the first line of the parser's words: the rest quotes the document, which may be a Secret.
fn unexpected(error: &serde_saphyr::Error) -> Error {
    let text = error.to_string();
    Error::Invalid(format!(
        "not the YAML that is expected: {}",
        text.lines().next().unwrap_or_default()
    ))
}

/// Writes one document.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|e| Error::Invalid(format!("cannot be written as YAML: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_quote_the_document() {
        let error = from_str::<Vec<u8>>("a: 1\npassword: hunter2\nb: [")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("not the YAML that is expected") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
