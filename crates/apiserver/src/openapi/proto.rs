//! OpenAPI version 2 as the protobuf that `kubectl` asks for. The numbers are those of gnostic's `OpenAPIv2.proto`.

use serde_json::Value;

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in value.and_then(Value::as_array).into_iter().flatten() {
            self.text(field, Some(text));
        }
    }

    fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value.and_then(Value::as_bool) == Some(true) {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn integer(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_i64) {
            self.varint(field << 3);
            self.varint(number.cast_unsigned());
        }
    }

    fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_f64) {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A value that is carried as text; JSON is YAML.
    fn any(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(field, &any);
        }
    }

    /// What starts with `x-`.
    fn extensions(&mut self, field: u64, value: &Value) {
        for (name, value) in value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| name.starts_with("x-"))
        {
            let mut named = Message::default();
            named.bytes(1, name.as_bytes());
            named.any(2, Some(value));
            self.message(field, &named);
        }
    }
}

fn named(name: &str, value: &Message) -> Message {
    let mut named = Message::default();
    named.bytes(1, name.as_bytes());
    named.message(2, value);
    named
}

/// The whole document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document.get("swagger"));
    let mut info = Message::default();
    info.text(1, document.pointer("/info/title"));
    info.text(2, document.pointer("/info/version"));
    out.message(2, &info);
    let mut paths = Message::default();
    for (name, value) in document
        .get("paths")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        paths.message(2, &named(name, &path(value)));
    }
    out.message(8, &paths);
    let mut definitions = Message::default();
    for (name, value) in document
        .get("definitions")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        definitions.message(1, &named(name, &schema(value)));
    }
    out.message(9, &definitions);
    out.0
}

fn path(value: &Value) -> Message {
    let mut out = Message::default();
    for (method, field) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if let Some(value) = value.get(method) {
            out.message(field, &operation(value));
        }
    }
    for value in value
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out.message(9, &parameter(value));
    }
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(5, value.get("operationId"));
    for value in value
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out.message(8, &parameter(value));
    }
    let mut responses = Message::default();
    for (code, value) in value
        .get("responses")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let mut response = Message::default();
        response.text(1, value.get("description"));
        if let Some(value) = value.get("schema") {
            let mut item = Message::default();
            item.message(1, &schema(value));
            response.message(2, &item);
        }
        let mut one = Message::default();
        one.message(1, &response);
        responses.message(1, &named(code, &one));
    }
    out.message(9, &responses);
    out.extensions(13, value);
    out
}

fn parameter(value: &Value) -> Message {
    let query = value.get("in").and_then(Value::as_str) == Some("query");
    let mut inner = Message::default();
    inner.flag(1, value.get("required"));
    inner.text(2, value.get("in"));
    inner.text(3, value.get("description"));
    inner.text(4, value.get("name"));
    inner.text(if query { 6 } else { 5 }, value.get("type"));
    inner.flag(if query { 20 } else { 19 }, value.get("uniqueItems"));
    let mut non_body = Message::default();
    non_body.message(if query { 3 } else { 4 }, &inner);
    let mut parameter = Message::default();
    parameter.message(2, &non_body);
    let mut item = Message::default();
    item.message(1, &parameter);
    item
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value.get("$ref"));
    out.text(2, value.get("format"));
    out.text(3, value.get("title"));
    out.text(4, value.get("description"));
    out.any(5, value.get("default"));
    out.double(6, value.get("multipleOf"));
    out.double(7, value.get("maximum"));
    out.flag(8, value.get("exclusiveMaximum"));
    out.double(9, value.get("minimum"));
    out.flag(10, value.get("exclusiveMinimum"));
    out.integer(11, value.get("maxLength"));
    out.integer(12, value.get("minLength"));
    out.text(13, value.get("pattern"));
    out.integer(14, value.get("maxItems"));
    out.integer(15, value.get("minItems"));
    out.flag(16, value.get("uniqueItems"));
    out.integer(17, value.get("maxProperties"));
    out.integer(18, value.get("minProperties"));
    out.texts(19, value.get("required"));
    for one in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.any(20, Some(one));
    }
    if let Some(additional) = value.get("additionalProperties") {
        let mut item = Message::default();
        if additional.is_object() {
            item.message(1, &schema(additional));
        } else {
            item.flag(2, Some(additional));
        }
        out.message(21, &item);
    }
    if let Some(kind) = value.get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.bytes(1, kind.as_bytes());
        out.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        let mut all = Message::default();
        for (name, value) in properties {
            all.message(1, &named(name, &schema(value)));
        }
        out.message(25, &all);
    }
    out.extensions(31, value);
    out
}
