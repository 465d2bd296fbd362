//! Tables for people, and objects cut down to their metadata.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Call;
use crate::builtin::{self, Kind};
use crate::go_numbers::without_whole_floats;
use crate::jsonpath;
use crate::registry::{self, Column};
use crate::status::{Failure, Result};

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// Where in the collection an answer is.
#[derive(Default)]
pub(super) struct Position {
    pub rv: String,
    pub token: Option<String>,
    pub remaining: Option<usize>,
}

impl Position {
    /// That of a single object.
    pub fn of(value: &Value) -> Self {
        let rv = value
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Self {
            rv: rv.to_owned(),
            ..Self::default()
        }
    }

    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        if !self.rv.is_empty() {
            map.insert("resourceVersion".into(), self.rv.clone().into());
        }
        if let Some(token) = &self.token {
            map.insert("continue".into(), token.clone().into());
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
        Value::Object(map)
    }
}

/// The metadata of an object alone.
pub(super) fn partial(value: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": value.get("metadata").cloned().unwrap_or_default(),
    })
}

/// Prints objects of one resource as rows.
pub(super) struct Printer<'a> {
    columns: Columns<'a>,
    include: &'a str,
    now: Timestamp,
}

#[derive(Clone, Copy)]
enum Columns<'a> {
    Builtin(&'static Kind),
    Custom(&'a [Column]),
    Scale(&'static [builtin::Column]),
}

impl<'a> Printer<'a> {
    pub fn new(call: &'a Call) -> Result<Self> {
        let include = call.query.get("includeObject").unwrap_or("Metadata");
        if !["Metadata", "Object", "None"].contains(&include) {
            return Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            )));
        }
        let scale = call.target.subresource == "scale";
        let columns = match call.resource.builtin {
            Some(_) if scale => Columns::Scale(builtin::SCALE),
            None if scale => Columns::Custom(registry::scale_columns()),
            Some(kind) => Columns::Builtin(kind),
            None => Columns::Custom(&call.version()?.columns),
        };
        Ok(Self {
            columns,
            include,
            now: call.state.clock.now(),
        })
    }

    pub fn table(&self, version: &str, values: &[Value], position: &Position) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": position.to_json(),
            "columnDefinitions": self.definitions(),
            "rows": values.iter().map(|value| self.row(value, version)).collect::<Vec<_>>(),
        })
    }

    /// A table without headings, as in the events of a watch after the first.
    pub fn rows(&self, version: &str, value: &Value, first: bool) -> Value {
        let mut table = self.table(version, std::slice::from_ref(value), &Position::of(value));
        if !first && let Some(map) = table.as_object_mut() {
            map.insert("columnDefinitions".into(), Value::Null);
        }
        table
    }

    fn definitions(&self) -> Vec<Value> {
        let define = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
        let known = |column: &builtin::Column| {
            let description = if column.name == "Name" { NAME_TEXT } else { "" };
            define(
                column.name,
                column.ty,
                column.format,
                description,
                column.priority,
            )
        };
        let custom = |c: &Column| define(&c.name, &c.kind, &c.format, &c.description, c.priority);
        match self.columns {
            Columns::Builtin(&Kind { columns, .. }) | Columns::Scale(columns) => {
                columns.iter().map(known).collect()
            }
            Columns::Custom(columns) => {
                let name = define("Name", "string", "name", NAME_TEXT, 0);
                std::iter::once(name).chain(columns.iter().map(custom)).collect()
            }
        }
    }

    fn row(&self, value: &Value, version: &str) -> Value {
        let printable = match self.columns {
            Columns::Builtin(kind) => kind.printable(value),
            Columns::Custom(_) | Columns::Scale(_) => Cow::Borrowed(value),
        };
        let cells: Vec<Value> = match self.columns {
            Columns::Builtin(&Kind { columns, .. }) | Columns::Scale(columns) => columns
                .iter()
                .map(|column| (column.cell)(&printable, self.now))
                .collect(),
            Columns::Custom(columns) => {
                let name = value.pointer("/metadata/name").cloned();
                std::iter::once(name.unwrap_or_else(|| "".into()))
                    .chain(columns.iter().map(|column| self.cell(value, column)))
                    .collect()
            }
        };
        let mut row = json!({ "cells": cells });
        if let (Columns::Builtin(kind), Some(map)) = (self.columns, row.as_object_mut()) {
            map.extend(
                kind.row_conditions(value)
                    .map(|said| ("conditions".to_owned(), said)),
            );
        }
        let object = match self.include {
            "None" => Some(Value::Null),
            "Object" => Some(value.clone()),
            _ => Some(partial(&printable, version)),
        };
        if let (Some(object), Some(map)) = (object, row.as_object_mut()) {
            map.insert("object".into(), object);
        }
        row
    }

    fn cell(&self, value: &Value, column: &Column) -> Value {
        let found = jsonpath::find(value, &column.path);
        let Some(first) = found.first() else {
            return Value::Null;
        };
        match column.kind.as_str() {
            "integer" => {
                let cut = || format!("{:.0}", first.as_f64()?.trunc()).parse().ok();
                first.as_i64().or_else(cut).map_or(Value::Null, Value::from)
            }
            "number" => first
                .as_f64()
                .map_or(Value::Null, |number| without_whole_floats(json!(number))),
            "boolean" => first.as_bool().map_or(Value::Null, Value::from),
            "date" => crate::builtin::age(first.as_str(), self.now).into(),
            // Of several values the first alone is shown.
            _ => match first {
                Value::String(text) => text.as_str().into(),
                Value::Null => "<no value>".into(),
                other => other.to_string().into(),
            },
        }
    }
}
