//! Pruning: fields that the schema does not know are dropped, and named for `fieldValidation`.

use std::fmt::Write as _;

use serde_json::Value;

use super::node::{Additional, Arena, Node, NodeId};
use super::{Schema, embedded, meta};

/// How many bytes the paths of dropped fields may have; what is dropped beyond that is not named.
const NAMED: usize = 1 << 20;
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Drops what the schema does not know and answers the dropped paths, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut walk = Walk {
            arena: &self.arena,
            path: String::new(),
            dropped: Vec::new(),
            noted: 0,
            embedded: false,
        };
        walk.prune(object, Some(self.root), !self.typed);
        // The metadata of custom resources passes through a typed structure too.
        if !self.typed
            && let Some(metadata) = object.get_mut("metadata").filter(|m| m.is_object())
        {
            walk.dropped.append(&mut metadata_form(metadata, "metadata"));
        }
        walk.dropped.sort();
        let mut dropped = walk.dropped;
        if walk.embedded {
            dropped.extend(embedded::settle(self, object));
        }
        dropped
    }

    /// Removes nulls that the schema does not allow and no default will replace.
    pub(crate) fn prune_nulls(&self, object: &mut Value) {
        prune_nulls(&self.arena, object, Some(self.root));
    }
}

/// Gives metadata the form of metadata, and answers what had to be dropped.
pub(super) fn metadata_form(metadata: &mut Value, path: &str) -> Vec<String> {
    let schema = meta::typed();
    let mut walk = Walk {
        arena: &schema.arena,
        path: path.to_owned(),
        dropped: Vec::new(),
        noted: 0,
        embedded: false,
    };
    walk.prune(metadata, Some(schema.root), false);
    schema.normalize(metadata);
    walk.dropped
}

struct Walk<'a> {
    arena: &'a Arena,
    path: String,
    dropped: Vec<String>,
    /// How many bytes these have.
    noted: usize,
    /// Whether there are objects inside of the object.
    embedded: bool,
}

impl Walk<'_> {
    fn prune(&mut self, value: &mut Value, id: Option<NodeId>, root: bool) {
        let node = id.map(|id| self.arena.get(id));
        if let Some(node) = node.filter(|n| n.preserve_unknown) {
            self.skip(value, node, root);
            return;
        }
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                let mut unknown = Vec::new();
                for (name, child) in map.iter_mut() {
                    let meta = META.contains(&name.as_str());
                    let embedded = node.is_some_and(|n| n.embedded_resource);
                    self.embedded |= embedded;
                    if meta && (root || embedded) {
                        continue;
                    }
                    let next = node.map(|node| (node.property(name), node.additional));
                    let schema = match next {
                        Some((Some(id), _) | (None, Additional::Schema(id))) => Some(id),
                        Some((None, Additional::Anything)) => None,
                        _ => {
                            unknown.push(name.clone());
                            continue;
                        }
                    };
                    self.push(name);
                    self.prune(child, schema, false);
                    self.path.truncate(length);
                }
                for name in unknown {
                    self.note(&name);
                    map.remove(&name);
                }
            }
            Value::Array(list) => {
                let items = node.and_then(|n| n.items);
                for (i, item) in list.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{i}]");
                    self.prune(item, items, false);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn skip(&mut self, value: &mut Value, node: &Node, root: bool) {
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                self.embedded |= node.embedded_resource;
                for (name, child) in map.iter_mut() {
                    if (root || node.embedded_resource) && META.contains(&name.as_str()) {
                        continue;
                    }
                    if let Some(id) = node.field(name) {
                        self.push(name);
                        self.prune(child, Some(id), false);
                        self.path.truncate(length);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                let items = self.arena.get(items);
                for (i, item) in list.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{i}]");
                    self.skip(item, items, false);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Remembers where something was dropped. A field far below long names has a long path, and there may be many.
    fn note(&mut self, name: &str) {
        let length = self.path.len();
        self.push(name);
        self.noted += self.path.len();
        if self.noted <= NAMED {
            self.dropped.push(self.path.clone());
        }
        self.path.truncate(length);
    }

    fn push(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

fn prune_nulls(arena: &Arena, value: &mut Value, id: Option<NodeId>) {
    let node = id.map(|id| arena.get(id));
    match value {
        Value::Object(map) => map.retain(|name, child| {
            let id = node.and_then(|n| n.field(name));
            if child.is_null()
                && id.is_some_and(|id| !arena.get(id).nullable && arena.get(id).default.is_none())
            {
                return false;
            }
            prune_nulls(arena, child, id);
            true
        }),
        Value::Array(list) => {
            for item in list {
                prune_nulls(arena, item, node.and_then(|n| n.items));
            }
        }
        _ => {}
    }
}
