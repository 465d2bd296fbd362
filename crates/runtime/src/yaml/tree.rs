//! Builds values from the parser's events.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::{Aliases, scalar};

/// How deep values may be nested.
const MAX_DEPTH: usize = 100;

const YAML: &str = "tag:yaml.org,2002:";

/// Every document of the stream, empty ones included as null.
pub fn documents(text: &str, aliases: &mut Aliases) -> Result<Vec<Value>, String> {
    let mut builder = Builder {
        documents: Vec::new(),
        open: Vec::new(),
        anchors: HashMap::new(),
        aliases,
    };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| error.to_string())?;
        builder
            .event(event)
            .map_err(|reason| format!("line {}: {reason}", span.start.line()))?;
    }
    Ok(builder.documents)
}

struct Builder<'a> {
    documents: Vec<Value>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Value, usize)>,
    aliases: &'a mut Aliases,
}

/// A collection that is not complete.
struct Open {
    anchor: usize,
    /// How large it is so far.
    weight: usize,
    items: Items,
}

enum Items {
    List(Vec<Value>),
    Map {
        entries: Map<String, Value>,
        key: Option<Key>,
        /// What `<<` brings; it overrides nothing.
        merged: Vec<Map<String, Value>>,
    },
}

enum Key {
    Name(String),
    Merge,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.documents.push(Value::Null);
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if self.expects_key() {
                    let key = key(&text, plain, tag.as_deref())?;
                    return self.key(key);
                }
                let weight = 1 + text.len() / 64;
                let value = value(&text, plain, tag.as_deref())?;
                self.add(value, weight, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(anchor, Items::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.open(
                anchor,
                Items::Map {
                    entries: Map::new(),
                    key: None,
                    merged: Vec::new(),
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = self.open.pop() else {
                    return Ok(());
                };
                let value = match done.items {
                    Items::List(items) => Value::Array(items),
                    Items::Map {
                        mut entries, merged, ..
                    } => {
                        for (key, value) in merged.into_iter().flatten() {
                            entries.entry(key).or_insert(value);
                        }
                        Value::Object(entries)
                    }
                };
                self.add(value, done.weight + 1, done.anchor)
            }
            Event::Alias(anchor) => {
                if self.expects_key() {
                    return Err("an alias is the key of a map".into());
                }
                let Some((value, weight)) = self.anchors.get(&anchor) else {
                    return Err("an alias stands inside of what it stands for".into());
                };
                let (value, weight) = (value.clone(), *weight);
                self.copied(weight)?;
                self.add(value, weight, 0)
            }
            _ => Ok(()),
        }
    }

    fn copied(&mut self, weight: usize) -> Result<(), String> {
        let left = self.aliases.0.checked_sub(weight);
        self.aliases.0 = left.ok_or("its anchors and aliases stand for too much")?;
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                items: Items::Map { key: None, .. },
                ..
            })
        )
    }

    fn open(&mut self, anchor: usize, items: Items) -> Result<(), String> {
        if self.expects_key() {
            return Err("the key of a map is no scalar".into());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("values are nested more than {MAX_DEPTH} deep"));
        }
        self.open.push(Open {
            anchor,
            weight: 0,
            items,
        });
        Ok(())
    }

    fn key(&mut self, name: Key) -> Result<(), String> {
        if let Some(Open {
            items: Items::Map { key, entries, .. },
            ..
        }) = self.open.last_mut()
        {
            // One of two values would be lost without a word.
            if let Key::Name(name) = &name
                && entries.contains_key(name)
            {
                return Err("a key is twice in one map".into());
            }
            *key = Some(name);
        }
        Ok(())
    }

    fn add(&mut self, value: Value, weight: usize, anchor: usize) -> Result<(), String> {
        if anchor != 0 {
            // Each of many anchors around one large value is a copy of it.
            self.copied(weight)?;
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        let Some(open) = self.open.last_mut() else {
            if let Some(document) = self.documents.last_mut() {
                *document = value;
            }
            return Ok(());
        };
        open.weight = open.weight.saturating_add(weight);
        match &mut open.items {
            Items::List(items) => items.push(value),
            Items::Map { entries, key, merged } => match key.take() {
                Some(Key::Name(name)) => {
                    entries.insert(name, value);
                }
                Some(Key::Merge) => merge(merged, value)?,
                None => return Err("a value has no key".into()),
            },
        }
        Ok(())
    }
}

fn merge(into: &mut Vec<Map<String, Value>>, value: Value) -> Result<(), String> {
    match value {
        Value::Object(map) => into.push(map),
        Value::Array(items) => {
            for item in items {
                let Value::Object(map) = item else {
                    return Err("what is merged is no map".into());
                };
                into.push(map);
            }
        }
        _ => return Err("what is merged is no map".into()),
    }
    Ok(())
}

fn value(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        None if plain => scalar::plain(text),
        None => Ok(text.into()),
        Some(tag) => match tag.suffix_in_namespace(YAML) {
            Some(name) => scalar::tagged(&name, text),
            None => Ok(text.into()),
        },
    }
}

fn key(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Key, String> {
    if tag.is_some() || !plain {
        return Ok(Key::Name(text.to_owned()));
    }
    if text == "<<" {
        return Ok(Key::Merge);
    }
    scalar::key(text).map(Key::Name)
}
