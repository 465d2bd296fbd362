//! Compiled patterns, shared by every schema of the process: a thousand clusters with the same CRDs
//! hold each pattern once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use regex::Regex;

static CACHE: LazyLock<Mutex<HashMap<String, Weak<Regex>>>> = LazyLock::new(Mutex::default);

/// A pattern may not compile to more than this.
const SIZE_LIMIT: usize = 1 << 20;

/// The compiled pattern.
pub(super) fn get(pattern: &str) -> Result<Arc<Regex>, String> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = cache.get(pattern).and_then(Weak::upgrade) {
        return Ok(regex);
    }
    let regex = regex::RegexBuilder::new(pattern)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|e| e.to_string())?;
    let regex = Arc::new(regex);
    cache.retain(|_, held| held.strong_count() > 0);
    cache.insert(pattern.to_owned(), Arc::downgrade(&regex));
    Ok(regex)
}
