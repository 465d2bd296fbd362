//! What of an entry can never work, as far as the spec alone tells.

use k8s_openapi::{api::rbac::v1::Subject, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::core::Selector;
use writ_api::rbac::cluster_permission::{
    BindingRoleRef, ClusterRoleBinding, HubRoleRef, MANAGED_SERVICE_ACCOUNT_GROUP,
    MANAGED_SERVICE_ACCOUNT_KIND, RBAC_GROUP, Role, RoleBinding,
};
use writ_runtime::segment;

use crate::cluster_permission::model::Problem;

/// What is wrong with a ClusterRoleBinding, its subjects aside.
pub fn cluster_role_binding(field: &str, binding: &ClusterRoleBinding) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(rbac_name(&format!("{field}.name"), binding.name.as_deref()));
    if let Some(role) = &binding.role_ref {
        if role.kind != "ClusterRole" {
            problems.push(Problem::new(
                format!("{field}.roleRef.kind"),
                format!("is {:?}; a ClusterRoleBinding binds a ClusterRole", role.kind),
            ));
        }
        problems.extend(role_group(
            &format!("{field}.roleRef.apiGroup"),
            role.api_group.as_deref(),
        ));
        let field = format!("{field}.roleRef.name");
        problems.extend(required_name(&field, &role.name));
        problems.extend(referred_name(&field, Some(&role.name)));
    }
    problems
}

/// What is wrong with a Role.
pub fn role(field: &str, role: &Role) -> Vec<Problem> {
    place(
        field,
        "Role",
        role.namespace.as_deref(),
        role.namespace_selector.as_ref(),
    )
}

/// What is wrong with a RoleBinding, its subjects aside.
pub fn role_binding(field: &str, binding: &RoleBinding) -> Vec<Problem> {
    let mut problems = place(
        field,
        "RoleBinding",
        binding.namespace.as_deref(),
        binding.namespace_selector.as_ref(),
    );
    problems.extend(rbac_name(&format!("{field}.name"), binding.name.as_deref()));
    let BindingRoleRef {
        api_group,
        kind,
        name,
    } = &binding.role_ref;
    if kind != "Role" && kind != "ClusterRole" {
        problems.push(Problem::new(
            format!("{field}.roleRef.kind"),
            format!("is {kind:?}; it can be Role or ClusterRole"),
        ));
    }
    let (group, name) = (filled(api_group.as_deref()), filled(name.as_deref()));
    let place =
        filled(binding.namespace.as_deref()).map_or("selected".into(), |ns| format!("for Namespace {ns}"));
    match (group, name) {
        (None, Some(_)) => problems.push(Problem::new(
            format!("{field}.roleRef.apiGroup"),
            format!("the RoleBinding {place} missing APIGroup for the RoleRef: write {RBAC_GROUP}"),
        )),
        (Some(_), None) => problems.push(Problem::new(
            format!("{field}.roleRef.name"),
            format!(
                "the RoleBinding {place} missing Name for the RoleRef: name the role, or leave apiGroup out"
            ),
        )),
        _ => {}
    }
    problems.extend(role_group(&format!("{field}.roleRef.apiGroup"), group));
    problems.extend(referred_name(&format!("{field}.roleRef.name"), name));
    problems
}

/// What is wrong with a reference to a role of the hub.
pub fn hub_role_ref(field: &str, reference: &HubRoleRef) -> Vec<Problem> {
    let mut problems = Vec::new();
    let namespace = filled(reference.namespace.as_deref());
    match (reference.kind.as_str(), namespace) {
        ("ClusterRole", None) | ("Role", Some(_)) => {}
        ("ClusterRole", Some(_)) => problems.push(Problem::new(
            format!("{field}.namespace"),
            "a ClusterRole has no namespace: leave it out",
        )),
        ("Role", None) => problems.push(Problem::new(
            format!("{field}.namespace"),
            "a Role is in a namespace: name it",
        )),
        (kind, _) => problems.push(Problem::new(
            format!("{field}.kind"),
            format!("is {kind:?}; it can be Role or ClusterRole"),
        )),
    }
    problems.extend(role_group(
        &format!("{field}.apiGroup"),
        reference.api_group.as_deref(),
    ));
    problems.extend(required_name(&format!("{field}.name"), &reference.name));
    problems.extend(rbac_name(&format!("{field}.name"), Some(&reference.name)));
    problems.extend(namespace.and_then(|ns| namespace_name(&format!("{field}.namespace"), ns)));
    problems
}

/// The problem of a binding without subjects.
pub fn no_subjects(field: &str) -> Problem {
    Problem::new(
        format!("{field}.subjects"),
        "is empty: a binding without subjects grants nothing; name one, or remove the binding",
    )
}

/// What is wrong with one subject.
pub fn subject(field: &str, subject: &Subject, namespaced: bool) -> Vec<Problem> {
    let group = filled(subject.api_group.as_deref());
    let mut problems = Vec::new();
    if subject.name.is_empty() {
        problems.push(Problem::new(
            format!("{field}.name"),
            "is empty: name the subject",
        ));
    }
    if matches!(
        subject.kind.as_str(),
        "ServiceAccount" | MANAGED_SERVICE_ACCOUNT_KIND
    ) {
        problems.extend(account_name(&format!("{field}.name"), &subject.name));
        let namespace = filled(subject.namespace.as_deref());
        problems.extend(namespace.and_then(|ns| namespace_name(&format!("{field}.namespace"), ns)));
    }
    let expected = match subject.kind.as_str() {
        "User" | "Group" => group.is_none_or(|g| g == RBAC_GROUP),
        "ServiceAccount" => {
            if !namespaced && filled(subject.namespace.as_deref()).is_none() {
                problems.push(Problem::new(
                    format!("{field}.namespace"),
                    "is empty: the ServiceAccount of a ClusterRoleBinding needs its namespace",
                ));
            }
            group.is_none()
        }
        MANAGED_SERVICE_ACCOUNT_KIND => group == Some(MANAGED_SERVICE_ACCOUNT_GROUP),
        kind => {
            problems.push(Problem::new(
                format!("{field}.kind"),
                format!("is {kind:?}; it can be User, Group, ServiceAccount or ManagedServiceAccount"),
            ));
            true
        }
    };
    if !expected {
        let (kind, right) = (
            subject.kind.as_str(),
            match subject.kind.as_str() {
                "ServiceAccount" => "empty",
                MANAGED_SERVICE_ACCOUNT_KIND => MANAGED_SERVICE_ACCOUNT_GROUP,
                _ => RBAC_GROUP,
            },
        );
        problems.push(Problem::new(
            format!("{field}.apiGroup"),
            format!(
                "is {:?}; for the kind {kind} it is {right}",
                group.unwrap_or_default()
            ),
        ));
    }
    problems
}

/// A selector that can be evaluated, or what is wrong with it.
pub fn selector(field: &str, selector: &LabelSelector) -> Result<Selector, Problem> {
    for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{i}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                return Err(Problem::new(
                    format!("{field}.values"),
                    format!("is empty: the operator {} needs values", requirement.operator),
                ));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err(Problem::new(
                    format!("{field}.values"),
                    format!("the operator {} takes no values", requirement.operator),
                ));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                return Err(Problem::new(
                    format!("{field}.operator"),
                    format!("is {other:?}; it can be In, NotIn, Exists or DoesNotExist"),
                ));
            }
        }
    }
    Selector::try_from(selector.clone()).map_err(|e| Problem::new(field, e.to_string()))
}

/// A text that is present and not empty; clients in Go write absent texts as empty ones.
pub fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn place(field: &str, kind: &str, namespace: Option<&str>, labels: Option<&LabelSelector>) -> Vec<Problem> {
    match (filled(namespace), labels) {
        (None, None) => vec![Problem::new(
            field,
            format!("both {kind} Namespace and NamespaceSelector cannot be nil and empty: write one of them"),
        )],
        (Some(_), Some(_)) => vec![Problem::new(
            field,
            format!(
                "both {kind} Namespace and NamespaceSelector cannot populated at the same time: keep one of them"
            ),
        )],
        (Some(name), None) => namespace_name(&format!("{field}.namespace"), name)
            .into_iter()
            .collect(),
        (None, Some(labels)) => selector(&format!("{field}.namespaceSelector"), labels)
            .err()
            .into_iter()
            .collect(),
    }
}

fn role_group(field: &str, group: Option<&str>) -> Option<Problem> {
    let group = filled(group).filter(|group| *group != RBAC_GROUP)?;
    Some(Problem::new(
        field,
        format!("is {group:?}; a role is of {RBAC_GROUP}"),
    ))
}

fn required_name(field: &str, name: &str) -> Option<Problem> {
    name.is_empty()
        .then(|| Problem::new(field, "is empty: name the role"))
}

/// The name of a role or binding that is made, or of a role of the hub. It becomes part of a URL, so the rule for the manifests
/// of a work applies: a name that admission refuses there would have the whole work refused.
fn rbac_name(field: &str, name: Option<&str>) -> Option<Problem> {
    let name = filled(name)?;
    match segment::check("the name", name) {
        Err(words) => Some(Problem::new(field, words)),
        Ok(()) => overlong(field, name),
    }
}

/// The name of a role that a binding only refers to. It is part of no URL: any name that Kubernetes accepts in a `roleRef`.
fn referred_name(field: &str, name: Option<&str>) -> Option<Problem> {
    let name = filled(name)?;
    if name == "." || name == ".." || name.contains('/') || name.contains('%') {
        return Some(Problem::new(
            field,
            format!("is {name:?}; the name of a role cannot be . or .. and cannot contain / or %"),
        ));
    }
    overlong(field, name)
}

fn overlong(field: &str, name: &str) -> Option<Problem> {
    (name.len() > 253).then(|| {
        Problem::new(
            field,
            format!("has {} characters; at most 253 are allowed", name.len()),
        )
    })
}

/// The name of a ServiceAccount: labels with dots between them.
fn account_name(field: &str, name: &str) -> Option<Problem> {
    (!segment::is_subdomain(name) && !name.is_empty()).then(|| {
        Problem::new(
            field,
            format!("is {name:?}; a ServiceAccount has at most 253 lower case letters, digits, inner dashes and dots"),
        )
    })
}

fn namespace_name(field: &str, name: &str) -> Option<Problem> {
    (!segment::is_label(name)).then(|| {
        Problem::new(
            field,
            format!("is {name:?}; a namespace has at most 63 lower case letters, digits and inner dashes"),
        )
    })
}
