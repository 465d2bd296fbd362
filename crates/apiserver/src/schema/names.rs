//! The syntax of names, labels and the like, with the real server's explanations.

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";

fn explain(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn max_length(n: usize) -> String {
    format!("must be no more than {n} bytes")
}

/// The same in the words for the names of some things, though bytes are counted for them as well.
fn max_characters(n: usize) -> String {
    format!("must be no more than {n} characters")
}

/// Letters, digits and `inner` characters, beginning and ending with a letter or digit.
fn edges(text: &str, inner: &[u8], upper: bool) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || (upper && b.is_ascii_uppercase());
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| alnum(*b))
        && bytes.last().is_some_and(|b| alnum(*b))
        && bytes.iter().all(|b| alnum(*b) || inner.contains(b))
}

fn is_label(text: &str) -> bool {
    edges(text, b"-", false)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// A DNS label (RFC 1123), as namespaces are named.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(max_characters(63));
    }
    if !is_label(text) {
        if is_subdomain(text) {
            problems.push("must not contain dots".into());
        } else {
            problems.push(explain(
                DNS_LABEL,
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            ));
        }
    }
    problems
}

/// A DNS subdomain (RFC 1123), as most objects are named.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    subdomain(text, max_characters)
}

fn subdomain(text: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !is_subdomain(text) {
        problems.push(explain(
            DNS_SUBDOMAIN,
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    problems
}

/// A DNS label that begins with a letter (RFC 1035), as services are named.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(max_characters(63));
    }
    if !is_label(text) || !text.as_bytes().first().is_some_and(u8::is_ascii_lowercase) {
        problems.push(explain(
            DNS_1035,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// A name that is safe as one segment of a path: RBAC objects are named so.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| text.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// The beginning of a name that is safe as one segment of a path.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ['/', '%']
        .iter()
        .filter(|c| text.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// A label key: an optional DNS prefix and a name.
pub fn qualified_name(text: &str) -> Vec<String> {
    const PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut problems = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else {
                problems.extend(
                    subdomain(prefix, max_length)
                        .into_iter()
                        .map(|p| format!("prefix part {p}")),
                );
            }
            *name
        }
        _ => {
            problems.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                explain(QUALIFIED, PATTERN, &EXAMPLES)
            ));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", max_length(63)));
    }
    if !edges(name, b"-_.", true) {
        problems.push(format!("name part {}", explain(QUALIFIED, PATTERN, &EXAMPLES)));
    }
    problems
}

/// A label value: empty or a short name.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(max_length(63));
    }
    if !text.is_empty() && !edges(text, b"-_.", true) {
        problems.push(explain(
            LABEL_VALUE,
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(max_characters(253));
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    {
        problems.push(explain(
            CONFIG_KEY,
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    if text == "." || text == ".." {
        problems.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        problems.push("must not start with '..'".into());
    }
    problems
}
