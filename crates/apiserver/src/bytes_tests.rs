//! Every parser, fed with bytes: whatever a client sends, it is answered. Nothing here may panic or hang.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::http::{Query, decode_json, decode_yaml, route};
use crate::patch::{json_patch, merge_patch, strategic_merge};
use crate::pki::{SigningRequest, blocks};
use crate::schema::{Schema, validate_structural};
use crate::selector::{FieldSelector, LabelSelector};
use crate::ssa::{Manager, Others, apply, track_update};

/// Bytes without form, and documents with a few bytes and words changed: most of those get past the first brace.
fn bytes(
    documents: &'static [&'static str],
    words: &'static [&'static str],
) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..3),
    ];
    let edit = (any::<prop::sample::Index>(), 0..8usize, word);
    let edited = (
        proptest::sample::select(documents),
        proptest::collection::vec(edit, 0..6),
    )
        .prop_map(|(document, edits)| {
            let mut out = document.as_bytes().to_vec();
            for (at, length, word) in edits {
                let start = at.index(out.len() + 1);
                let end = out.len().min(start + length);
                out.splice(start..end, word);
            }
            out
        });
    prop_oneof![1 => proptest::collection::vec(any::<u8>(), 0..80), 4 => edited]
}

const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "-1",
    "1e999",
    "\"\"",
    "\"a\"",
    "\"\\ud800\"",
    "\n",
    "  ",
    "- ",
    "---\n",
    "&a ",
    "*a",
    "!!x ",
    "0x1",
    "~",
];

const OBJECTS: &[&str] = &[
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"},"finalizers":["x/y"]},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":1}]}],"volumes":[{"name":"v"}]}}"#,
    r#"{"metadata":{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{},"k:{\"name\":\"c\"}":{},"v:1":{},"i:0":{},".":{}}}}]},"data":{"a":"b"}}"#,
    "metadata:\n  name: a\ndata: &x\n  a: b\n  list: [1, 2.5, yes, ~]\nmore: *x\n",
    r#"{"spec":{"containers":[{"$patch":"delete","name":"c"},{"$patch":"replace"}],"$setElementOrder/containers":[{"name":"c"}],"$retainKeys":["a"]},"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"]}}"#,
    r#"[{"op":"add","path":"/a/b","value":{"c":[1]}},{"op":"move","from":"/a","path":"/b"},{"op":"test","path":"/b/-","value":null}]"#,
];

const SCHEMAS: &[&str] = &[
    r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"^a+$","maxLength":3,"format":"date","enum":["a"]},"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"integer","default":1}}}}}}"#,
    r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"additionalProperties":{"type":"number","minimum":0,"multipleOf":0.5},"x-kubernetes-validations":[{"rule":"self.a == oldSelf.a","messageExpression":"'x'"}]}"#,
    r#"{"type":"object","properties":{"x":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},"y":{"type":"object","x-kubernetes-embedded-resource":true},"z":{"not":{"oneOf":[{"allOf":[]}]}}}}"#,
];

const SELECTORS: &[&str] = &[
    "a=b,c!=d,e in (f,g),!h,i notin (),j>1",
    "metadata.name=a,status.phase!=b\\,c",
    "labelSelector=a%3Db&watch&timeoutSeconds=1&limit=%zz",
    "/apis/apps/v1/namespaces/a/deployments/b/status",
];
const SELECTOR_WORDS: &[&str] = &[
    "(", ")", ",", "=", "==", "!", " in ", "notin", "<", "\\", "%", "&", "/", "//",
];

const REQUESTS: &[&str] = &["-----BEGIN CERTIFICATE REQUEST-----\n\
MIHLMHICAQAwEDEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjOPQIBBggqhkjOPQMB\n\
BwNCAARR+P+wBdXh/CMVECeBa8EI5zOnR+DZVaqP5Vt8Dn5PASVSqPQmCa3OPlAg\n\
TQXvCJYP4SH5tmp45Gt/ROiEzEVgoAAwCgYIKoZIzj0EAwIDSQAwRgIhAMdJ8eC0\n\
E3L6otv1RRIvtY5hDtzcoIG+/eoDwpIDCjfbAiEA739vaOtuNGZRoHXFjYvyuwa/\n\
LfJjn9+75cDG9Df51ts=\n\
-----END CERTIFICATE REQUEST-----\n"];

/// Words of as many letters as stand for whole bytes keep what follows readable.
const REQUEST_WORDS: &[&str] = &[
    "AAAA",
    "////",
    "MIIB",
    "MIT/",
    "MIIBBAAA",
    "=",
    "\n",
    "-----",
    "-----BEGIN ",
    "-----END ",
    "A: b\n",
];

fn manager(name: &str) -> Manager<'_> {
    Manager {
        name,
        subresource: "",
        time: jiff::Timestamp::UNIX_EPOCH,
        force: name.is_empty(),
        api_version: "v1",
        ignored: &[],
        versions: &[],
        variants: &[],
        others: Others::Forgotten,
    }
}

proptest! {
    #[test]
    fn bodies(body in bytes(OBJECTS, JSON_WORDS)) {
        let _ = decode_json(&body);
        let _ = decode_yaml(&body);
    }

    #[test]
    fn requests_for_certificates(pem in bytes(REQUESTS, REQUEST_WORDS)) {
        prop_assert!(blocks(&pem).count() <= pem.len());
        if let Ok(request) = SigningRequest::read(&pem) {
            request.is_signed();
            drop(request.key());
        }
    }

    #[test]
    fn selectors(text in bytes(SELECTORS, SELECTOR_WORDS)) {
        let text = String::from_utf8_lossy(&text);
        if let Ok(selector) = LabelSelector::parse(&text) {
            selector.matches(json!({"a": "b", "j": "2"}).as_object());
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            selector.matches(|_| Some("a".into()));
        }
        let query = Query::parse(Some(&text));
        let _ = (query.flag("watch"), query.number("limit"));
        let _ = route(&text);
    }

    #[test]
    fn patches(live in bytes(OBJECTS, JSON_WORDS), patch in bytes(OBJECTS, JSON_WORDS)) {
        let live = decode_yaml(&live).map_or(json!({"a": {"b": [1]}}), |live| live.value);
        let _ = json_patch(&live, &patch);
        let _ = merge_patch(&live, &patch);
        if let Ok(patch) = decode_yaml(&patch) {
            let pods = crate::builtin::find("", "v1", "pods").unwrap().schema();
            let _ = strategic_merge(&live, &patch.value, &pods);
        }
    }

    #[test]
    fn applied_configurations(live in bytes(OBJECTS, JSON_WORDS), configuration in bytes(OBJECTS, JSON_WORDS), name in "m?") {
        let live = decode_yaml(&live).map_or(Value::Null, |live| live.value);
        if let Ok(configuration) = decode_yaml(&configuration) {
            let mut configuration = configuration.value;
            for schema in [crate::builtin::find("", "v1", "pods").unwrap().schema(), Schema::anything()] {
                let _ = apply(Some(&live), &configuration, &manager(&name), &schema);
                track_update(Some(&live), &mut configuration, &manager(&name), &schema);
            }
        }
    }

    #[test]
    fn schemas(schema in bytes(SCHEMAS, JSON_WORDS), object in bytes(OBJECTS, JSON_WORDS)) {
        let Ok(schema) = decode_json(&schema) else { return Ok(()) };
        let _ = validate_structural(&schema.value, "s");
        if let (Ok(schema), Ok(object)) = (Schema::compile(&schema.value), decode_yaml(&object)) {
            let old = object.value.clone();
            let mut object = object.value;
            schema.prune(&mut object);
            schema.default(&mut object);
            schema.validate(&object, Some(&old));
            let _ = schema.decode_error(&object);
        }
    }
}
