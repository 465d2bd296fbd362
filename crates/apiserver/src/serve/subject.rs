//! Names in certificates.
//!
//! The library that makes certificates keeps one value of each kind in a name, so of a user's groups only the last would stay.
//! Here a certificate gets the name it is to have, as bytes, and is signed again.

use rcgen::SigningKey;

use crate::pki::{content, element, elements};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8: u8 = 0x0c;
const BITS: u8 = 0x03;
/// The object identifiers 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];
/// Where the subject is among the fields of what is signed.
const SUBJECT: usize = 5;

/// The name of a user in groups.
pub(super) fn name_of(user: &str, groups: &[String]) -> Vec<u8> {
    let part = |kind: [u8; 5], value: &str| {
        let pair = [kind.to_vec(), element(UTF8, value.as_bytes())].concat();
        element(SET, &element(SEQUENCE, &pair))
    };
    let mut parts: Vec<Vec<u8>> = groups.iter().map(|group| part(ORGANIZATION, group)).collect();
    parts.push(part(COMMON_NAME, user));
    element(SEQUENCE, &parts.concat())
}

/// A certificate with another subject, signed again. None if it cannot be taken apart.
pub(super) fn with_subject(
    certificate: &[u8],
    subject: &[u8],
    key: &impl SigningKey,
) -> Option<Result<Vec<u8>, rcgen::Error>> {
    let parts = elements(content(certificate)?)?;
    let [signed, algorithm, _] = parts.as_slice() else {
        return None;
    };
    let mut fields = elements(content(signed)?)?;
    *fields.get_mut(SUBJECT)? = subject;
    let signed = element(SEQUENCE, &fields.concat());
    Some(key.sign(&signed).map(|signature| {
        // No bits of the last byte are left over.
        let signature = element(BITS, &[&[0], signature.as_slice()].concat());
        element(
            SEQUENCE,
            &[signed.as_slice(), algorithm, signature.as_slice()].concat(),
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_all_groups() {
        // One with a length that takes two bytes.
        let long = "x".repeat(200);
        let groups = ["a", "b", &long, "ä"].map(str::to_owned);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let again = with_subject(made.der(), &name_of("alice", &groups), &key)
            .unwrap()
            .unwrap();
        let (rest, parsed) = x509_parser::parse_x509_certificate(&again).unwrap();
        assert!(rest.is_empty());
        let subject = parsed.subject();
        let found: Vec<&str> = subject.iter_organization().map(|o| o.as_str().unwrap()).collect();
        assert_eq!(found, groups);
        assert_eq!(subject.iter_common_name().next().unwrap().as_str(), Ok("alice"));
    }

    #[test]
    fn bytes_that_are_no_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0],
            &[0x30, 0xff, 1],
        ] {
            assert!(with_subject(bytes, &[], &key).is_none(), "{bytes:?}");
        }
    }
}
