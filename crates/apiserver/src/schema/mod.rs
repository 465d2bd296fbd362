//! Schemas: compiled once, shared by everyone who serves the same kind.
//!
//! A [`Schema`] prunes, defaults and validates objects the way the real server does for custom
//! resources, and tells server-side apply and strategic merge how lists and maps are merged.

mod amounts;
mod cause;
mod cel;
mod default;
mod embedded;
mod formats;
mod lists;
pub mod meta;
pub mod names;
mod node;
mod normalize;
mod nulls;
mod prune;
mod regexes;
mod structural;
#[cfg(test)]
mod tests;
mod unchanged;
mod validate;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use serde_json::Value;
use sha2::{Digest, Sha256};

pub use cause::{Cause, Reason, child, go_float, index, invalid_message, key, quote};
pub(crate) use cel::{
    AUTHORIZER, AskedResource, Budget, Failure, OUT_OF_BUDGET, PER_CONDITIONS, PER_OBJECT, Scope, Size, Ty,
    authorizer_value, reserved, why_lacking,
};
pub use cel::{Activation, Authorize, Expression};
pub(crate) use node::{Additional, Arena, ListType, Node, NodeId, Type};
pub use structural::validate_structural;
pub use validate::Verdict;

use node::Builder;

/// A compiled schema. Clones share the compiled form.
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) arena: Arc<Arena>,
    pub(crate) root: NodeId,
    /// A built-in type: the schema says everything, `metadata` included.
    pub(crate) typed: bool,
}

type Compiled = HashMap<[u8; 32], (Weak<Arena>, NodeId)>;

static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

impl Schema {
    /// Compiles an `openAPIV3Schema`. Two equal schemas share one compiled form.
    pub fn compile(openapi: &Value) -> Result<Self, Vec<Cause>> {
        let digest: [u8; 32] = Sha256::digest(openapi.to_string().as_bytes()).into();
        let shared = COMPILED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&digest)
            .cloned();
        if let Some((arena, root)) = shared.and_then(|(arena, root)| Some((arena.upgrade()?, root))) {
            return Ok(Self {
                arena,
                root,
                typed: false,
            });
        }
        let mut arena = Arena::default();
        let mut builder = Builder {
            arena: &mut arena,
            resolve: &|_| None,
            problems: Vec::new(),
        };
        let root = builder.build(openapi, "openAPIV3Schema", 0);
        if !builder.problems.is_empty() {
            let causes = builder
                .problems
                .iter()
                .map(|(field, detail)| Cause::invalid_omitting_value(field.as_str(), detail));
            return Err(causes.collect());
        }
        let schema = Self {
            arena: Arc::new(arena),
            root,
            typed: false,
        };
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.retain(|_, (arena, _)| arena.strong_count() > 0);
        compiled.insert(digest, (Arc::downgrade(&schema.arena), root));
        Ok(schema)
    }

    /// Compiles named definitions that refer to each other by `#/components/schemas/NAME`.
    pub(crate) fn compile_definitions(definitions: &serde_json::Map<String, Value>) -> HashMap<String, Self> {
        let mut arena = Arena::default();
        let ids: HashMap<&str, NodeId> = definitions
            .keys()
            .map(|name| (name.as_str(), arena.reserve()))
            .collect();
        let resolve = |reference: &str| {
            let name = reference.rsplit('/').next().unwrap_or_default();
            Some((*ids.get(name)?, definitions.get(name)?))
        };
        for (name, definition) in definitions {
            let mut builder = Builder {
                arena: &mut arena,
                resolve: &resolve,
                problems: Vec::new(),
            };
            let node = builder.node(&with_own_topology(definition, definitions), name, 0);
            if let Some(id) = ids.get(name.as_str()) {
                arena.set(*id, node);
            }
        }
        let arena = Arc::new(arena);
        ids.iter()
            .map(|(name, root)| {
                (
                    (*name).to_owned(),
                    Self {
                        arena: Arc::clone(&arena),
                        root: *root,
                        typed: true,
                    },
                )
            })
            .collect()
    }

    /// A schema that knows nothing and keeps everything.
    pub fn anything() -> Self {
        static ANYTHING: LazyLock<Schema> = LazyLock::new(|| {
            let mut arena = Arena::default();
            let root = arena.reserve();
            let node = Node {
                ty: Type::Object,
                preserve_unknown: true,
                ..Node::default()
            };
            arena.set(root, node);
            Schema {
                arena: Arc::new(arena),
                root,
                typed: false,
            }
        });
        ANYTHING.clone()
    }

    pub(crate) fn root(&self) -> &Node {
        self.arena.get(self.root)
    }
}

/// A field may say of itself how it is owned: it then has a type of its own, otherwise as the one that it refers to.
fn with_own_topology<'a>(
    definition: &'a Value,
    definitions: &serde_json::Map<String, Value>,
) -> Cow<'a, Value> {
    const TOPOLOGY: &str = "x-kubernetes-map-type";
    let fields = definition.get("properties").and_then(Value::as_object);
    let own = |(name, field): (&String, &Value)| {
        let topology = field.get(TOPOLOGY)?.clone();
        let reference = field.get("$ref")?.as_str()?;
        let mut ty = definitions.get(reference.rsplit('/').next()?)?.clone();
        ty.as_object_mut()?.insert(TOPOLOGY.into(), topology);
        Some((name.clone(), ty))
    };
    let own: Vec<_> = fields.into_iter().flatten().filter_map(own).collect();
    if own.is_empty() {
        return Cow::Borrowed(definition);
    }
    let mut definition = definition.clone();
    if let Some(fields) = definition.get_mut("properties").and_then(Value::as_object_mut) {
        fields.extend(own);
    }
    Cow::Owned(definition)
}
