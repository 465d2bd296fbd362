//! What the spec of a sync asks for: its roles, its Secrets, and whether its source is valid. Pure.

use std::collections::BTreeSet;

use writ_api::configsync::{GitAuth, RoleRef, RoleRefKind, RootSyncSpec, SourceType};

use crate::{
    DefaultRole,
    model::{DELETION_POLICY, Sync, SyncKind},
};

/// The roles that a spec names, without duplicates, and the contradiction between its two lists if there is one.
///
/// If `override` and `overrides` differ, only the roles that both name are in force, so a contradiction never grants more
/// than either list.
pub fn roles_asked(spec: &RootSyncSpec) -> (Vec<RoleRef>, Option<String>) {
    let one = spec.override_.as_ref().and_then(|o| o.role_refs.as_ref());
    let other = spec.overrides.as_ref().and_then(|o| o.role_refs.as_ref());
    let set = |refs: &Vec<RoleRef>| refs.iter().cloned().map(normalized).collect::<BTreeSet<_>>();
    match (one.map(set), other.map(set)) {
        (Some(one), Some(other)) if one != other => (
            one.intersection(&other).cloned().collect(),
            Some("KNV1061: spec.override.roleRefs and spec.overrides.roleRefs differ; only roles that both name are bound: set one of them".into()),
        ),
        (Some(refs), _) | (None, Some(refs)) => (refs.into_iter().collect(), None),
        (None, None) => (Vec::new(), None),
    }
}

/// The roles in force: those of the spec, or the default role if the spec names none and does not contradict itself.
///
/// Returns the roles, the contradiction, and whether the default role is in force.
pub fn roles_in_force(
    kind: SyncKind,
    spec: &RootSyncSpec,
    default: DefaultRole,
) -> (Vec<RoleRef>, Option<String>, bool) {
    if kind == SyncKind::Repo {
        return (Vec::new(), None, false);
    }
    let (roles, problem) = roles_asked(spec);
    if roles.is_empty() && problem.is_none() && default == DefaultRole::ClusterAdmin {
        let admin = RoleRef {
            kind: RoleRefKind::ClusterRole,
            name: "cluster-admin".into(),
            namespace: None,
        };
        return (vec![admin], None, true);
    }
    (roles, problem, false)
}

/// An empty namespace is the same as none.
fn normalized(mut role: RoleRef) -> RoleRef {
    role.namespace = role.namespace.filter(|namespace| !namespace.is_empty());
    role
}

/// Why a sync is invalid as a whole, so that its source is not read. Its bindings do not depend on this: the roles of a
/// broken sync can still be narrowed.
pub fn invalid(sync: &Sync, spec: &RootSyncSpec) -> Option<String> {
    match sync.annotation(DELETION_POLICY) {
        Some(policy) if policy != "Foreground" && policy != "Orphan" => Some(format!(
            "the annotation {DELETION_POLICY} is {policy:?}; it must be Foreground or Orphan"
        )),
        _ => source_problem(sync.id.kind, spec),
    }
}

fn source_problem(kind: SyncKind, spec: &RootSyncSpec) -> Option<String> {
    if let Some(format) = spec.source_format.as_deref()
        && !["", "unstructured", "hierarchy"].contains(&format)
    {
        return Some(format!(
            "spec.sourceFormat is {format:?}; it must be hierarchy or unstructured"
        ));
    }
    if kind == SyncKind::Repo && spec.source_format.as_deref() == Some("hierarchy") {
        return Some("spec.sourceFormat of a RepoSync must be unstructured".into());
    }
    if spec.source_type != SourceType::Git {
        // Valid but not supported: the reconciler reports it.
        return None;
    }
    let Some(git) = &spec.git else {
        return Some("spec.git is missing, and spec.sourceType is git".into());
    };
    if git.repo.trim().is_empty() {
        return Some("spec.git.repo is empty".into());
    }
    let needs_secret = matches!(
        git.auth,
        GitAuth::Ssh | GitAuth::CookieFile | GitAuth::Token | GitAuth::GithubApp
    );
    let secret = git
        .secret_ref
        .as_ref()
        .and_then(|s| s.name.as_deref())
        .filter(|name| !name.is_empty());
    match (needs_secret, secret) {
        (true, None) => Some(format!(
            "spec.git.auth is {}, which needs spec.git.secretRef.name",
            git.auth.as_str()
        )),
        (false, Some(_)) => Some(format!(
            "spec.git.auth is {}, which takes no spec.git.secretRef",
            git.auth.as_str()
        )),
        _ => None,
    }
}

/// The Secrets that the source names. The reconciler must be able to read them.
pub fn secrets(spec: &RootSyncSpec) -> Vec<String> {
    let Some(git) = &spec.git else {
        return Vec::new();
    };
    [&git.secret_ref, &git.ca_cert_secret_ref]
        .into_iter()
        .flatten()
        .filter_map(|secret| secret.name.clone())
        .filter(|name| !name.is_empty())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}
