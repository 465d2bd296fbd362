//! What to do next, told from an object's conditions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Condition, SYNC_PARTS, conditions, list, text};

/// How many errors of a part of a sync are repeated; the reports have all.
const ERRORS_SHOWN: usize = 3;

/// What a person can do, the most useful first; empty where nothing is wrong.
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
            "It is being deleted since {deleted} and waits for: {}.",
            holders.join(", ")
        ));
    }
    match word {
        "clusters" => {
            if object.pointer("/spec/hubAcceptsClient") != Some(&Value::Bool(true)) {
                all.push(match is("ManagedClusterJoined", "True") {
                    Some(_) => format!("It is denied: `writ accept {name}` lets its agent in again."),
                    None => format!("Nobody has accepted it: `writ accept {name}`, or `writ deny {name}`."),
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
        all.push("Nobody has answered yet: is the hub running?".into());
    }
    // Where nobody knows a way out, what is wrong is at least said.
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
    // Once joined, joined: this one does not answer to the spec.
    let answers = |name: &str| name != "ManagedClusterJoined";
    if let Some(old) = conditions
        .iter()
        .find(|condition| condition.outdated && answers(&condition.name))
    {
        all.push(format!(
            "{} speaks of an older spec: the answer to the last change is still to come.",
            old.name
        ));
    }
    all
}

/// Whether a condition is not as it should be. Most are good when they hold; some tell of a fault, and some of work that
/// is under way or of a plain fact.
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
        "Nobody has answered yet: is the hub running, and is {cluster} a managed cluster? `writ get clusters`"
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
        // Nothing was sent, and the reason stands above.
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
        Some(refused) if refused.message.contains("may not") => {
            let account = object
                .pointer("/spec/executor/subject/serviceAccount")
                .unwrap_or(&Value::Null);
            let (home, name) = (text(account, "/namespace"), text(account, "/name"));
            let places: BTreeSet<String> = list(object, "/spec/workload/manifests")
                .map(|manifest| text(manifest, "/metadata/namespace"))
                .collect();
            let place = match places.into_iter().collect::<Vec<_>>().as_slice() {
                [one] if one.is_empty() => String::new(),
                [one] => format!(" --namespace {one}"),
                _ => " --namespace NAMESPACE".into(),
            };
            all.push(format!(
                "Its executor lacks rights on {cluster}; give it a role that has them: `writ grant --to serviceaccount:{home}/{name} --role ROLE{place} --cluster {cluster}`."
            ));
        }
        Some(failed) => all.push(format!("{cluster} says: {}", failed.message)),
        None if is("Applied", "True").is_none() => all.push(no_answer(cluster)),
        None => {}
    }
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
    let refused =
        list(object, "/status/sync/errors").any(|error| text(error, "/errorMessage").contains("forbidden"));
    if refused && !account.is_empty() {
        all.push(format!(
            "The API server refused something: `writ why create RESOURCE --as serviceaccount:config-management-system/{account} -n NAMESPACE` shows what is missing; add a role to spec.override.roleRefs."
        ));
    }
    if conditions.is_empty() {
        all.push("Nobody has answered yet: is `writ sync` running on this cluster?".into());
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
    fn every_kind_of_trouble_has_a_way_out() {
        let condition = |kind: &str, status: &str, message: &str| json!([{"type": kind, "status": status, "reason": "R", "message": message, "observedGeneration": 2}]);
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
            ("permissions", object(&json!([])), "Nobody has answered yet"),
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
                json!({"metadata": {"name": "x", "namespace": "cluster1"},
                    "spec": {"workload": {"manifests": [{"metadata": {"namespace": "web"}}]}},
                    "status": {"conditions": condition("Applied", "False", "a may not delete")}}),
                "--role ROLE --namespace web --cluster cluster1",
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
                object(&condition("Applied", "False", "a may not delete")),
                "writ grant --to serviceaccount:",
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
    fn an_answer_to_an_older_spec_is_called_so() {
        let old = object(&json!([{"type": "Applied", "status": "True", "observedGeneration": 1}]));
        assert!(advice("works", &old).join("").contains("older spec"));
    }
}
