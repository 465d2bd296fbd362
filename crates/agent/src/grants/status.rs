//! Pure: the status of a grant.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use writ_api::writ::namespace_grant::{GrantedNamespace, NamespaceGrantStatus};
use writ_controller::condition::{self, Wanted, clip};

use super::model::{Active, Outcome};

/// How many namespaces a status lists.
pub const MAX_NAMESPACES: usize = 1000;
/// How many bytes of text the hub reads of a status.
const MAX_SUMMARY: usize = 900;

/// The status of a grant, or `None` while a namespace that it selects or selected is not reconciled for this generation.
pub fn status(
    active: &Active,
    selected: &BTreeSet<String>,
    outcomes: &BTreeMap<String, Outcome>,
    now: Timestamp,
) -> Option<NamespaceGrantStatus> {
    let generation = active.grant.metadata.generation;
    let mut namespaces = Vec::with_capacity(selected.len());
    for name in selected {
        let outcome = outcomes.get(name).filter(|o| o.generation >= generation)?;
        namespaces.push(GrantedNamespace {
            name: name.clone(),
            ready: outcome.failure.is_none(),
            message: outcome.failure.as_deref().map(|why| clip(why, 300)),
        });
    }
    let total = namespaces.len();
    let ready = namespaces.iter().filter(|n| n.ready).count();
    for (name, outcome) in outcomes.iter().filter(|(name, _)| !selected.contains(*name)) {
        if outcome.generation < generation {
            return None;
        }
        let Some(why) = &outcome.failure else { continue };
        namespaces.push(GrantedNamespace {
            name: name.clone(),
            ready: false,
            message: Some(clip(&format!("it is not selected any more, but {why}"), 300)),
        });
    }
    namespaces.sort_by_key(|n| n.ready);
    let roles_missing = active.grant.spec.validate.filter(|asked| *asked).map(|_| {
        let without = selected
            .iter()
            .filter(|name| outcomes.get(*name).is_some_and(|o| o.roleless));
        let role = active.grant.spec.role_ref.as_ref().map(|r| r.name.as_str());
        let names: Vec<String> = without
            .map(|name| format!("{name}/{}", role.unwrap_or_default()))
            .collect();
        clip(&names.join(", "), MAX_SUMMARY)
    });
    let count = |n: usize| i64::try_from(n).ok();
    let failed = namespaces.iter().filter(|n| !n.ready).count();
    // The hub reads the summary only, so a problem of the whole grant has to be there too.
    let summary = active
        .invalid()
        .map(ToOwned::to_owned)
        .or_else(|| summary(&namespaces, failed));
    let (holds, reason, message) = if let Some(invalid) = active.invalid() {
        (false, "Invalid", invalid.to_owned())
    } else if failed > 0 {
        (false, "NamespacesFailing", summary.clone().unwrap_or_default())
    } else {
        (true, "Granted", format!("in {total} namespaces"))
    };
    let mut conditions = active
        .grant
        .status
        .as_ref()
        .map(|s| s.conditions.clone())
        .unwrap_or_default();
    condition::set(
        &mut conditions,
        &Wanted::new("Ready", holds, reason, message),
        generation,
        now,
    );
    let omitted = namespaces.len().saturating_sub(MAX_NAMESPACES);
    namespaces.truncate(MAX_NAMESPACES);
    Some(NamespaceGrantStatus {
        observed_generation: generation,
        selected: count(total),
        ready: count(ready),
        failed: count(failed),
        summary,
        roles_missing,
        namespaces,
        omitted: count(omitted).filter(|n| *n > 0),
        conditions,
    })
}

/// The first failing namespaces, as text.
fn summary(namespaces: &[GrantedNamespace], failed: usize) -> Option<String> {
    let first = namespaces.iter().find(|n| !n.ready)?;
    let mut text = String::new();
    for (i, namespace) in namespaces.iter().take(failed).enumerate() {
        let message = namespace.message.as_deref().unwrap_or_default();
        let part = format!("{}{}: {message}", if i > 0 { "; " } else { "" }, namespace.name);
        if text.len() + part.len() > MAX_SUMMARY - 40 {
            text = format!("{text}; {} of {} namespaces fail", failed, namespaces.len());
            break;
        }
        text.push_str(&part);
    }
    if text.is_empty() {
        text.clone_from(&first.name);
    }
    Some(clip(&text, MAX_SUMMARY))
}
