//! What stands for something else in a transcript.

use std::collections::HashMap;

use serde_json::Value;

pub type Values = HashMap<String, String>;

/// A certificate signing request as its object carries it.
pub fn signing_request(groups: &[&str]) -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "alice");
    for group in groups {
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, *group);
    }
    let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
    base64::engine::general_purpose::STANDARD.encode(pem.replace("\r\n", "\n"))
}

/// A saved text in other spellings: `${name:bits}` ends in the next letter of base64, so that where the last letter has bits
/// that nobody reads it says the same, and `${name:cut}` lacks the last letter.
pub fn spelled(name: &str, text: &str) -> Option<[(String, String); 2]> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (start, last) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let next = LETTERS.as_bytes()[(LETTERS.find(last)? + 1) % LETTERS.len()];
    Some([
        (format!("{name}:bits"), format!("{start}{}", char::from(next))),
        (format!("{name}:cut"), start.to_owned()),
    ])
}

/// What a saved text says in base64: `${name:read}`.
pub fn read(name: &str, text: &str) -> Option<(String, String)> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    Some((format!("{name}:read"), String::from_utf8(bytes).ok()?))
}

pub fn fill(text: &str, values: &Values) -> String {
    let mut out = text.to_owned();
    for (name, value) in values {
        out = out.replace(&format!("${{{name}}}"), value);
    }
    out
}

/// `"${zeros:3}"` is `[0,0,0]`.
pub fn with_zeros(mut body: String) -> String {
    const START: &str = "\"${zeros:";
    while let Some(start) = body.find(START) {
        let digits = start + START.len();
        let end = digits + body[digits..].find('}').expect("an end");
        let count: usize = body[digits..end].parse().expect("a number");
        let list = Value::from(vec![0; count]).to_string();
        body.replace_range(start..end + 2, &list);
    }
    body
}
