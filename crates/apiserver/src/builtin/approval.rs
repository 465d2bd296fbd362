//! Whether the community approved a definition in one of its own groups.

use serde_json::Value;

use crate::go_url::GoUrl;

/// Says where it was approved, or why it was not.
pub(crate) const ANNOTATION: &str = "api-approved.kubernetes.io";

/// What the annotation of a definition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Approval {
    Missing,
    Invalid(String),
    Bypassed(String),
    Approved(String),
}

impl Approval {
    /// Nothing of a definition whose group needs no approval.
    pub fn of(crd: &Value) -> Option<Self> {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/spec/group");
        let protected = ["k8s.io", "kubernetes.io"]
            .iter()
            .any(|all| group == *all || group.ends_with(&format!(".{all}")));
        let given = text("/metadata/annotations/api-approved.kubernetes.io").to_owned();
        protected.then(|| {
            if given.is_empty() {
                Self::Missing
            } else if given.starts_with("unapproved") {
                Self::Bypassed(given)
            } else if is_place(&given) {
                Self::Approved(given)
            } else {
                Self::Invalid(given)
            }
        })
    }

    /// The status, reason and message of the condition about it.
    pub fn condition(&self) -> (&'static str, &'static str, String) {
        match self {
            Self::Missing | Self::Invalid(_) => {
                let reason = match self {
                    Self::Missing => "MissingAnnotation",
                    _ => "InvalidAnnotation",
                };
                ("False", reason, self.problem().unwrap_or_default())
            }
            Self::Bypassed(why) => ("False", "UnapprovedAnnotation", format!("not approved: {why:?}")),
            Self::Approved(place) => ("True", "ApprovedAnnotation", format!("approved in {place}")),
        }
    }

    /// Why a definition that says so is refused.
    pub fn problem(&self) -> Option<String> {
        let more = match self {
            Self::Missing => "",
            Self::Invalid(_) => " with either a URL or a reason starting with \"unapproved\"",
            Self::Bypassed(_) | Self::Approved(_) => return None,
        };
        Some(format!(
            "protected groups must have approval annotation \"{ANNOTATION}\"{more}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        ))
    }
}

fn is_place(text: &str) -> bool {
    GoUrl::check_request(text).is_ok()
        && GoUrl::parse(text).is_ok_and(|url| !url.scheme.is_empty() && !url.host().is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_of_the_community_say_who_approved_them() {
        for (group, annotation, wanted) in [
            ("example.com", "", None),
            ("notk8s.io", "", None),
            ("k8s.io", "", Some(("False", "MissingAnnotation"))),
            ("a.kubernetes.io", "", Some(("False", "MissingAnnotation"))),
            ("a.k8s.io", "nobody", Some(("False", "InvalidAnnotation"))),
            ("a.k8s.io", "https://", Some(("False", "InvalidAnnotation"))),
            ("a.k8s.io", "/only/a/path", Some(("False", "InvalidAnnotation"))),
            (
                "a.k8s.io",
                "unapproved, a trial",
                Some(("False", "UnapprovedAnnotation")),
            ),
            (
                "a.k8s.io",
                "https://example.com/1",
                Some(("True", "ApprovedAnnotation")),
            ),
        ] {
            let crd = json!({ "spec": { "group": group }, "metadata": { "annotations": { ANNOTATION: annotation } } });
            let found = Approval::of(&crd);
            let said = found.as_ref().map(Approval::condition);
            assert_eq!(
                said.map(|(status, reason, _)| (status, reason)),
                wanted,
                "{group} {annotation}"
            );
            let refused = matches!(wanted, Some((_, "MissingAnnotation" | "InvalidAnnotation")));
            assert_eq!(
                found.and_then(|found| found.problem()).is_some(),
                refused,
                "{group} {annotation}"
            );
        }
    }
}
