//! Names that become part of a URL: the client puts them there as they are, so one that is more than a single segment
//! of the path would lead to another object than the one that was judged.

/// Checks that a text is one segment of a path; the error names the field and the way out.
pub fn check(field: &str, text: &str) -> Result<(), String> {
    if is_plain(text) {
        return Ok(());
    }
    // The beginning is enough to recognise a long name.
    let start: String = text.chars().take(64).collect();
    Err(format!(
        "{field} {start:?} cannot be part of a URL: it must not be empty, \".\" or \"..\", and not hold {}, spaces or \
         control characters",
        BREAKING.map(String::from).join(" ")
    ))
}

/// What ends a segment, means something else in it, or is no part of any URL: a client refuses to send it.
const BREAKING: [char; 8] = ['/', '\\', '?', '#', '%', '<', '>', '`'];

/// Whether a text is one segment of a path.
pub fn is_plain(text: &str) -> bool {
    let breaks = |c: char| BREAKING.contains(&c) || c.is_whitespace() || c.is_control();
    !matches!(text, "" | "." | "..") && !text.contains(breaks)
}

/// Whether a text is a DNS subdomain, as the names of most objects are. Kubernetes bounds its length, not that of its parts.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether a text is a DNS label, as the names of resources and versions are.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_to_one_place_is_plain() {
        for good in [
            "a",
            "a.b",
            "...",
            "system:node",
            "writ:agent:grants",
            "a-b_C",
            "ä",
        ] {
            assert_eq!(check("metadata.name", good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "?",
            "a?x",
            "?watch=1&x=1",
            "a/b",
            "a%2fb",
            "a#b",
            "a b",
            "a\nb",
            "a\u{0}",
            "a\\b",
            "a<b",
            "a>b",
            "a`b",
        ] {
            let problem = check("metadata.name", bad).unwrap_err();
            assert!(problem.starts_with("metadata.name"), "{problem}");
        }
        assert!(is_label("widgets-2") && is_label("v1"));
        for bad in ["", "-a", "a-", "A", "a.b", "a/b"] {
            assert!(!is_label(bad), "{bad}");
        }
        assert!(is_subdomain("a.b-c.1") && is_subdomain(&"a".repeat(253)));
        for bad in ["", "a..b", "a<b", "a:b", &"a".repeat(254)] {
            assert!(!is_subdomain(bad), "{bad}");
        }
    }
}
