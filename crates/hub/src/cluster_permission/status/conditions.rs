//! Pure: from the plan, the reports of the agent and the answers of the hub to the status of a permission.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::Value;
use writ_api::{
    rbac::cluster_permission::{ClusterPermissionStatus, NamespaceSelection},
    work::ManifestWork,
};
use writ_controller::condition::{self, Status, Wanted, clip};

use super::{
    build::{Item, Purpose},
    names,
    plan::{Invalid, Observation, Plan, words},
    progress::{Progress, Waiting, left, progress, with_left},
    report::{self, Feedback, Selected, id, reports},
};

/// How many problems, subjects or objects a message names.
const MAX_WORDS: usize = 10;
/// How many bytes a message has.
const MAX_MESSAGE: usize = 16 * 1024;

/// The reason while the agent has not applied everything.
const NOT_COMPLETE: &str = "ApplyRBACManifestWorkNotComplete";
/// The reason while the hub has not read something that the answer depends on.
const NOT_READ: &str = "NotReadYet";
/// The reason where nobody can look for a role, because of its name.
const CANNOT_LOOK: &str = "CannotBeLookedUp";
/// The reason where a permission has nothing but selectors and these select nothing: that is an answer, not an error.
const NOTHING_SELECTED: &str = "NothingSelected";
const NOTHING_TO_DELIVER: &str =
    "the selectors select no namespace of the hub, so there is nothing to deliver";

/// The answers of the hub to the writes of works, by number: what it said to the ones that it refused.
pub type Refused = BTreeMap<usize, String>;

/// The status that the permission shall have.
pub fn status(seen: &Observation<'_>, plan: &Plan, refused: &Refused) -> ClusterPermissionStatus {
    let mut status = seen.permission.status.clone().unwrap_or_default();
    let generation = seen.permission.metadata.generation;
    let waiting = Waiting::new(seen.permission, seen.cluster, seen.now);
    let progress = progress(seen, plan, refused, &waiting);
    let selections = report::selections(seen, plan);
    let left = left(seen, plan, &selections, &waiting);
    let left = left.as_deref();
    let roles = checked(seen, plan, "Role");
    let cluster_roles = checked(seen, plan, "ClusterRole");

    let mut wanted = vec![
        validation(plan),
        subject_present(seen, plan, left),
        created(seen, plan, refused),
        told(applied(seen, plan, refused, &progress), left),
    ];
    wanted.extend(exist("ValidateRolesExist", "Roles", "roles", roles.as_ref()));
    wanted.extend(exist(
        "ValidateClusterRolesExist",
        "ClusterRoles",
        "cluster roles",
        cluster_roles.as_ref(),
    ));
    let ready = ready(plan, &wanted, &progress, &selections, left);
    wanted.push(told(ready, left));
    status
        .conditions
        .retain(|c| wanted.iter().any(|w| w.type_ == c.type_));
    for condition in &wanted {
        condition::set(&mut status.conditions, condition, generation, seen.now);
    }
    status.resource_status = report::resources(seen, plan, status.resource_status.as_ref());
    status.subjects = subjects(&plan.built.subjects);
    status.namespace_selections = report::bounded(selections);
    status
}

/// A condition that also says what is left.
fn told(condition: Wanted, left: Option<&str>) -> Wanted {
    Wanted {
        message: with_left(&condition.message, left),
        ..condition
    }
}

fn validation(plan: &Plan) -> Wanted {
    let (holds, reason, message) = match plan.invalid {
        None => (true, "Valid", "the permission can be delivered"),
        Some(Invalid::Empty) => (false, "FailedValidationNoBindingsDefined", "no bindings defined"),
        Some(Invalid::NoCluster) => (
            false,
            "FailedValidationNotInManagedClusterNamespace",
            "namespace value is not a managed cluster",
        ),
    };
    Wanted::new("Validation", holds, reason, message)
}

fn subject_present(seen: &Observation<'_>, plan: &Plan, left: Option<&str>) -> Wanted {
    let missing = &plan.built.missing;
    if missing.is_empty() && seen.unread.accounts {
        return Wanted::new("SubjectPresent", Status::Unknown, NOT_READ, not_read(plan));
    }
    if missing.is_empty() {
        return Wanted::new(
            "SubjectPresent",
            true,
            "AllSubjectsPresent",
            "every subject is there",
        );
    }
    let mut words: Vec<String> = missing.iter().take(MAX_WORDS).cloned().collect();
    if missing.len() > MAX_WORDS {
        words.push(format!("and {} more", missing.len() - MAX_WORDS));
    }
    let what = if left.is_some() {
        "what was granted to it may still be in force"
    } else {
        "what was granted to it is revoked until it is there"
    };
    let message = with_left(&format!("{}; {what}", words.join("; ")), left);
    Wanted::new("SubjectPresent", false, "SubjectNotFound", message)
}

fn not_read(plan: &Plan) -> String {
    let kinds: Vec<&str> = plan.built.unread.iter().copied().collect();
    format!(
        "the hub has not been able to read {} yet: what depends on them stays as it was; the log of the hub says why",
        kinds.join(", ")
    )
}

/// Whether all entries are ones with selectors, evaluated by the hub, that select nothing, and nothing is left of what
/// they selected before.
fn selects_nothing(seen: &Observation<'_>, plan: &Plan) -> bool {
    let built = &plan.built;
    !built.selected_by_hub.is_empty()
        && built.items.is_empty()
        && built.problems.is_empty()
        && built.missing.is_empty()
        && plan.invalid.is_none()
        && seen.works.is_empty()
}

fn created(seen: &Observation<'_>, plan: &Plan, refused: &Refused) -> Wanted {
    const TYPE: &str = "RBACManifestWorkCreated";
    if !refused.is_empty() {
        return Wanted::new(TYPE, false, "ManifestWorkRefused", refusal(seen, refused));
    }
    if selects_nothing(seen, plan) {
        return Wanted::new(TYPE, true, NOTHING_SELECTED, NOTHING_TO_DELIVER);
    }
    if plan.works.is_empty() {
        return Wanted::new(TYPE, false, "NothingToDeliver", "there is nothing to deliver");
    }
    let names: Vec<String> = plan.works.values().map(ManifestWork::name_any).collect();
    Wanted::new(
        TYPE,
        true,
        "ManifestWorkCreated",
        format!("ManifestWork {}", clip(&names.join(", "), 1000)),
    )
}

fn applied(
    seen: &Observation<'_>,
    plan: &Plan,
    refused: &Refused,
    progress: &[(usize, Progress<'_>)],
) -> Wanted {
    const TYPE: &str = "AppliedRBACManifestWork";
    let namespace = seen.permission.namespace().unwrap_or_default();
    let hint = |number: usize| {
        format!(
            "Run the following command to check the ManifestWork status:\nkubectl -n {namespace} get ManifestWork {} -o yaml",
            names::work(seen.permission, number)
        )
    };
    if !plan.built.problems.is_empty() {
        let failed = progress.iter().filter(|(_, p)| matches!(p, Progress::Failed(_)));
        let mut message = vec![words(&plan.built.problems, MAX_WORDS)];
        message.extend(failed.map(|(number, _)| failures(seen, *number)));
        let message = clip(&message.join("; "), MAX_MESSAGE);
        return Wanted::new(TYPE, false, "FailedBuildManifestWork", message);
    }
    if !refused.is_empty() {
        return Wanted::new(TYPE, false, "ManifestWorkRefused", refusal(seen, refused));
    }
    let failed = progress.iter().find_map(|(number, p)| match p {
        Progress::Failed(condition) => Some((number, condition)),
        _ => None,
    });
    if let Some((number, condition)) = failed {
        let message = format!(
            "{}: {}\n{}",
            condition.message,
            failures(seen, *number),
            hint(*number)
        );
        return Wanted::new(TYPE, false, &condition.reason, message);
    }
    let pending = progress.iter().find_map(|(number, p)| match p {
        Progress::Pending(why) => Some((number, why)),
        _ => None,
    });
    if let Some((number, why)) = pending {
        let message = format!("Apply RBAC manifestWork not complete\n{why}\n{}", hint(*number));
        return Wanted::new(TYPE, false, NOT_COMPLETE, message);
    }
    if selects_nothing(seen, plan) {
        return Wanted::new(TYPE, true, NOTHING_SELECTED, NOTHING_TO_DELIVER);
    }
    match progress.first() {
        Some((number, Progress::Done(condition))) => {
            let message = format!("{}\n{}", condition.message, hint(*number));
            Wanted::new(TYPE, true, &condition.reason, message)
        }
        _ => Wanted::new(TYPE, false, NOT_COMPLETE, "there is nothing to apply"),
    }
}

/// One sentence for people and for `kubectl wait`.
fn ready(
    plan: &Plan,
    conditions: &[Wanted],
    progress: &[(usize, Progress<'_>)],
    selections: &[(NamespaceSelection, Selected)],
    left: Option<&str>,
) -> Wanted {
    // What somebody can put right comes before what follows from it.
    let named = |type_: &str| {
        conditions
            .iter()
            .find(|c| c.type_ == type_ && c.status == Status::False)
    };
    if named("Validation").is_none() && !plan.built.unread.is_empty() {
        return Wanted::new("Ready", false, NOT_READ, not_read(plan));
    }
    let broken = named("Validation")
        .or_else(|| named("AppliedRBACManifestWork").filter(|_| !plan.built.problems.is_empty()))
        .or_else(|| named("SubjectPresent"))
        .or_else(|| conditions.iter().find(|c| c.status == Status::False));
    if let Some(broken) = broken {
        let pending = progress.iter().any(|(_, p)| matches!(p, Progress::Pending(_)));
        let reason = if broken.type_ == "AppliedRBACManifestWork" && pending && plan.built.problems.is_empty()
        {
            "Pending"
        } else {
            &broken.reason
        };
        return Wanted::new("Ready", false, reason, &broken.message);
    }
    for (selection, state) in selections {
        let (reason, words) = match state {
            Selected::Done => continue,
            Selected::Pending => ("Pending", "the agent has not reported yet"),
            Selected::Failing => (
                "NamespacesFailing",
                selection.message.as_deref().unwrap_or_default(),
            ),
        };
        return Wanted::new("Ready", false, reason, format!("{}: {words}", selection.field));
    }
    if let Some(left) = left {
        return Wanted::new("Ready", false, "RevocationPending", format!("revocation {left}"));
    }
    if let Some(unknown) = conditions.iter().find(|c| c.status == Status::Unknown) {
        // Nobody waits for what will not come.
        let reason = if unknown.reason == CANNOT_LOOK {
            CANNOT_LOOK
        } else {
            "Pending"
        };
        return Wanted::new("Ready", false, reason, &unknown.message);
    }
    let nothing = conditions.iter().find(|c| c.reason == NOTHING_SELECTED);
    let message = nothing.map_or(
        "the managed cluster has everything that this permission wants",
        |c| &c.message,
    );
    Wanted::new("Ready", true, "Granted", message)
}

fn refusal(seen: &Observation<'_>, refused: &Refused) -> String {
    let texts = refused
        .iter()
        .map(|(number, text)| format!("ManifestWork {}: {text}", names::work(seen.permission, *number)));
    clip(&texts.collect::<Vec<_>>().join("; "), 4096)
}

/// The objects of a work that the agent could not apply, with its words.
fn failures(seen: &Observation<'_>, number: usize) -> String {
    let reports = seen.works.get(&number).and_then(|w| w.status.as_ref());
    let mut words: Vec<String> = reports
        .iter()
        .flat_map(|s| &s.resource_status.manifests)
        .filter_map(|report| {
            let applied = condition::find(&report.conditions, "Applied")?;
            (applied.status != "True").then(|| format!("{}: {}", id(report), clip(&applied.message, 500)))
        })
        .collect();
    let more = words.len().saturating_sub(MAX_WORDS);
    words.truncate(MAX_WORDS);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join("; ")
}

/// The roles that are only looked at: which are missing, whether the agent has looked at all, and why it cannot.
struct Checked {
    missing: Vec<String>,
    unknown: bool,
    unsearchable: Vec<String>,
}

fn checked(seen: &Observation<'_>, plan: &Plan, kind: &str) -> Option<Checked> {
    if seen.permission.spec.validate != Some(true) {
        return None;
    }
    let reports = reports(seen, plan);
    let unsearchable = plan.built.unsearchable.iter().filter(|(of, _)| *of == kind);
    let mut checked = Checked {
        missing: Vec::new(),
        unknown: plan.built.unchecked.contains(kind),
        unsearchable: unsearchable.map(|(_, words)| words.clone()).collect(),
    };
    let stubs = plan
        .built
        .items
        .iter()
        .filter(|i| i.purpose == Purpose::Check && i.id.kind == kind);
    for Item { id, .. } in stubs {
        let available = reports
            .get(id)
            .and_then(|(report, _)| condition::find(&report.conditions, "Available"));
        match available.map(|c| c.status.as_str()) {
            Some("True") => {}
            Some("False") if id.namespace.is_empty() => checked.missing.push(id.name.clone()),
            Some("False") => checked.missing.push(format!("{}/{}", id.namespace, id.name)),
            _ => checked.unknown = true,
        }
    }
    let grants = plan.built.items.iter().filter(|item| {
        let asked = item.manifest.pointer("/spec/validate") == Some(&Value::Bool(true));
        item.purpose == Purpose::Grant && kind == "Role" && asked
    });
    for Item { id, .. } in grants {
        let said = Feedback::of(reports.get(id).map(|(report, _)| *report));
        checked.unknown |= !said.is_current();
        let missing = said.text("rolesMissing").filter(|_| said.is_current());
        checked.missing.extend(missing.map(ToOwned::to_owned));
    }
    Some(checked)
}

fn exist(type_: &str, reason: &str, what: &str, checked: Option<&Checked>) -> Option<Wanted> {
    let checked = checked?;
    Some(if !checked.missing.is_empty() {
        let list = clip(&checked.missing.join(", "), 4096);
        let message = format!("The following {what} were not found: {list}");
        Wanted::new(type_, false, &format!("{reason}NotFound"), message)
    } else if !checked.unsearchable.is_empty() {
        let list = clip(&checked.unsearchable.join("; "), 4096);
        let message = format!("nobody can look for all referenced {what}: {list}");
        Wanted::new(type_, Status::Unknown, CANNOT_LOOK, message)
    } else if checked.unknown {
        let message = format!("the agent has not looked for all referenced {what} yet");
        Wanted::new(type_, Status::Unknown, "NotCheckedYet", message)
    } else {
        let message = format!("All referenced {what} were found");
        Wanted::new(type_, true, &format!("All{reason}Found"), message)
    })
}

/// The subjects in a few words: the first three, and how many more.
fn subjects(all: &[String]) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    for subject in all {
        if !distinct.contains(&subject.as_str()) {
            distinct.push(subject);
        }
    }
    let (shown, more) = distinct.split_at(distinct.len().min(3));
    let mut text = shown.join(", ");
    if !more.is_empty() {
        text = format!("{}, +{}", clip(&text, 120), more.len());
    }
    (!text.is_empty()).then(|| clip(&text, 128))
}
