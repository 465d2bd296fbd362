//! What to do next, derived from an object's conditions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Condition, SYNC_PARTS, conditions, list, text};

/// How many errors of one part of a sync are shown; the reports have all.
const ERRORS_SHOWN: usize = 3;

/// The code of an error of a sync whose account lacks a right.
const SYNC_FORBIDDEN: &str = "2013";

/// What to do, the most useful first; empty if nothing is wrong.
pub fn advice(word: &str, object: &Value) -> Vec<String> {
    let namespace = text(object, "/metadata/namespace");
    let name = text(object, "/metadata/name");
    let conditions = conditions(object);
    let is = |kind: &str, status: &str| {
        conditions
            .iter()
            .find(|condition| condition.name == kind && condition.status == status)
    };
    let mut all = Vec::new();
    if let Some(deleted) = object
        .pointer("/metadata/deletionTimestamp")
        .and_then(Value::as_str)
    {
        let holders: Vec<_> = list(object, "/metadata/finalizers")
            .filter_map(Value::as_str)
            .collect();
        all.push(format!(
            "It is being deleted since {deleted}, and waits for its finalizers: {}.",
            holders.join(", ")
        ));
    }
    match word {
        "clusters" => {
            if object.pointer("/spec/hubAcceptsClient") != Some(&Value::Bool(true)) {
                all.push(match is("ManagedClusterJoined", "True") {
                    Some(_) => format!("It is denied: `writ accept {name}` lets its agent in again."),
                    None => format!("It is not accepted: `writ accept {name}`, or `writ deny {name}`."),
                });
            } else if is("ManagedClusterJoined", "True").is_none() {
                all.push("Its agent has not joined yet: is `writ agent` running there?".into());
            } else if is("ManagedClusterConditionAvailable", "True").is_none() {
                all.push("Its agent does not renew its lease: is `writ agent` running there, and does it reach the hub?".into());
            }
        }
        "permissions" => permission(object, is, &mut all),
        "works" => work(&namespace, object, is, &mut all),
        "accounts" => {
            if conditions.is_empty() {
                all.push(no_answer(&namespace));
            } else if is("TokenReported", "True").is_none() {
                all.push(format!(
                    "There is no token yet: `writ describe cluster {namespace}` says whether its agent runs."
                ));
            } else {
                all.push(format!(
                    "Its token works. Give it rights with `writ grant --to account:{name} --role view --cluster {namespace}`; `writ get permissions -n {namespace}` lists those it has."
                ));
            }
        }
        "sets" if is("ClusterSetEmpty", "True").is_some() => {
            let key = match text(object, "/spec/exclusiveKey") {
                key if key.is_empty() => "cluster.open-cluster-management.io/clusterset".to_owned(),
                key => key,
            };
            all.push(format!(
                "No cluster is in it: `kubectl label managedcluster CLUSTER {key}={name}`."
            ));
        }
        "syncs" | "reposyncs" => sync(object, &conditions, &mut all),
        _ => {}
    }
    if conditions.is_empty() && all.is_empty() {
        all.push("It has no status yet: is the hub running?".into());
    }
    // Without specific advice, at least repeat what is wrong.
    if all.is_empty() {
        let troubles = conditions.iter().filter(|condition| is_trouble(condition));
        all.extend(troubles.map(|trouble| {
            let Condition {
                name,
                status,
                reason,
                message,
                ..
            } = trouble;
            format!("{name} is {status} ({reason}): {message}")
        }));
    }
    if word == "placements" && is("PlacementSatisfied", "True").is_none() {
        all.push(format!(
            "`writ placement explain {name} -n {namespace}` says of each cluster why it is in or out."
        ));
    }
    // ManagedClusterJoined is never updated after the first join.
    let follows_spec = |name: &str| name != "ManagedClusterJoined";
    if let Some(old) = conditions
        .iter()
        .find(|condition| condition.outdated && follows_spec(&condition.name))
    {
        all.push(format!(
            "{} is about an older spec: the last change is not processed yet.",
            old.name
        ));
    }
    all
}

/// Whether a condition reports a problem. Most are good when True; some report a fault, and some only progress or a plain
/// fact.
fn is_trouble(condition: &Condition) -> bool {
    match condition.name.as_str() {
        "Stalled"
        | "Degraded"
        | "PlacementMisconfigured"
        | "ClusterSetConflict"
        | "ReconcilerFinalizerFailure" => condition.status == "True",
        "Reconciling"
        | "Syncing"
        | "Progressing"
        | "ReconcilerFinalizing"
        | "Deleting"
        | "Complete"
        | "ClusterSetEmpty" => false,
        _ => condition.status != "True",
    }
}

fn no_answer(cluster: &str) -> String {
    format!(
        "It has no status yet: is the hub running, and is {cluster} a managed cluster? `writ get clusters`"
    )
}

fn permission<'c>(object: &Value, is: impl Fn(&str, &str) -> Option<&'c Condition>, all: &mut Vec<String>) {
    let (cluster, name) = (
        &text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    if is("Ready", "True").is_some() {
        let namespace = list(object, "/spec/roleBindings")
            .map(|binding| text(binding, "/namespace"))
            .find(|namespace| !namespace.is_empty())
            .map_or(String::new(), |namespace| format!(" -n {namespace}"));
        all.push(format!(
            "It is in place. Try `writ who-can list pods{namespace} --cluster {cluster}`."
        ));
        return;
    }
    if is("SubjectPresent", "False").is_some() {
        all.push(format!("A ManagedServiceAccount is missing: create it in the namespace {cluster}; what it is granted waits for it."));
    }
    if is("Validation", "False").is_some() {
        all.push(format!(
            "The spec cannot be used: `kubectl -n {cluster} edit clusterpermission {name}`."
        ));
    }
    if is("ValidateRolesExist", "False").is_some() || is("ValidateClusterRolesExist", "False").is_some() {
        all.push(format!(
            "A role is missing on {cluster}: create it there, or name another one."
        ));
    }
    let unsent = is("RBACManifestWorkCreated", "False").is_some();
    match is("AppliedRBACManifestWork", "False") {
        // Nothing was sent, for a reason that is reported above.
        Some(applied) if unsent && applied.reason == "ApplyRBACManifestWorkNotComplete" => {}
        Some(applied) if unsent => all.push(format!("It cannot be delivered: {}", applied.message)),
        Some(applied) => all.push(format!("{cluster} says: {}", applied.message)),
        None => {}
    }
    if all.is_empty() {
        all.push(no_answer(cluster));
    }
}

fn work<'c>(
    cluster: &str,
    object: &Value,
    is: impl Fn(&str, &str) -> Option<&'c Condition>,
    all: &mut Vec<String>,
) {
    match is("Applied", "False") {
        Some(failed) => {
            all.push(format!("{cluster} says: {}", failed.message));
            all.extend(grant_for_executor(cluster, object));
        }
        None if is("Applied", "True").is_none() => all.push(no_answer(cluster)),
        None => {}
    }
}

/// The grant that helps if the executor of a work lacks a right; `None` for a work without an executor.
fn grant_for_executor(cluster: &str, object: &Value) -> Option<String> {
    let account = object.pointer("/spec/executor/subject/serviceAccount")?;
    let (home, name) = (text(account, "/namespace"), text(account, "/name"));
    let namespaces: BTreeSet<String> = list(object, "/spec/workload/manifests")
        .map(|manifest| text(manifest, "/metadata/namespace"))
        .collect();
    let place = match namespaces.into_iter().collect::<Vec<_>>().as_slice() {
        [one] if one.is_empty() => String::new(),
        [one] => format!(" --namespace {one}"),
        _ => " --namespace NAMESPACE".into(),
    };
    Some(format!(
        "If its executor lacks a right on {cluster}, give it a role that has it: `writ grant --to serviceaccount:{home}/{name} --role ROLE{place} --cluster {cluster}`."
    ))
}

fn sync(object: &Value, conditions: &[Condition], all: &mut Vec<String>) {
    for role in list(object, "/status/roleRefs").filter(|role| text(role, "/state") != "Bound") {
        all.push(format!(
            "The role {} is {}: {}",
            text(role, "/name"),
            text(role, "/state"),
            text(role, "/message")
        ));
    }
    let account = text(object, "/status/reconciler");
    let refused = list(object, "/status/sync/errors").any(|error| text(error, "/code") == SYNC_FORBIDDEN);
    if refused && !account.is_empty() {
        all.push(format!(
            "The API server refused something: `writ why create RESOURCE --as serviceaccount:config-management-system/{account} -n NAMESPACE` shows what is missing; add a role to spec.override.roleRefs."
        ));
    }
    if conditions.is_empty() {
        all.push("It has no status yet: is `writ sync` running on this cluster?".into());
    }
    for part in SYNC_PARTS {
        let errors = list(object, &format!("/status/{part}/errors"));
        all.extend(errors.take(ERRORS_SHOWN).map(|error| {
            let message = text(error, "/errorMessage");
            format!("The {part} has the error {}: {message}", text(error, "/code"))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(conditions: &Value) -> Value {
        json!({"metadata": {"name": "x", "namespace": "cluster1", "generation": 2}, "status": {"conditions": conditions}})
    }

    fn with_error(part: &str) -> Value {
        let mut object = object(&json!([{"type": "Syncing", "status": "False", "observedGeneration": 2}]));
        object["status"][part] = json!({"errors": [{"code": "2004", "errorMessage": "no such branch"}]});
        object
    }

    #[test]
    fn problem_of_every_kind_has_advice() {
        let condition = |kind: &str, status: &str, message: &str| json!([{"type": kind, "status": status, "reason": "R", "message": message, "observedGeneration": 2}]);
        let executed = |message: &str| {
            let account = json!({"namespace": "web", "name": "deployer"});
            json!({"metadata": {"name": "x", "namespace": "cluster1"},
                "spec": {
                    "executor": {"subject": {"type": "ServiceAccount", "serviceAccount": account}},
                    "workload": {"manifests": [{"metadata": {"namespace": "web"}}]},
                },
                "status": {"conditions": condition("Applied", "False", message)}})
        };
        let mut forbidden = with_error("sync");
        forbidden["status"]["reconciler"] = "root-reconciler-x".into();
        forbidden["status"]["sync"]["errors"][0]["code"] = "2013".into();
        let rows = [
            (
                "clusters",
                json!({"metadata": {"name": "x"}, "spec": {}}),
                "writ accept x",
            ),
            (
                "clusters",
                json!({"metadata": {"name": "x"}, "spec": {"hubAcceptsClient": true}}),
                "has not joined",
            ),
            ("permissions", object(&json!([])), "It has no status yet"),
            (
                "permissions",
                object(&condition("SubjectPresent", "False", "")),
                "create it in the namespace cluster1",
            ),
            (
                "permissions",
                object(&condition("Ready", "True", "")),
                "It is in place",
            ),
            (
                "permissions",
                json!({"metadata": {"name": "x", "namespace": "cluster1"},
                    "spec": {"roleBindings": [{"namespace": "web"}]},
                    "status": {"conditions": condition("Ready", "True", "")}}),
                "`writ who-can list pods -n web --cluster cluster1`",
            ),
            (
                "permissions",
                object(&json!([
                    {"type": "RBACManifestWorkCreated", "status": "False", "reason": "ManifestWorkRefused"},
                    {"type": "AppliedRBACManifestWork", "status": "False", "message": "too large"},
                ])),
                "It cannot be delivered: too large",
            ),
            (
                "works",
                executed("a may not delete"),
                "cluster1 says: a may not delete",
            ),
            (
                "works",
                executed("a may not delete"),
                "writ grant --to serviceaccount:web/deployer --role ROLE --namespace web --cluster cluster1",
            ),
            (
                "accounts",
                object(&condition("TokenReported", "True", "")),
                "--to account:x",
            ),
            (
                "accounts",
                object(&condition("TokenReported", "False", "")),
                "no token yet",
            ),
            (
                "works",
                object(&condition("Applied", "False", "no such kind")),
                "cluster1 says: no such kind",
            ),
            (
                "sets",
                object(&condition("ClusterSetEmpty", "True", "")),
                "kubectl label managedcluster",
            ),
            ("syncs", object(&json!([])), "is `writ sync` running"),
            (
                "works",
                object(&json!([
                    {"type": "Applied", "status": "True", "observedGeneration": 2},
                    {"type": "Available", "status": "False", "reason": "R", "message": "2 of 3", "observedGeneration": 2},
                ])),
                "Available is False (R): 2 of 3",
            ),
            (
                "syncs",
                object(&condition("Stalled", "True", "no such Secret")),
                "Stalled is True (R): no such Secret",
            ),
            (
                "syncs",
                with_error("source"),
                "The source has the error 2004: no such branch",
            ),
            (
                "syncs",
                with_error("rendering"),
                "The rendering has the error 2004",
            ),
            ("reposyncs", with_error("sync"), "The sync has the error 2004"),
            (
                "syncs",
                forbidden,
                "--as serviceaccount:config-management-system/root-reconciler-x",
            ),
            (
                "placements",
                object(&condition("PlacementSatisfied", "False", "no set is bound")),
                "writ placement explain x -n cluster1",
            ),
            (
                "placements",
                object(&condition("PlacementMisconfigured", "True", "a bad score")),
                "PlacementMisconfigured is True (R): a bad score",
            ),
            (
                "addons",
                object(&condition("Available", "Unknown", "no lease")),
                "Available is Unknown (R): no lease",
            ),
            ("addons", object(&json!([])), "is the hub running?"),
            (
                "sets",
                object(&condition("ClusterSetConflict", "True", "a broken selector")),
                "a broken selector",
            ),
        ];
        for (word, object, wanted) in rows {
            let all = advice(word, &object).join("\n");
            assert!(all.contains(wanted), "{word}: {all:?} lacks {wanted:?}");
        }
        for (word, kind, status) in [
            ("works", "Applied", "True"),
            ("sets", "ClusterSetEmpty", "False"),
            ("syncs", "Stalled", "False"),
            ("addons", "Available", "True"),
            ("placements", "PlacementSatisfied", "True"),
        ] {
            let all = advice(word, &object(&condition(kind, status, "")));
            assert!(all.is_empty(), "{word}: {all:?}");
        }
    }

    #[test]
    fn condition_of_an_older_generation_is_pointed_out() {
        let old = object(&json!([{"type": "Applied", "status": "True", "observedGeneration": 1}]));
        assert!(advice("works", &old).join("").contains("older spec"));
    }
}
