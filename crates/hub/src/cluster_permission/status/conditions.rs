//! The conditions of a permission.

use kube::ResourceExt as _;
use writ_api::{rbac::cluster_permission::NamespaceSelection, work::ManifestWork};
use writ_controller::condition::{self, Status, Wanted, clip};

use super::{
    feedback::{Selected, home_reports},
    progress::{Progress, with_revocation},
};
use crate::cluster_permission::{
    model::{Invalid, Item, Observation, Plan, Refused},
    naming,
    reports::{self, Feedback},
    spec::summary,
};

/// How many problems, subjects or objects a message names.
const MAX_WORDS: usize = 10;
/// How many bytes a message has.
const MAX_MESSAGE: usize = 16 * 1024;

/// The reason while the agent has not applied everything.
const NOT_COMPLETE: &str = "ApplyRBACManifestWorkNotComplete";
/// The reason while the hub has not read something that the answer depends on.
const NOT_READ: &str = "NotReadYet";
/// The reason where a role cannot be looked up because of its name.
const CANNOT_LOOK: &str = "CannotBeLookedUp";
/// The reason where a permission has only selectors and these select nothing, which is no error.
const NOTHING_SELECTED: &str = "NothingSelected";
const NOTHING_TO_DELIVER: &str =
    "the selectors select no namespace of the hub, so there is nothing to deliver";

/// Whether the permission as a whole can be delivered.
pub fn validation(plan: &Plan) -> Wanted {
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

/// Whether every subject exists.
pub fn subject_present(seen: &Observation, plan: &Plan, revocation: Option<&str>) -> Wanted {
    let missing = &plan.built.missing;
    if missing.is_empty() && seen.not_synced.accounts {
        return Wanted::new("SubjectPresent", Status::Unknown, NOT_READ, not_read(plan));
    }
    if missing.is_empty() {
        return Wanted::new(
            "SubjectPresent",
            true,
            "AllSubjectsPresent",
            "every subject exists",
        );
    }
    let mut words: Vec<String> = missing.iter().take(MAX_WORDS).cloned().collect();
    if missing.len() > MAX_WORDS {
        words.push(format!("and {} more", missing.len() - MAX_WORDS));
    }
    let what = if revocation.is_some() {
        "what was granted to it may still be in force"
    } else {
        "what was granted to it is revoked until it exists"
    };
    let message = with_revocation(&format!("{}; {what}", words.join("; ")), revocation);
    Wanted::new("SubjectPresent", false, "SubjectNotFound", message)
}

fn not_read(plan: &Plan) -> String {
    let kinds: Vec<&str> = plan.built.not_read.iter().copied().collect();
    format!(
        "the hub has not been able to read {} yet: what depends on them stays as it was; the log of the hub says why",
        kinds.join(", ")
    )
}

/// Whether all entries have selectors, evaluated by the hub, that select nothing, and no work of an earlier selection exists.
fn selects_nothing(seen: &Observation, plan: &Plan) -> bool {
    let built = &plan.built;
    !built.selected_by_hub.is_empty()
        && built.items.is_empty()
        && built.problems.is_empty()
        && built.missing.is_empty()
        && plan.invalid.is_none()
        && seen.works.is_empty()
}

/// Whether the works exist.
pub fn created(seen: &Observation, plan: &Plan, refused: &Refused) -> Wanted {
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

/// Whether the agent has applied the works.
pub fn applied(
    seen: &Observation,
    plan: &Plan,
    refused: &Refused,
    progress: &[(usize, Progress<'_>)],
) -> Wanted {
    const TYPE: &str = "AppliedRBACManifestWork";
    let namespace = seen.permission.namespace().unwrap_or_default();
    let hint = |number: usize| {
        format!(
            "Run the following command to check the ManifestWork status:\nkubectl -n {namespace} get ManifestWork {} -o yaml",
            naming::work(&seen.permission, number)
        )
    };
    if !plan.built.problems.is_empty() {
        let failed = progress.iter().filter(|(_, p)| matches!(p, Progress::Failed(_)));
        let mut message = vec![summary(&plan.built.problems, MAX_WORDS)];
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
pub fn ready(
    plan: &Plan,
    conditions: &[Wanted],
    progress: &[(usize, Progress<'_>)],
    selections: &[(NamespaceSelection, Selected)],
    revocation: Option<&str>,
) -> Wanted {
    // Causes come before what follows from them.
    let named = |type_: &str| {
        conditions
            .iter()
            .find(|c| c.type_ == type_ && c.status == Status::False)
    };
    if named("Validation").is_none() && !plan.built.not_read.is_empty() {
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
    if let Some(revocation) = revocation {
        let message = format!("revocation {revocation}");
        return Wanted::new("Ready", false, "RevocationPending", message);
    }
    if let Some(unknown) = conditions.iter().find(|c| c.status == Status::Unknown) {
        // What cannot be looked up will not be answered: that is not pending.
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

fn refusal(seen: &Observation, refused: &Refused) -> String {
    let texts = refused
        .iter()
        .map(|(number, text)| format!("ManifestWork {}: {text}", naming::work(&seen.permission, *number)));
    clip(&texts.collect::<Vec<_>>().join("; "), 4096)
}

/// The objects of a work that the agent could not apply, with its words.
fn failures(seen: &Observation, number: usize) -> String {
    let reports = seen.works.get(&number).into_iter();
    let mut words: Vec<String> = reports
        .flat_map(|work| reports::of(work))
        .filter_map(|report| {
            let applied = condition::find(&report.conditions, "Applied")?;
            (applied.status != "True")
                .then(|| format!("{}: {}", reports::id(report), clip(&applied.message, 500)))
        })
        .collect();
    let more = words.len().saturating_sub(MAX_WORDS);
    words.truncate(MAX_WORDS);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join("; ")
}

/// What became of `validate: true` for one kind of role.
pub struct RoleCheck {
    missing: Vec<String>,
    unsearchable: Vec<String>,
    unknown: bool,
}

impl RoleCheck {
    /// Of the roles of this kind, if they are to be checked.
    pub fn of(seen: &Observation, plan: &Plan, kind: &str) -> Option<Self> {
        if seen.permission.spec.validate != Some(true) {
            return None;
        }
        let reports = home_reports(seen, plan);
        let unsearchable = plan.built.unsearchable.iter().filter(|(of, _)| *of == kind);
        let mut check = Self {
            missing: Vec::new(),
            unsearchable: unsearchable.map(|(_, words)| words.clone()).collect(),
            unknown: plan.built.unchecked.contains(kind),
        };
        let items = || plan.built.items.iter();
        for Item { id, .. } in items().filter(|item| item.is_stub() && &*item.id.kind == kind) {
            let available = reports
                .get(id)
                .and_then(|(report, _)| condition::find(&report.conditions, "Available"));
            match available.map(|c| c.status.as_str()) {
                Some("True") => {}
                Some("False") => check.missing.push(id.name.to_string()),
                _ => check.unknown = true,
            }
        }
        let checks = |item: &&Item| item.grant().is_some_and(|grant| grant.validate);
        for Item { id, .. } in items().filter(checks).filter(|_| kind == "Role") {
            let feedback = Feedback::of(reports.get(id).map(|(report, _)| *report));
            check.unknown |= !feedback.is_current();
            let missing = feedback.text("rolesMissing").filter(|_| feedback.is_current());
            check.missing.extend(missing.map(ToOwned::to_owned));
        }
        Some(check)
    }

    /// The condition about Roles.
    pub fn roles_exist(self) -> Wanted {
        self.condition("ValidateRolesExist", "Roles", "roles")
    }

    /// The condition about ClusterRoles.
    pub fn cluster_roles_exist(self) -> Wanted {
        self.condition("ValidateClusterRolesExist", "ClusterRoles", "cluster roles")
    }

    fn condition(self, type_: &str, reason: &str, what: &str) -> Wanted {
        if !self.missing.is_empty() {
            let list = clip(&self.missing.join(", "), 4096);
            let message = format!("The following {what} were not found: {list}");
            Wanted::new(type_, false, &format!("{reason}NotFound"), message)
        } else if !self.unsearchable.is_empty() {
            let list = clip(&self.unsearchable.join("; "), 4096);
            let message = format!("some referenced {what} cannot be looked up: {list}");
            Wanted::new(type_, Status::Unknown, CANNOT_LOOK, message)
        } else if self.unknown {
            let message = format!("the agent has not looked for all referenced {what} yet");
            Wanted::new(type_, Status::Unknown, "NotCheckedYet", message)
        } else {
            let message = format!("All referenced {what} were found");
            Wanted::new(type_, true, &format!("All{reason}Found"), message)
        }
    }
}

/// The subjects in a few words: the first three, and how many more.
pub fn subjects(all: &[String]) -> Option<String> {
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
