//! Pure: from a work's manifests, the RBAC of the cluster and the answers so far to a verdict, or to the questions
//! that are still open.

use std::collections::{BTreeMap, BTreeSet};

use writ_api::work::ExecutorServiceAccount;

use super::{
    access_review::needed_verbs,
    agent_objects,
    escalation::{self, RolesOfWork},
    lookup::{Comparisons, Evaluation, EvaluationInput, Lookup},
    model::AccessQuestion,
};
use crate::work::{
    model::{PlannedManifest, Refused, Verdict},
    options::ExecutorGranularity,
    plan::rbac::bound_role,
};

/// How many names a message lists; of the others it gives the number.
const NAMES: usize = 10;

/// Why a manifest is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Denial {
    /// These verbs are not allowed.
    Verbs(Vec<&'static str>),
    /// The executor may not learn anything about its object either.
    Closed(String),
    /// Any other reason.
    Other(String),
}

/// The verdict, or what has to be asked first. `comparisons` may hold those of an earlier evaluation of the same work
/// with the same RBAC objects.
pub fn evaluate(input: &EvaluationInput<'_>, comparisons: &mut Comparisons) -> Evaluation {
    let mut lookup = Lookup::new(input, comparisons);
    let mut denials: BTreeMap<usize, Denial> = BTreeMap::new();
    // Bindings come last: of the work's roles only those that will be written count for them.
    let binds = |manifest: &&PlannedManifest| {
        let target = manifest.target.as_ref();
        target.is_ok_and(|target| bound_role(target).is_some())
    };
    let (bindings, others): (Vec<&PlannedManifest>, Vec<&PlannedManifest>) =
        input.manifests.iter().partition(binds);
    for manifest in others {
        if let Some(denial) = deny(manifest, &RolesOfWork::default(), &mut lookup) {
            denials.insert(manifest.ordinal, denial);
        }
    }
    let is_accepted = |manifest: &&PlannedManifest| !denials.contains_key(&manifest.ordinal);
    let roles = if bindings.is_empty() {
        RolesOfWork::default()
    } else {
        RolesOfWork::new(input.manifests.iter().filter(is_accepted))
    };
    for manifest in bindings {
        if let Some(denial) = deny(manifest, &roles, &mut lookup) {
            denials.insert(manifest.ordinal, denial);
        }
    }
    if !lookup.open.is_empty() {
        return Evaluation::Ask(lookup.open);
    }
    if denials.is_empty() {
        return Evaluation::Verdict(Verdict::default());
    }
    Evaluation::Verdict(verdict(input, &denials, lookup.is_unsettled))
}

fn deny(manifest: &PlannedManifest, roles: &RolesOfWork, lookup: &mut Lookup<'_>) -> Option<Denial> {
    let target = match &manifest.target {
        Ok(target) => target,
        Err(problem) => return Some(Denial::Closed(problem.clone())),
    };
    if let Some(reason) = agent_objects::why_protected(target, lookup.input) {
        return Some(Denial::Closed(reason));
    }
    let missing: Vec<&'static str> = needed_verbs(target)
        .into_iter()
        .filter(|verb| {
            let question = AccessQuestion::about(verb, target);
            // If RBAC allows all names and the server does not, it lags behind: single names would not tell more.
            !lookup
                .is_allowed_for_all_names(&question)
                .unwrap_or_else(|| lookup.is_allowed(&question))
        })
        .collect();
    if !missing.is_empty() {
        return Some(Denial::Verbs(missing));
    }
    if !target.is_written() {
        return None;
    }
    escalation::check(manifest, target, roles, lookup)
        .err()
        .map(|reason| Denial::Other(format!("permission escalation: {reason}")))
}

fn verdict(input: &EvaluationInput<'_>, denials: &BTreeMap<usize, Denial>, is_unsettled: bool) -> Verdict {
    let mut refused = BTreeMap::new();
    let mut readable = BTreeSet::new();
    for manifest in input.manifests {
        let is_closed = match denials.get(&manifest.ordinal) {
            Some(Denial::Verbs(verbs)) => verbs.contains(&"get"),
            Some(Denial::Closed(_)) => true,
            Some(Denial::Other(_)) | None => false,
        };
        if !is_closed {
            readable.insert(manifest.ordinal);
        }
        let refusal = match denials.get(&manifest.ordinal) {
            Some(denial) => Refused::Denied(explain(manifest, denial, input.executor)),
            None if input.granularity == ExecutorGranularity::Work => Refused::HeldBack(
                "Held back: other manifests of this work are refused, see the condition of the work".into(),
            ),
            None => continue,
        };
        refused.insert(manifest.ordinal, refusal);
    }
    Verdict {
        refusal: Some(summarize(input, denials)),
        refused,
        readable,
        unsettled: is_unsettled,
    }
}

fn explain(manifest: &PlannedManifest, denial: &Denial, executor: &ExecutorServiceAccount) -> String {
    let meta = &manifest.meta;
    let object = format!(
        "not allowed to apply the resource {} {}, {} {}",
        meta.group, meta.resource, meta.namespace, meta.name
    );
    match denial {
        Denial::Verbs(verbs) => format!("{object}: {} may not {}", executor.user(), verbs.join(", ")),
        Denial::Closed(reason) if manifest.target.is_err() => reason.clone(),
        Denial::Closed(reason) | Denial::Other(reason) => format!("{object}, error: {reason}"),
    }
}

/// The denials, grouped by verb, resource and namespace.
fn summarize(input: &EvaluationInput<'_>, denials: &BTreeMap<usize, Denial>) -> String {
    let mut groups: BTreeMap<(String, String, String), Vec<&str>> = BTreeMap::new();
    for manifest in input.manifests {
        let meta = &manifest.meta;
        let resource = match (meta.resource.is_empty(), meta.group.is_empty()) {
            (true, _) => meta.kind.clone(),
            (false, true) => meta.resource.clone(),
            (false, false) => format!("{}.{}", meta.resource, meta.group),
        };
        let mut add = |what: String| {
            groups
                .entry((what, resource.clone(), meta.namespace.clone()))
                .or_default()
                .push(&meta.name);
        };
        match denials.get(&manifest.ordinal) {
            Some(Denial::Verbs(verbs)) => verbs.iter().for_each(|verb| add(format!("may not {verb}"))),
            Some(Denial::Closed(reason)) if manifest.target.is_err() => add(format!("cannot map ({reason})")),
            Some(Denial::Closed(reason) | Denial::Other(reason)) => add(format!("may not write ({reason})")),
            None => {}
        }
    }
    let mut lines = vec![format!(
        "Failed to apply manifest work: {} of {} manifests are refused for executor {}",
        denials.len(),
        input.manifests.len(),
        input.executor.user()
    )];
    for ((what, resource, namespace), names) in groups {
        let place = if namespace.is_empty() {
            String::new()
        } else {
            format!(" in namespace {namespace}")
        };
        let shown = names.iter().take(NAMES).copied().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!(
            "{what} {resource}{place}: {} ({shown}{more})",
            names.len()
        ));
    }
    lines.join("\n")
}
