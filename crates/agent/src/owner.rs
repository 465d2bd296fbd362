//! The owner of a work's objects, and what an owner reference on an object says.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sha2::{Digest as _, Sha256};
use writ_api::work::AppliedManifestWork;
use writ_runtime::segment;

/// The owner of a work's objects: its AppliedManifestWork.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The name of the AppliedManifestWork.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Owner {
    /// The reference on an object.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "work.open-cluster-management.io/v1".into(),
            kind: "AppliedManifestWork".into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        }
    }

    /// The field manager of strategy `Update`: one per work, so that works that share an object keep their own
    /// fields and their own owner reference.
    pub fn manager(&self) -> String {
        Self::manager_of(&self.name)
    }

    /// The same, from the name of an AppliedManifestWork that may not exist yet.
    pub fn manager_of(name: &str) -> String {
        let digest = hex_sha256(name.as_bytes());
        format!("work-agent-{}", digest.get(..10).unwrap_or_default())
    }
}

impl From<&AppliedManifestWork> for Owner {
    fn from(applied: &AppliedManifestWork) -> Self {
        Self {
            name: applied.metadata.name.clone().unwrap_or_default(),
            uid: applied.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

/// Whether a reference says that an object belongs to a work. Everyone who may write the object may write a reference,
/// and its name becomes part of a URL.
pub fn is_applied_work(reference: &OwnerReference) -> bool {
    reference.kind == "AppliedManifestWork"
        && segment::is_subdomain(&reference.name)
        && reference
            .api_version
            .starts_with("work.open-cluster-management.io/")
}

/// Whether a reference says that an object belongs to a NamespaceGrant.
pub fn is_grant(reference: &OwnerReference) -> bool {
    reference.kind == "NamespaceGrant"
        && segment::is_subdomain(&reference.name)
        && reference.api_version.starts_with("writ.dev/")
}

/// Whether a reference says that this agent wrote an object, for a work or for a grant that a work brought.
pub fn is_delivered(reference: &OwnerReference) -> bool {
    is_applied_work(reference) || is_grant(reference)
}

/// The hash by which AppliedManifestWorks name their hub: of its address, exactly as the kubeconfig spells it.
pub fn hub_hash(server: &str) -> String {
    hex_sha256(server.as_bytes())
}

/// The SHA-256 digest, in hexadecimal digits.
pub fn hex_sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
