//! Pure: the size of a status in the hub's store, and how its messages are truncated to fit. A work that is too large to
//! be stored gets no status at all, and then none of its errors can be read.

use std::io::{self, Write};

use serde::Serialize;
use writ_api::work::ManifestWorkStatus;

/// The largest object that the hub stores, in bytes.
const MAX_OBJECT: usize = 1536 * 1024;

/// The bytes kept free for the bookkeeping of the server, and for the conditions of the work as a whole.
const RESERVED: usize = 96 * 1024;

/// The most bytes for the messages of all manifests, and those that they get however large the rest is.
const MAX_MESSAGES: usize = 400 * 1024;
const MIN_MESSAGES: usize = 16 * 1024;

/// The bytes of an escaped character, such as `\u003c`.
const ESCAPED: usize = 6;

/// The bytes of a text besides its characters.
const QUOTES: usize = 2;

/// The size of a value in the store of the hub, in bytes, or a few more.
pub fn stored_size(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Counting cannot fail: what cannot be written as JSON could not be sent either.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Counts the bytes that are written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.iter().copied().map(json_cost).sum::<usize>();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes that a byte of JSON takes. The server escapes more than JSON needs: what could be HTML, and two of the
/// characters that begin with `E2`.
fn json_cost(byte: u8) -> usize {
    match byte {
        b'<' | b'>' | b'&' => ESCAPED,
        0xe2 => ESCAPED - 2,
        _ => 1,
    }
}

/// The bytes that a byte of a text takes once the text is JSON.
fn text_cost(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..b' ' => ESCAPED,
        byte => json_cost(byte),
    }
}

/// The size of a text as JSON.
fn text_size(text: &str) -> usize {
    QUOTES + text.bytes().map(text_cost).sum::<usize>()
}

/// Truncates the messages of manifests until the status fits beside the rest of the work, of this size: the longest
/// first, and all of these to the same length. Short messages stay whole.
pub fn fit_messages(status: &mut ManifestWorkStatus, rest_size: usize) {
    let all = stored_size(status);
    let messages = || {
        let manifests = status.resource_status.manifests.iter();
        manifests.flat_map(|manifest| manifest.conditions.iter().map(|condition| &condition.message))
    };
    let sizes: Vec<usize> = messages().map(|message| text_size(message)).collect();
    let without_messages = all.saturating_sub(sizes.iter().sum());
    let free = MAX_OBJECT.saturating_sub(RESERVED + without_messages + rest_size);
    let Some(max_size) = size_for_all_to_fit(sizes, free.clamp(MIN_MESSAGES, MAX_MESSAGES)) else {
        return;
    };
    for manifest in &mut status.resource_status.manifests {
        for condition in &mut manifest.conditions {
            truncate(&mut condition.message, max_size);
        }
    }
}

/// The largest size so that all fit into `available`; `None` if they fit as they are.
fn size_for_all_to_fit(mut sizes: Vec<usize>, available: usize) -> Option<usize> {
    sizes.sort_unstable();
    let (mut left, count) = (available, sizes.len());
    for (before, size) in sizes.into_iter().enumerate() {
        let share = left / (count - before);
        if size > share {
            return Some(share);
        }
        left -= size;
    }
    None
}

/// Truncates a text to this size as JSON, with an ellipsis at its end.
fn truncate(text: &mut String, max_size: usize) {
    if text.len() * ESCAPED + QUOTES <= max_size || text_size(text) <= max_size {
        return;
    }
    let mut left = max_size.saturating_sub(QUOTES + ESCAPED);
    let over = text.bytes().position(|byte| {
        let (cost, before) = (text_cost(byte), left);
        left = left.saturating_sub(cost);
        cost > before
    });
    let mut end = over.unwrap_or(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push('…');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(messages: &[String]) -> ManifestWorkStatus {
        let manifests: Vec<_> = messages
            .iter()
            .map(|message| {
                json!({"resourceMeta": {"ordinal": 0}, "statusFeedback": {}, "conditions": [
                    {"type": "Applied", "status": "False", "reason": "AppliedManifestFailed", "message": message,
                     "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]})
            })
            .collect();
        serde_json::from_value(json!({"resourceStatus": {"manifests": manifests}})).unwrap()
    }

    #[test]
    fn long_messages_are_truncated_alike_and_short_ones_stay() {
        let mut messages = vec!["x".repeat(32 * 1024); 1000];
        messages[3] = "short".into();
        messages[4] = "<\"ä\n>".repeat(5000);
        let mut cut = status(&messages);
        fit_messages(&mut cut, 512 * 1024);
        let said = |at: usize| cut.resource_status.manifests[at].conditions[0].message.as_str();
        assert_eq!(said(3), "short");
        assert_eq!(said(0), said(999));
        assert!((350..500).contains(&said(0).len()), "{}", said(0).len());
        // Characters that the server escapes count as their escapes.
        assert!(said(4).ends_with('…') && said(4).len() < said(0).len());
        assert!(stored_size(&cut) + 512 * 1024 < MAX_OBJECT);
        // A truncated message stays as it is.
        let mut again = cut.clone();
        fit_messages(&mut again, 512 * 1024);
        assert_eq!(again, cut);
    }

    #[test]
    fn messages_that_fit_stay_whole() {
        let messages = vec!["x".repeat(1000); 100];
        let mut whole = status(&messages);
        fit_messages(&mut whole, 512 * 1024);
        assert_eq!(whole, status(&messages));
        // However large the rest is, each message keeps a beginning.
        let mut little = status(&messages);
        fit_messages(&mut little, 2 * MAX_OBJECT);
        let said = &little.resource_status.manifests[0].conditions[0].message;
        assert!((100..200).contains(&said.len()), "{said}");
    }

    #[test]
    fn text_size_is_the_size_of_its_json() {
        for text in [
            "",
            "plain",
            "<a href=\"x\">&\\",
            "ä\n\r\t\u{1}\u{8}\u{c}\u{1f}\u{7f}…",
        ] {
            assert_eq!(text_size(text), stored_size(&text), "{text:?}");
        }
    }

    #[test]
    fn largest_messages_are_truncated_first() {
        for (sizes, available, wanted) in [
            (vec![], 0, None),
            (vec![5, 5], 10, None),
            (vec![1, 9, 9], 11, Some(5)),
            (vec![9, 3, 9, 3], 18, Some(6)),
            (vec![1, 1], 1, Some(0)),
        ] {
            assert_eq!(size_for_all_to_fit(sizes.clone(), available), wanted, "{sizes:?}");
        }
    }
}
