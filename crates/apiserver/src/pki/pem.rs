//! PEM, as Go reads it. Who approves a request reads it with other tools: all must find the same block.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// Something between a line that begins it and one that ends it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub label: Vec<u8>,
    pub has_headers: bool,
    pub content: Vec<u8>,
}

/// All blocks of a text, whatever stands between them. What only looks like one is passed over.
pub(crate) fn blocks(text: &[u8]) -> impl Iterator<Item = Block> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    std::iter::from_fn(move || {
        // The lines since the last that begins a block, and what that one calls it.
        let mut open: Option<(&[u8], Vec<&[u8]>)> = None;
        loop {
            let line = lines.next()?;
            if let Some(rest) = line.strip_prefix(BEGIN) {
                open = rest.strip_suffix(DASHES).map(|label| (label, Vec::new()));
            } else if let Some(rest) = line.strip_prefix(END) {
                if let Some((label, inside)) = open.take()
                    && rest.strip_suffix(DASHES) == Some(label)
                    && let Some(block) = block(label, &inside)
                {
                    return Some(block);
                }
            } else if let Some((_, inside)) = &mut open {
                inside.push(line);
            }
        }
    })
}

fn block(label: &[u8], lines: &[&[u8]]) -> Option<Block> {
    let headers = lines.iter().take_while(|line| line.contains(&b':')).count();
    let letters = lines.get(headers..)?.concat();
    let letters: Vec<u8> = letters
        .into_iter()
        .filter(|letter| !matches!(letter, b' ' | b'\t' | b'\r'))
        .collect();
    Some(Block {
        label: label.to_vec(),
        has_headers: headers > 0,
        content: STANDARD.decode(letters).ok()?,
    })
}

/// A block as text.
pub(crate) fn written(label: &str, content: &[u8]) -> String {
    let mut letters = String::new();
    for (index, letter) in STANDARD.encode(content).chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            letters.push('\n');
        }
        letters.push(letter);
    }
    format!("-----BEGIN {label}-----\n{letters}\n-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, Vec<u8>)> {
        let text_of = |label: Vec<u8>| String::from_utf8(label).unwrap();
        blocks(text.as_bytes())
            .map(|block| (text_of(block.label), block.content))
            .collect()
    }

    #[test]
    fn what_is_a_block() {
        let hello = vec![("A B".to_owned(), b"hello".to_vec())];
        for good in [
            "-----BEGIN A B-----\naGVsbG8=\n-----END A B-----\n",
            "-----BEGIN A B-----\r\naGVs\r\nbG8=\r\n-----END A B-----",
            "text\n-----BEGIN A B-----  \nKey: value\n\n  aGVs \t\n bG8=\n-----END A B----- \nmore",
            // The last that begins before one ends.
            "-----BEGIN A-----\n-----BEGIN A B-----\naGVsbG8=\n-----END A B-----\n",
            // What cannot be read is passed over.
            "-----BEGIN A B-----\n!\n-----END A B-----\n-----BEGIN A B-----\naGVsbG8=\n-----END A B-----\n",
        ] {
            assert_eq!(found(good), hello, "{good}");
        }
        for bad in [
            "",
            "aGVsbG8=",
            "-----BEGIN A B-----\naGVsbG8=\n",
            "-----BEGIN A B----- x\naGVsbG8=\n-----END A B-----\n",
            "-----BEGIN A B-----\naGVsbG8=\n-----END A-----\n",
            "-----BEGIN A B-----\naGVsbG8=\n-----END A B----- x\n",
            " -----BEGIN A B-----\naGVsbG8=\n-----END A B-----\n",
            "-----BEGIN A B-----\naGVsbG8=x\n-----END A B-----\n",
        ] {
            assert_eq!(found(bad), [], "{bad}");
        }
        let two = written("A", b"a") + &written("B", &[7; 100]);
        assert_eq!(
            found(&two),
            [("A".to_owned(), b"a".to_vec()), ("B".to_owned(), vec![7; 100])]
        );
    }
}
