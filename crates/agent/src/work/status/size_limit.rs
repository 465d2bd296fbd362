//! Pure: how much a status takes on the hub, and how its messages are made to fit. A work that is too large to be stored
//! gets no status at all, and then nobody can read any of its errors.

use std::io::{self, Write};

use serde::Serialize;
use writ_api::work::ManifestWorkStatus;

/// What the hub's store takes of one object.
const OBJECT: usize = 1536 * 1024;

/// What is kept free: for the bookkeeping of the server, and for what is said about the work as a whole afterwards.
const SPARE: usize = 96 * 1024;

/// How much the messages of all manifests may take, and how much they get however large the rest is.
const MOST: usize = 400 * 1024;
const LEAST: usize = 16 * 1024;

/// What a character becomes at most: the server writes some as `\u003c`.
const ESCAPED: usize = 6;

/// What a text takes besides its characters.
const QUOTES: usize = 2;

/// How many bytes a value takes in the store of the hub, or a few more.
pub fn stored(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Nothing here can fail: what cannot be written as JSON could not be sent either.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Counts what is written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.iter().copied().map(cost).sum::<usize>();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a byte of JSON takes. The server escapes more than is needed: what could be HTML, and two of the characters that
/// begin with `E2`.
fn cost(byte: u8) -> usize {
    match byte {
        b'<' | b'>' | b'&' => ESCAPED,
        0xe2 => ESCAPED - 2,
        _ => 1,
    }
}

/// What a byte of a text takes, which is not JSON yet.
fn cost_in_text(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..b' ' => ESCAPED,
        byte => cost(byte),
    }
}

/// What a text takes.
fn stored_text(text: &str) -> usize {
    QUOTES + text.bytes().map(cost_in_text).sum::<usize>()
}

/// Shortens the messages of manifests until the whole fits next to what else the object holds, in bytes: the longest first,
/// and all of these to the same length. What is short stays whole.
pub fn fit(status: &mut ManifestWorkStatus, others: usize) {
    let all = stored(status);
    let messages = || {
        let manifests = status.resource_status.manifests.iter();
        manifests.flat_map(|manifest| manifest.conditions.iter().map(|condition| &condition.message))
    };
    let sizes: Vec<usize> = messages().map(|message| stored_text(message)).collect();
    let rest = all.saturating_sub(sizes.iter().sum());
    let room = OBJECT.saturating_sub(SPARE + rest + others).clamp(LEAST, MOST);
    let Some(longest) = longest(sizes, room) else {
        return;
    };
    for manifest in &mut status.resource_status.manifests {
        for condition in &mut manifest.conditions {
            cut(&mut condition.message, longest);
        }
    }
}

/// How much the largest may have so that all fit; `None` if they do.
fn longest(mut sizes: Vec<usize>, room: usize) -> Option<usize> {
    sizes.sort_unstable();
    let (mut left, count) = (room, sizes.len());
    for (before, size) in sizes.into_iter().enumerate() {
        let share = left / (count - before);
        if size > share {
            return Some(share);
        }
        left -= size;
    }
    None
}

/// Cuts a text to what takes at most so many bytes, and says that it was cut.
fn cut(text: &mut String, most: usize) {
    if text.len() * ESCAPED + QUOTES <= most || stored_text(text) <= most {
        return;
    }
    let mut left = most.saturating_sub(QUOTES + ESCAPED);
    let over = text.bytes().position(|byte| {
        let (cost, before) = (cost_in_text(byte), left);
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
    fn what_is_short_stays_whole_and_the_rest_is_cut_alike() {
        let mut messages = vec!["x".repeat(32 * 1024); 1000];
        messages[3] = "short".into();
        messages[4] = "<\"ä\n>".repeat(5000);
        let mut cut = status(&messages);
        fit(&mut cut, 512 * 1024);
        let said = |at: usize| cut.resource_status.manifests[at].conditions[0].message.as_str();
        assert_eq!(said(3), "short");
        assert_eq!(said(0), said(999));
        assert!((350..500).contains(&said(0).len()), "{}", said(0).len());
        // What the server writes in more bytes counts as these.
        assert!(said(4).ends_with('…') && said(4).len() < said(0).len());
        assert!(stored(&cut) + 512 * 1024 < OBJECT);
        // What was cut before stays as it is.
        let mut again = cut.clone();
        fit(&mut again, 512 * 1024);
        assert_eq!(again, cut);
    }

    #[test]
    fn nothing_is_cut_while_there_is_room() {
        let messages = vec!["x".repeat(1000); 100];
        let mut whole = status(&messages);
        fit(&mut whole, 512 * 1024);
        assert_eq!(whole, status(&messages));
        // The less the rest leaves, the less is said; but something always is.
        let mut little = status(&messages);
        fit(&mut little, 2 * OBJECT);
        let said = &little.resource_status.manifests[0].conditions[0].message;
        assert!((100..200).contains(&said.len()), "{said}");
    }

    #[test]
    fn a_text_takes_what_its_json_takes() {
        for text in [
            "",
            "plain",
            "<a href=\"x\">&\\",
            "ä\n\r\t\u{1}\u{8}\u{c}\u{1f}\u{7f}…",
        ] {
            assert_eq!(stored_text(text), stored(&text), "{text:?}");
        }
    }

    #[test]
    fn the_largest_are_cut_first() {
        for (sizes, room, wanted) in [
            (vec![], 0, None),
            (vec![5, 5], 10, None),
            (vec![1, 9, 9], 11, Some(5)),
            (vec![9, 3, 9, 3], 18, Some(6)),
            (vec![1, 1], 1, Some(0)),
        ] {
            assert_eq!(longest(sizes.clone(), room), wanted, "{sizes:?}");
        }
    }
}
