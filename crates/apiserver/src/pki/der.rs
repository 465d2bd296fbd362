//! Elements of DER: a tag, the length of the content, the content.

/// An element with this content.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut out = vec![tag];
    match (digits.as_slice(), u8::try_from(digits.len())) {
        ([], _) => out.push(0),
        ([short], _) if *short < 0x80 => out.push(*short),
        (long, Ok(count)) => {
            out.push(0x80 | count);
            out.extend_from_slice(long);
        }
        (_, Err(_)) => {}
    }
    out.extend_from_slice(content);
    out
}

/// How many bytes stand before the content of the first element, and how long that is.
fn extent(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.get(1)?;
    if first < 0x80 {
        return Some((2, first.into()));
    }
    let count = usize::from(first & 0x7f);
    let digits = bytes.get(2..2 + count).filter(|_| count <= 4)?;
    let length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
    Some((2 + count, length))
}

/// What is in the first element.
pub(crate) fn content(bytes: &[u8]) -> Option<&[u8]> {
    let (start, length) = extent(bytes)?;
    bytes.get(start..start + length)
}

/// The elements that stand one after another, each with its tag and length.
pub(crate) fn elements(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (start, length) = extent(bytes)?;
        let (first, rest) = bytes.split_at_checked(start + length)?;
        all.push(first);
        bytes = rest;
    }
    Some(all)
}
