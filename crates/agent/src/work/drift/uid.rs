//! Uids as 16 bytes: an agent keeps one for each object that it delivers.

use std::fmt;

/// The uid of an object. A uid in the usual form needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedUid(Result<[u8; 16], Box<str>>);

impl From<&str> for PackedUid {
    fn from(text: &str) -> Self {
        Self(packed(text).ok_or_else(|| text.into()))
    }
}

/// The bytes of a uid in the usual form: lower-case hexadecimal digits in five groups.
fn packed(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let uid = PackedUid(Ok(number.to_be_bytes()));
    (uid.to_string() == text).then(|| number.to_be_bytes())
}

impl fmt::Display for PackedUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match &self.0 {
            Ok(bytes) => bytes,
            Err(text) => return f.write_str(text),
        };
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_uid_prints_as_it_was_given() {
        for (text, packed) in [
            ("0c3f7a52-8f0e-4b7e-9d0a-00ff10a0b0c0", true),
            ("00000000-0000-0000-0000-000000000000", true),
            ("0C3F7A52-8f0e-4b7e-9d0a-00ff10a0b0c0", false),
            ("0c3f7a528f0e4b7e9d0a00ff10a0b0c0", false),
            ("0c3f7a52-8f0e-4b7e-9d0a-00ff10a0b0c01", false),
            ("+c3f7a52-8f0e-4b7e-9d0a-00ff10a0b0c0", false),
            ("u1", false),
            ("", false),
        ] {
            let uid = PackedUid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(uid.0.is_ok(), packed, "{text}");
        }
        assert_eq!(size_of::<PackedUid>(), 24);
    }
}
