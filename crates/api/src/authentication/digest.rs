//! A digest of what an account's Secret must hold. The agent reports the one it wrote; the hub compares.

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};

use super::{KEY_CA, KEY_TOKEN, LABEL_MANAGED};

/// The keys that an agent writes; others in the same Secret are not its business.
pub const KEYS: [&str; 6] = [KEY_TOKEN, KEY_CA, "kubeconfig", "name", "server", "config"];

/// The digest of the parts that an agent writes: type, keys, label, and the owner's uid.
pub fn of(secret: &Secret) -> String {
    let mut hash = Sha256::new();
    let mut part = |name: &str, value: &[u8]| {
        hash.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(name);
        hash.update(u64::try_from(value.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(value);
    };
    part("type", secret.type_.as_deref().unwrap_or("Opaque").as_bytes());
    let label = secret
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(LABEL_MANAGED));
    part("label", label.map_or("", String::as_str).as_bytes());
    for owner in secret.metadata.owner_references.iter().flatten() {
        part("owner", owner.uid.as_bytes());
    }
    for key in KEYS {
        if let Some(value) = secret.data.as_ref().and_then(|data| data.get(key)) {
            part(key, &value.0);
        }
    }
    let mut text = String::from("sha256:");
    for byte in hash.finalize() {
        use std::fmt::Write;
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn changes_with_every_part_and_with_nothing_else() {
        let mut secret = Secret {
            type_: Some("Opaque".into()),
            data: Some([(KEY_TOKEN.to_owned(), ByteString(b"a".to_vec()))].into()),
            ..Secret::default()
        };
        let first = of(&secret);
        secret.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        secret.metadata.labels = Some([("theirs".to_owned(), "b".to_owned())].into());
        if let Some(data) = &mut secret.data {
            data.insert("other".into(), ByteString(b"x".to_vec()));
        }
        assert_eq!(of(&secret), first, "what others add is no change");
        let mut retyped = secret.clone();
        retyped.type_ = Some("kubernetes.io/tls".into());
        assert_ne!(of(&retyped), first);
        let mut labelled = secret.clone();
        labelled.metadata.labels = Some([(LABEL_MANAGED.to_owned(), "true".to_owned())].into());
        assert_ne!(of(&labelled), first);
        let mut edited = secret;
        edited.data = Some([(KEY_CA.to_owned(), ByteString(b"a".to_vec()))].into());
        assert_ne!(of(&edited), first);
    }
}
