//! Names of users in certificates: who they are, and which groups they are in.

use x509_parser::asn1_rs::Tag;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The groups of a subject. None if one cannot be read: nobody can say what it is, then.
pub(crate) fn organizations(subject: &X509Name<'_>) -> Option<Vec<String>> {
    subject.iter_organization().map(text).collect::<Option<Vec<_>>>()
}

/// The name of a subject, empty if it has none: of several, the last. None if it cannot be read.
pub(crate) fn common_name(subject: &X509Name<'_>) -> Option<String> {
    let all: Vec<String> = subject.iter_common_name().map(text).collect::<Option<_>>()?;
    Some(all.into_iter().next_back().unwrap_or_default())
}

/// What an attribute says, in each of the spellings that a program may choose.
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let bytes = attribute.as_slice();
    match attribute.attr_value().tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        // Latin-1, near enough.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        _ => None,
    }
}
