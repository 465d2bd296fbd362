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
        assert_eq!(
            json!(found.select(&object, &Budget::default()).unwrap()),
            expected,
            "{path}"
        );
    }
    assert_eq!(
        Path::jsonpath(".").unwrap().select(&object, &Budget::default()),
        Ok(vec![&object])
    );
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
        Path::jq(path)
            .unwrap()
            .remove(&mut object, &Budget::default())
            .unwrap();
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
    let budget = Budget::default();
    let mut object = object();
    assert_eq!(
        Path::pointer("/metadata/labels/a.b~1c")
            .unwrap()
            .select(&object, &budget),
        Ok(vec![&json!("x")])
    );
    assert_eq!(
        Path::pointer("/spec/ports/1")
            .unwrap()
            .remove(&mut object, &budget),
        Ok(1)
    );
    assert_eq!(object["spec"]["ports"][1]["name"], "dns");
    assert_eq!(
        Path::pointer("/spec/none/x")
            .unwrap()
            .remove(&mut object, &budget),
        Ok(0)
    );
}

#[test]
fn removing_much_takes_what_is_named_and_nothing_else() {
    for (path, left) in [
        (".a[1:3]", json!({"a": [0, 3, [5, 6]], "b": 1})),
        (".a[0,4], .a[4][0], .b", json!({"a": [1, 2, 3]})),
        (".a[4][0], .a[1]", json!({"a": [0, 2, 3, [6]], "b": 1})),
        ("..", Value::Null),
    ] {
        let mut object = json!({"a": [0, 1, 2, 3, [5, 6]], "b": 1});
        Path::jq(path)
            .unwrap()
            .remove(&mut object, &Budget::default())
            .unwrap();
        assert_eq!(object, left, "{path}");
    }
}

#[test]
fn what_is_much_work_on_a_large_object_is_given_up() {
    let wide = json!({"list": vec![0; 200_000]});
    let texts = json!({"list": vec!["a".repeat(100); 5_000]});
    let mut deep = json!(vec![0; 20_000]);
    for _ in 0..100 {
        deep = json!({"k".repeat(5_000): deep});
    }
    let alternatives = vec!["(. == 1)"; 100].join(" or ");
    let patterns = vec![r#"test("(a|b)*c")"#; 60].join(" or ");
    for (path, object, fits) in [
        (".list[]".to_owned(), &wide, true),
        ("..".to_owned(), &wide, true),
        (format!(".list[] | select({alternatives})"), &wide, false),
        (vec![".."; 50].join("|"), &wide, false),
        (vec![".list[]"; 50].join(","), &wide, false),
        (".list[] | select(. | test(\"^a\"))".to_owned(), &texts, true),
        (
            ".list[] | select(. | test(\"(a|b)*c\") or test(\"(a|b)*d\") or test(\"x\"))".to_owned(),
            &texts,
            false,
        ),
        (format!(".list[0] | select({patterns})"), &texts, true),
        (
            format!(".list[0] | select({patterns} or {patterns})"),
            &texts,
            false,
        ),
        ("..".to_owned(), &deep, true),
    ] {
        let path = Path::jq(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let begun = std::time::Instant::now();
        let found = path.select(object, &Budget::default());
        assert_eq!(found.is_ok(), fits, "{path:?}");
        // Far from what it would take without a budget.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }
    // To remove a place its keys are copied; with long ones that is as much as it is.
    let descend = Path::jq("..").unwrap();
    assert_eq!(descend.remove(&mut deep, &Budget::default()), Err(TooMuch));
    assert!(deep.is_object());
    // What is used up is used up for all paths of an object.
    let (budget, each) = (Budget::default(), Path::jsonpath(".list[*]").unwrap());
    let rounds = (0..10).filter(|_| each.select(&wide, &budget).is_ok()).count();
    assert!((1..6).contains(&rounds), "{rounds}");
    assert_eq!(
        Path::jsonpath(".list").unwrap().select(&wide, &budget),
        Err(TooMuch)
    );
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
            // A regular expression has its price, so that many of them end a budget.
            let Ok(found) = path.select(&object, &Budget::default()) else { continue };
            prop_assert!(path.remove(&mut copy, &Budget::default()).unwrap() <= found.len());
        }
    }
}
