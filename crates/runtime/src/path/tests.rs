//! Tables against the three languages.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn object() -> Value {
    json!({
        "metadata": {"labels": {"a.b/c": "x"}, "annotations": {"k": "v"}},
        "spec": {"replicas": 3, "ports": [
            {"name": "http", "port": 80}, {"name": "https", "port": 443}, {"name": "dns", "port": 53, "off": true},
        ]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    })
}

#[test]
fn jsonpath_leads_where_kubectl_goes() {
    let object = object();
    for (path, expected) in [
        (".spec.replicas", json!([3])),
        ("{.spec.replicas}", json!([3])),
        ("{ .spec.replicas }", json!([3])),
        ("$.spec.replicas", json!([3])),
        ("spec.replicas", json!([3])),
        (r".metadata.labels.a\.b/c", json!(["x"])),
        (".metadata.labels['a.b/c']", json!(["x"])),
        (".spec.ports[0].name", json!(["http"])),
        (".spec.ports[-1].name", json!(["dns"])),
        (".spec.ports[0:2].port", json!([80, 443])),
        (".spec.ports[1:].port", json!([443, 53])),
        (".spec.ports[0,2].port", json!([80, 53])),
        (".spec.ports[*].port", json!([80, 443, 53])),
        (r#".spec.ports[?(@.name=="https")].port"#, json!([443])),
        (r".spec.ports[?(@.port>=80)].name", json!(["http", "https"])),
        (r".spec.ports[?(@.off)].name", json!(["dns"])),
        (
            r#"{.status.conditions[?(@.type=="Ready")].status}"#,
            json!(["True"]),
        ),
        ("..port", json!([80, 443, 53])),
        (".spec.missing.deeper", json!([])),
        (".spec.ports[9]", json!([])),
    ] {
        let found = Path::jsonpath(path).unwrap();
        assert_eq!(json!(found.select(&object)), expected, "{path}");
    }
    assert_eq!(Path::jsonpath(".").unwrap().select(&object), vec![&object]);
}

#[test]
fn a_wrong_path_says_where() {
    for path in [
        ".spec[",
        ".spec[a]",
        "{.spec",
        ".spec}",
        ".a[?(@.b==)]",
        ".a['b]",
        ".a..",
        ".a.",
        "{.a}{.b}",
        r".a\",
        ".a[?(b)]",
        ".a[::0]",
    ] {
        let error = Path::jsonpath(path).unwrap_err();
        assert!(error.position >= 1 && error.position <= path.len() + 1, "{error}");
    }
    for path in [
        "spec",
        ".a | length",
        ".a[",
        ".a[] | select(.b ==",
        ".a b",
        "select(.a",
        ".a | to_entries",
        ".a | map(.b)",
        "selected(.a)",
        ".a[] | select(.b == 1 | startswith(\"x\"))",
        ".a[] | select(.b | test(\"[\"))",
        ".a[] | select(.b | test(\"a\"; \"q\"))",
        ".a[] | select(.b | length)",
        "if .a then .b",
        "getpath([\"a\"",
        "",
    ] {
        assert!(Path::jq(path).is_err(), "{path}");
    }
    for path in ["spec", "/a~2"] {
        assert!(Path::pointer(path).is_err(), "{path}");
    }
}

#[test]
fn what_costs_more_than_a_path_is_worth_is_refused() {
    let deep = |count: usize| format!(".a{}{}", "[?(@.a".repeat(count), ")]".repeat(count));
    assert!(Path::jsonpath(&deep(30)).is_ok());
    for path in [
        deep(40),
        deep(100_000),
        ".a[?(@.a".repeat(400),
        ".a".repeat(100_000),
    ] {
        let error = Path::jsonpath(&path).unwrap_err().to_string();
        assert!(error.len() < 5000, "{}", error.len());
    }
    assert!(Path::jq(&[".a"; 100].join("|")).is_ok());
    for path in [
        vec![".a"; 100_000].join("|"),
        // Short, and yet much.
        format!("({})|{}", [".a"; 600].join(","), [".b"; 600].join("|")),
        format!("({}){}", [".a"; 600].join(","), ".b".repeat(600)),
        "(".repeat(1000),
        "if .a then ".repeat(300),
    ] {
        let error = Path::jq(&path).unwrap_err().to_string();
        assert!(error.len() < 5000, "{}", error.len());
    }
    assert!(Path::pointer(&"/a".repeat(100_000)).is_err());
}

#[test]
fn jq_removes_what_it_names() {
    for (path, left) in [
        (".spec.replicas", r#"{"ports":["http","https","dns"]}"#),
        (".spec[\"replicas\"]", r#"{"ports":["http","https","dns"]}"#),
        (
            r#".spec.ports[] | select(.name == "http")"#,
            r#"{"ports":["https","dns"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(.name == "http" or .port == 53)"#,
            r#"{"ports":["https"],"replicas":3}"#,
        ),
        (
            r".spec.ports[] | select((.off | not) and .port < 100)",
            r#"{"ports":["https","dns"],"replicas":3}"#,
        ),
        (".spec.replicas, .spec.ports[0]", r#"{"ports":["https","dns"]}"#),
        (".spec | (.replicas, .ports[1:])", r#"{"ports":["http"]}"#),
        (".spec.ports[]?", r#"{"ports":[],"replicas":3}"#),
        // A comma binds closer than a pipe, a pipe in a test reaches to its end.
        (
            r".spec.ports[] | .name, .port | select(. == 80)",
            r#"{"ports":["http","https","dns"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(.name | startswith("http"))"#,
            r#"{"ports":["dns"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(.name | endswith("s") and test("^H"; "i"))"#,
            r#"{"ports":["http","dns"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(has("off") | not)"#,
            r#"{"ports":["dns"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(.name | IN("dns", "http"))"#,
            r#"{"ports":["https"],"replicas":3}"#,
        ),
        (
            r#".spec.ports[] | select(.name | contains("ttp") and length > 4)"#,
            r#"{"ports":["http","dns"],"replicas":3}"#,
        ),
        (
            r".spec.ports[] | select(.missing | . == null)",
            r#"{"ports":[],"replicas":3}"#,
        ),
        (
            r#".spec | select(.ports | any(.name == "dns")) | .replicas"#,
            r#"{"ports":["http","https","dns"]}"#,
        ),
        (
            r".spec | select(.ports | all(.port > 60)) | .replicas",
            r#"{"ports":["http","https","dns"],"replicas":3}"#,
        ),
        (
            r".spec.ports | if length > 2 then .[0] elif length > 1 then .[1] else empty end",
            r#"{"ports":["https","dns"],"replicas":3}"#,
        ),
        (".spec.ports[0,2]", r#"{"ports":["https"],"replicas":3}"#),
        (
            r#"getpath(["spec", "ports", 1])"#,
            r#"{"ports":["http","dns"],"replicas":3}"#,
        ),
        (
            r#".. | select(.name? == "dns")"#,
            r#"{"ports":["http","https"],"replicas":3}"#,
        ),
        (
            ".spec.nothing[].x",
            r#"{"ports":["http","https","dns"],"replicas":3}"#,
        ),
    ] {
        let mut object = object();
        Path::jq(path).unwrap().remove(&mut object);
        let mut spec = object["spec"].clone();
        if let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) {
            for port in ports {
                *port = port["name"].clone();
            }
        }
        assert_eq!(spec, serde_json::from_str::<Value>(left).unwrap(), "{path}");
    }
}

#[test]
fn a_pointer_names_keys_and_indexes() {
    let mut object = object();
    assert_eq!(
        Path::pointer("/metadata/labels/a.b~1c").unwrap().select(&object),
        vec![&json!("x")]
    );
    assert_eq!(Path::pointer("/spec/ports/1").unwrap().remove(&mut object), 1);
    assert_eq!(object["spec"]["ports"][1]["name"], "dns");
    assert_eq!(Path::pointer("/spec/none/x").unwrap().remove(&mut object), 0);
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_fall_over(text in prop_oneof![
        ".{0,40}",
        // Tokens of jq in any order.
        prop::collection::vec(prop::sample::select(vec![
            ".a", ".", "..", "[", "]", "[]", "(", ")", "|", ",", " ", "select(", "if ", " then ", " else ", " end",
            "has(", "\"a\"", "1", " and ", " or ", "not", "==", "length", "any(", "test(", ";", "getpath(", "empty",
        ]), 0..14).prop_map(|tokens| tokens.concat()),
    ]) {
        let object = object();
        for path in [Path::jsonpath(&text), Path::jq(&text), Path::pointer(&text)].into_iter().flatten() {
            let mut copy = object.clone();
            let count = path.select(&object).len();
            prop_assert!(path.remove(&mut copy) <= count);
        }
    }
}
