use serde_json::json;

use super::*;

/// What `kubectl` v1.36 makes of an unquoted scalar (`kubectl label --local -o json`), as JSON; `!` where it refuses.
const KUBECTL: &[(&str, &str)] = &[
    ("y", "true"),
    ("Y", "true"),
    ("n", "false"),
    ("N", "false"),
    ("yes", "true"),
    ("Yes", "true"),
    ("YES", "true"),
    ("no", "false"),
    ("No", "false"),
    ("NO", "false"),
    ("on", "true"),
    ("On", "true"),
    ("ON", "true"),
    ("off", "false"),
    ("Off", "false"),
    ("OFF", "false"),
    ("true", "true"),
    ("True", "true"),
    ("TRUE", "true"),
    ("tRue", r#""tRue""#),
    ("false", "false"),
    ("False", "false"),
    ("FALSE", "false"),
    ("null", "null"),
    ("Null", "null"),
    ("NULL", "null"),
    ("~", "null"),
    ("0o14", "12"),
    ("0O14", "12"),
    ("014", "12"),
    ("0x1F", "31"),
    ("0X1F", "31"),
    ("0b101", "5"),
    ("0B1", "1"),
    ("1_000", "1000"),
    ("0b1_0", "2"),
    ("1e3", "1000"),
    ("1.5e3", "1500"),
    (".5", "0.5"),
    ("-.5", "-0.5"),
    ("+1", "1"),
    ("+1.5", "1.5"),
    ("1.", "1"),
    ("+.5", "0.5"),
    (".inf", "!"),
    ("-.inf", "!"),
    (".Inf", "!"),
    (".INF", "!"),
    (".nan", "!"),
    (".NaN", "!"),
    ("+.inf", "!"),
    ("12:30:45", r#""12:30:45""#),
    ("190:20:30", r#""190:20:30""#),
    ("2001-12-14", r#""2001-12-14""#),
    (
        "2001-12-14t21:59:43.10-05:00",
        r#""2001-12-14t21:59:43.10-05:00""#,
    ),
    ("0.1.2", r#""0.1.2""#),
    ("1e", r#""1e""#),
    ("0o8", r#""0o8""#),
    ("08", "8"),
    ("09", "9"),
    ("00", "0"),
    ("-0", "0"),
    ("-0x1F", "-31"),
    ("0xfg", r#""0xfg""#),
    ("123456789012345678901234567890", "1.2345678901234568e+29"),
    ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775808", "9223372036854776000"),
    ("18446744073709551615", "18446744073709552000"),
    ("18446744073709551616", "18446744073709552000"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("-9223372036854775809", "-9223372036854776000"),
    ("0x7fffffffffffffff", "9223372036854775807"),
    ("0xffffffffffffffff", "18446744073709552000"),
    ("0x7fffffffffffffffff", r#""0x7fffffffffffffffff""#),
    ("1__0", "10"),
    ("_1", r#""_1""#),
    ("1_", "1"),
    ("=", r#""=""#),
    ("<<", r#""<<""#),
    ("!", r#""""#),
    ("6.8523015e+5", "685230.15"),
    ("685.230_15e+03", "685230.15"),
    ("685_230.15", "685230.15"),
    ("190:20:30.15", r#""190:20:30.15""#),
    ("-1_000", "-1000"),
    ("0b", r#""0b""#),
    ("0x", r#""0x""#),
    ("0o", r#""0o""#),
    ("+0x10", "16"),
    ("-0b11", "-3"),
    ("-0o7", "-7"),
    ("+12e03", "12000"),
    ("1e400", r#""1e400""#),
    ("1E5", "100000"),
    ("1e-400", "0"),
    ("0.0", "0"),
    ("1.0", "1"),
    ("100.0", "100"),
    ("1e2", "100"),
    ("1.10", "1.1"),
    ("12e0", "12"),
    ("0777", "511"),
    ("-012", "-10"),
    ("+012", "10"),
    ("Infinity", r#""Infinity""#),
    ("NaN", r#""NaN""#),
    ("nan", r#""nan""#),
    ("inf", r#""inf""#),
    ("infinity", r#""infinity""#),
    ("0x1p-2", r#""0x1p-2""#),
    ("1e+2", "100"),
    ("0b102", r#""0b102""#),
    ("0o779", r#""0o779""#),
    ("--", r#""--""#),
    ("1.2.3.4", r#""1.2.3.4""#),
    ("10.0.0.1", r#""10.0.0.1""#),
    ("1e21", "1e+21"),
    ("1e20", "100000000000000000000"),
    ("123456789.123", "123456789.123"),
    ("0.1", "0.1"),
    ("1e-7", "1e-7"),
    ("0.000001", "0.000001"),
    ("0x_1F", "31"),
    ("0_7", "7"),
    ("+0", "0"),
    ("-0.0", "0"),
    ("2001-1-1", r#""2001-1-1""#),
    ("2001-12-14T21:59:43Z", r#""2001-12-14T21:59:43Z""#),
    ("5e", r#""5e""#),
    ("5e+", r#""5e+""#),
    (".e1", r#"".e1""#),
    (".", r#"".""#),
    ("..", r#""..""#),
    ("+.", r#""+.""#),
    ("e5", r#""e5""#),
    ("1,000", r#""1,000""#),
    ("0o_7", "7"),
    ("0b_1", "1"),
    ("12345678901234567890", "12345678901234567000"),
];

#[test]
fn a_scalar_means_what_kubectl_says() {
    for (text, wanted) in KUBECTL {
        let read = from_str::<Value>(&format!("spec:\n  v: {text}\n"));
        if *wanted == "!" {
            assert!(read.is_err(), "{text} became {read:?}");
            continue;
        }
        let wanted: Value = serde_json::from_str(wanted).unwrap();
        let read = read.unwrap()["spec"]["v"].clone();
        // Numbers beyond 64 bits are printed with fewer digits there.
        let same = read == wanted
            || (read.is_f64() && (read.as_f64().unwrap() / wanted.as_f64().unwrap() - 1.0).abs() < 1e-15);
        assert!(same, "{text} became {read}, not {wanted}");
        // In quotes it is a text.
        let quoted: Value = from_str(&format!("'{text}'")).unwrap();
        assert_eq!(quoted, *text);
    }
}

#[test]
fn a_key_means_what_kubectl_says() {
    for (text, wanted) in [
        ("y", "true"),
        ("on", "true"),
        ("off", "false"),
        ("1", "1"),
        ("1.5", "1.5"),
        ("0x10", "16"),
        ("1e3", "1000"),
        ("1e7", "1e+07"),
        (".inf", ".inf"),
        ("2001-12-14", "2001-12-14"),
        ("'y'", "y"),
        ("!!str y", "y"),
    ] {
        let read: Value = from_str(&format!("{text}: v")).unwrap();
        assert_eq!(read, json!({ wanted: "v" }), "{text}");
    }
    for text in ["null: v", "~: v", "? [a]\n: v", "? {a: b}\n: v"] {
        assert!(from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn tags_anchors_and_merges() {
    for (text, wanted) in [
        ("v: !!str 1", json!({ "v": "1" })),
        ("v: !!int '1'", json!({ "v": 1 })),
        ("v: !!float 1", json!({ "v": 1 })),
        ("v: !!bool yes", json!({ "v": true })),
        ("v: !!binary aGVsbG8=", json!({ "v": "hello" })),
        ("v: !!timestamp 2001-12-14", json!({ "v": "2001-12-14" })),
        ("v: !foo bar", json!({ "v": "bar" })),
        ("v: ! 12", json!({ "v": "12" })),
        ("v:", json!({ "v": null })),
        ("a: &a [1, y]\nb: *a", json!({ "a": [1, true], "b": [1, true] })),
        (
            "x: &x {a: 1, b: 1}\nz:\n  <<: *x\n  b: 2",
            json!({ "x": {"a": 1, "b": 1}, "z": {"a": 1, "b": 2} }),
        ),
        (
            "x: &x {a: 1}\nw: &w {a: 2, c: 3}\nz:\n  b: 2\n  <<: [*x, *w]",
            json!({ "x": {"a": 1}, "w": {"a": 2, "c": 3}, "z": {"a": 1, "b": 2, "c": 3} }),
        ),
        ("v: |\n  y\n  n\n", json!({ "v": "y\nn\n" })),
        ("# nothing", Value::Null),
    ] {
        assert_eq!(from_str::<Value>(text).unwrap(), wanted, "{text}");
    }
    for text in [
        "a: 1\na: 2",
        "a: &a [*a]",
        "a: *b",
        "v: !!int x",
        "a: [b",
        "a: b: c",
        "a: 1\n--- \nb: 1",
    ] {
        assert!(from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn a_stream_has_documents() {
    let all: Vec<Value> = documents("---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n").unwrap();
    assert_eq!(all, [json!({ "a": 1 }), json!({ "b": 2 })]);
}

#[test]
fn little_text_does_not_become_much_memory() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (next, last) in ["b", "c", "d", "e", "f", "g", "h", "i"]
        .into_iter()
        .zip(["a", "b", "c", "d", "e", "f", "g", "h"])
    {
        let items = vec![format!("*{last}"); 10].join(", ");
        laughs = format!("{laughs}{next}: &{next} [{items}]\n");
    }
    assert!(
        from_str::<Value>(&laughs)
            .unwrap_err()
            .to_string()
            .contains("aliases")
    );
    let items = vec!["x"; 100_000].join(", ");
    let copies = format!("{}[{items}]{}", "[&a ".repeat(50), "]".repeat(50));
    let error = from_str::<Value>(&copies).unwrap_err().to_string();
    assert!(error.contains("anchors"), "{error}");
    // Of several texts together.
    let text = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n";
    let mut aliases = Aliases::default();
    let read = (0..10_000).take_while(|_| documents_sharing::<Value>(text, &mut aliases).is_ok());
    assert!((1_000..9_000).contains(&read.count()));
    assert!(from_str::<Value>(&"[".repeat(10_000)).is_err());
    assert!(from_str::<Value>(&"a: {".repeat(10_000)).is_err());
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for (text, _) in KUBECTL {
        let value = json!({ "v": text, *text: [text, { "w": text }] });
        let written = to_string(&value).unwrap();
        assert_eq!(from_str::<Value>(&written).unwrap(), value, "{written}");
    }
}

#[test]
fn an_error_does_not_quote_the_document() {
    for (text, error) in [
        (
            "a: 1\npassword: hunter2\nb: [",
            from_str::<Value>("a: 1\npassword: hunter2\nb: [").unwrap_err(),
        ),
        ("hunter2", from_str::<Vec<u8>>("hunter2").unwrap_err()),
        ("[hunter2]", from_str::<Vec<u8>>("[hunter2]").unwrap_err()),
    ] {
        let error = error.to_string();
        assert!(
            error.starts_with("not the YAML that is expected") && !error.contains("hunter2"),
            "{text}: {error}"
        );
    }
}
