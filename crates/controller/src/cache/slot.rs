//! How one object is kept.

use std::sync::Arc;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    compressed::{compress, decompress},
    index_key,
};
use crate::Error;

/// One object.
pub struct Slot<V> {
    pub seen: Seen,
    pub stored: Stored<V>,
    /// Why it does not parse as a whole; what is stored is then the part that does.
    pub problem: Option<Box<str>>,
}

impl<V> Slot<V> {
    /// The object, if it parses as a whole.
    pub fn value(&self, codec: &Codec<V>) -> Option<Arc<V>> {
        self.problem.is_none().then(|| self.stored.value(codec)).flatten()
    }
}

/// An object, whole or compressed.
pub enum Stored<V> {
    Whole(Arc<V>),
    Compressed(Box<[u8]>),
}

impl<V> Stored<V> {
    /// The object. What was written as JSON can be read again.
    pub fn value(&self, codec: &Codec<V>) -> Option<Arc<V>> {
        match (self, codec) {
            (Self::Whole(value), _) => Some(value.clone()),
            (Self::Compressed(bytes), Codec::Compressed { decompress, .. }) => {
                decompress(bytes).map(Arc::new)
            }
            (Self::Compressed(_), Codec::Whole) => None,
        }
    }
}

/// Whether values are kept whole, or how they are compressed.
pub enum Codec<V> {
    Whole,
    Compressed {
        compress: fn(&V) -> Result<Box<[u8]>, serde_json::Error>,
        decompress: fn(&[u8]) -> Option<V>,
    },
}

impl<V> Codec<V> {
    pub fn compressed() -> Self
    where
        V: Serialize + DeserializeOwned,
    {
        Self::Compressed {
            compress: compress::<V>,
            decompress: |bytes| decompress(bytes).ok(),
        }
    }

    /// What to keep of a value, and the value itself.
    pub fn store(&self, value: V) -> Result<(Stored<V>, Arc<V>), Error> {
        match self {
            Self::Whole => {
                let value = Arc::new(value);
                Ok((Stored::Whole(value.clone()), value))
            }
            Self::Compressed { compress, .. } => {
                let bytes = compress(&value)
                    .map_err(|error| Error::Invalid(format!("cannot be written as JSON: {error}")))?;
                Ok((Stored::Compressed(bytes), Arc::new(value)))
            }
        }
    }
}

/// What was seen of an object's metadata.
#[derive(Clone, Copy)]
pub struct Seen {
    /// A hash of the uid: it is only compared.
    uid: u64,
    version: Version,
    generation: Option<i64>,
    deleting: bool,
    /// When this generation was first seen.
    pub since: Instant,
}

/// A resource version. Servers count upwards, so a larger number is newer; a version that is no number is compared only
/// for equality.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Number(u64),
    Other(u64),
}

impl Seen {
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        Self {
            uid: index_key(meta.uid.as_deref()),
            version: version
                .parse()
                .map_or_else(|_| Version::Other(index_key(version)), Version::Number),
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            since: Instant::now(),
        }
    }

    /// Whether this is the same object, in whatever version.
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// Whether this is the same object in the same or a newer version.
    pub fn is_as_new_as(&self, other: &Self) -> bool {
        self.uid == other.uid
            && match (self.version, other.version) {
                (Version::Number(known), Version::Number(other)) => known >= other,
                (known, other) => known == other,
            }
    }

    /// Whether what the object's owner asks for may differ.
    pub fn input_differs(&self, other: &Self) -> bool {
        self.uid != other.uid
            || self.deleting != other.deleting
            || self.generation != other.generation
            || (self.generation.is_none() && self.version != other.version)
    }

    /// The same, seen after `before`: the generation may have been seen then already.
    pub fn after(self, before: &Self) -> Self {
        let same = self.uid == before.uid && self.generation == before.generation;
        Self {
            since: if same { before.since } else { self.since },
            ..self
        }
    }
}
