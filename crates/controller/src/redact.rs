//! What may be repeated of an API server's words about a Secret. Pure.

use crate::Name;

/// The message of a failed request about a Secret, if it cannot quote the content of the Secret.
///
/// Only messages of the API server's own authentication, authorization and merge are known to name nothing but users,
/// verbs and fields. Validation and admission may quote what they refuse, under any status code.
pub fn quotable<'a>(code: u16, message: &'a str, secret: &Name) -> Option<&'a str> {
    let (namespace, name) = (&*secret.namespace, &*secret.name);
    let is_own_words = match code {
        401 => message == "Unauthorized",
        403 => {
            let forbidden = format!("secrets {name:?} is forbidden: ");
            let reason = message.strip_prefix(&forbidden).unwrap_or_default();
            reason.starts_with("User \"") || reason.starts_with("unable to create new content in namespace ")
        }
        404 => {
            message == format!("namespaces {namespace:?} not found")
                || message == format!("secrets {name:?} not found")
        }
        409 => message.starts_with("Apply failed with "),
        _ => false,
    };
    is_own_words.then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_may_quote_a_secret_is_withheld() {
        let secret = Name::new("n", "s");
        for (code, message, is_quotable) in [
            (401, "Unauthorized", true),
            (
                403,
                r#"secrets "s" is forbidden: User "u" cannot patch resource "secrets""#,
                true,
            ),
            (
                403,
                r#"secrets "s" is forbidden: unable to create new content in namespace n because"#,
                true,
            ),
            (404, r#"namespaces "n" not found"#, true),
            (404, r#"secrets "s" not found"#, true),
            (
                409,
                r#"Apply failed with 1 conflict: conflict with "x": .data.key"#,
                true,
            ),
            (401, r#"admission webhook "w" denied the request: hunter2"#, false),
            (
                403,
                r#"secrets "s" is forbidden: ValidatingAdmissionPolicy 'p' denied request: hunter2"#,
                false,
            ),
            (
                403,
                r#"admission webhook "w" denied the request: User "hunter2""#,
                false,
            ),
            (404, r#"admission webhook "w" denied the request: hunter2"#, false),
            (409, r#"admission webhook "w" denied the request: hunter2"#, false),
            (422, "Secret is invalid: data[key]: hunter2", false),
            (500, "hunter2", false),
        ] {
            let found = quotable(code, message, &secret);
            assert_eq!(found, is_quotable.then_some(message), "{code}");
        }
    }
}
