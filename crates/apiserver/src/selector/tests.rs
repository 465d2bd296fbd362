use proptest::prelude::*;
use serde_json::{Value, json};

use super::{FieldSelector, LabelSelector};

#[test]
fn label_selectors_match_as_kubernetes_says() {
    let labels = json!({"app": "web", "tier": "", "n": "7"});
    let table = [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app!=web", false),
        ("missing!=web", true),
        ("app in (db, web)", true),
        ("app notin (db)", true),
        ("missing notin (db)", true),
        ("app in (db,)", false),
        ("tier=", true),
        ("tier in (,x)", true),
        ("app,tier", true),
        ("!app", false),
        ("! missing", true),
        ("n>5,n<8", true),
        ("n>7", false),
        ("app>1", false),
        ("in=x", false),
    ];
    for (text, expected) in table {
        let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(selector.matches(labels.as_object()), expected, "{text}");
    }
}

#[test]
fn bad_label_selectors_are_refused() {
    for text in [
        "=x", "a=b,", ",", "a in", "a in (b", "a in b", "a>x", "a b", "!a=b", "a=b=c", "a/b/c=d", "a=-",
    ] {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn object_form() {
    let selector =
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]});
    let selector = LabelSelector::from_object(Some(&selector)).unwrap();
    assert!(selector.matches(json!({"a": "b"}).as_object()));
    assert!(!selector.matches(json!({"a": "b", "c": ""}).as_object()));
    assert!(!LabelSelector::from_object(None).unwrap().matches(None));
    assert!(
        LabelSelector::from_object(Some(&json!({})))
            .unwrap()
            .matches(None)
    );
}

#[test]
fn field_selectors() {
    let get = |field: &str| (field == "metadata.name").then(|| "a,b".to_owned());
    for (text, expected) in [
        ("metadata.name=a\\,b", true),
        ("metadata.name!=a\\,b", false),
        ("", true),
        (",", true),
        ("x=", true),
        ("x==y", false),
    ] {
        assert_eq!(
            FieldSelector::parse(text).unwrap().matches(get),
            expected,
            "{text}"
        );
    }
    for text in ["metadata.name", "a=b=c", "a=\\x", "a=\\"] {
        assert!(FieldSelector::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,40}") {
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }

    #[test]
    fn parsing_selector_like_text_never_panics(text in "[a-c!=(),<> \\\\./in]{0,30}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            selector.matches(json!({"a": "b"}).as_object());
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            selector.matches(|_| Some("a".into()));
        }
        let _ = LabelSelector::from_object(Some(&Value::String(text)));
    }
}
