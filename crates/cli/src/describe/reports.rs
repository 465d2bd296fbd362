//! What the clusters report, read from an object's status.

use serde::Serialize;
use serde_json::Value;

use kube::ResourceExt;
use writ_api::cluster::{
    ManagedCluster, ManagedClusterSet, PlacementDecision, managed_cluster::CONDITION_AVAILABLE,
};
use writ_controller::condition;
use writ_hub::cluster_set::membership::{CONFIRMED_ANNOTATION, JOINED_ANNOTATION, Membership, SetView};

use super::{SYNC_PARTS, list, text};

/// What a cluster says about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Which cluster.
    pub cluster: String,
    /// About what.
    pub about: String,
    /// What it says.
    pub says: String,
}

/// What the clusters say, by the kind's usual word. `here` is the cluster that holds the object, for kinds that live on
/// managed clusters.
pub fn reports(word: &str, object: &Value, here: &str) -> Vec<Report> {
    let namespace = text(object, "/metadata/namespace");
    let name = text(object, "/metadata/name");
    match word {
        "permissions" => permission(&namespace, object),
        "works" => work(&namespace, object),
        "accounts" => account(&namespace, object),
        "clusters" => cluster(&name, object),
        "syncs" | "reposyncs" => sync(object, here),
        "addons" => addon(&namespace, object),
        _ => Vec::new(),
    }
}

fn report(cluster: &str, about: String, says: String) -> Report {
    Report {
        cluster: cluster.into(),
        about,
        says,
    }
}

fn named(object: &Value, kind: &str) -> String {
    match text(object, "/namespace").as_str() {
        "" => format!("{kind} {}", text(object, "/name")),
        namespace => format!("{kind} {namespace}/{}", text(object, "/name")),
    }
}

/// The condition in short: its reason where it holds, its message where it does not.
fn short(condition: &Value) -> String {
    match text(condition, "/status").as_str() {
        "True" => text(condition, "/reason"),
        status => format!(
            "{}={status}: {}",
            text(condition, "/type"),
            text(condition, "/message")
        ),
    }
}

fn permission(cluster: &str, object: &Value) -> Vec<Report> {
    let kinds = [
        ("clusterRoles", "ClusterRole"),
        ("clusterRoleBindings", "ClusterRoleBinding"),
        ("roles", "Role"),
        ("roleBindings", "RoleBinding"),
    ];
    let objects = kinds.into_iter().flat_map(|(field, kind)| {
        list(object, &format!("/status/resourceStatus/{field}")).map(move |one| {
            let says = list(one, "/condition").map(short).collect::<Vec<_>>().join("; ");
            report(cluster, named(one, kind), says)
        })
    });
    let selections = list(object, "/status/namespaceSelections").map(|selection| {
        let counts = format!(
            "{} of {} namespaces, selected by the {} {}",
            text(selection, "/ready"),
            text(selection, "/selected"),
            text(selection, "/by"),
            text(selection, "/message")
        );
        report(cluster, text(selection, "/field"), counts.trim_end().to_owned())
    });
    objects.chain(selections).collect()
}

fn work(cluster: &str, object: &Value) -> Vec<Report> {
    list(object, "/status/resourceStatus/manifests")
        .map(|manifest| {
            let meta = manifest.pointer("/resourceMeta").unwrap_or(&Value::Null);
            let says = list(manifest, "/conditions").map(short).collect::<Vec<_>>();
            report(cluster, named(meta, &text(meta, "/kind")), says.join("; "))
        })
        .collect()
}

fn account(cluster: &str, object: &Value) -> Vec<Report> {
    let mut all = Vec::new();
    let expires = text(object, "/status/expirationTimestamp");
    if !expires.is_empty() {
        all.push(report(cluster, "token".into(), format!("valid until {expires}")));
    }
    if let Some(clusters) = object.pointer("/status/clusters") {
        let counts = format!(
            "{} of {} clusters",
            text(clusters, "/ready"),
            text(clusters, "/total")
        );
        all.push(report("all", "tokens".into(), counts));
        all.extend(list(clusters, "/failing").map(|failing| {
            let says = format!("{}: {}", text(failing, "/reason"), text(failing, "/message"));
            report(&text(failing, "/name"), "token".into(), says)
        }));
    }
    all
}

fn cluster(name: &str, object: &Value) -> Vec<Report> {
    let version = text(object, "/status/version/kubernetes");
    let version = (!version.is_empty()).then(|| report(name, "version".into(), version));
    let claims = list(object, "/status/clusterClaims").map(|claim| {
        report(
            name,
            format!("claim {}", text(claim, "/name")),
            text(claim, "/value"),
        )
    });
    version.into_iter().chain(claims).collect()
}

/// The members of a set, and the clusters that have only its label.
pub fn members(set: &ManagedClusterSet, clusters: &[ManagedCluster]) -> Vec<Report> {
    // Admission annotates the sets whose key this hub guards, the default key included if it is configured to.
    let view = SetView::of(set, set.annotations().contains_key(CONFIRMED_ANNOTATION));
    let about = |cluster: &ManagedCluster| {
        let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
        match view.membership(cluster.labels(), joined) {
            Membership::Member => Some("member"),
            Membership::Unconfirmed => Some("label only, not a member"),
            Membership::NotMember => None,
        }
    };
    clusters
        .iter()
        .filter_map(|cluster| {
            let conditions = cluster
                .status
                .as_ref()
                .map_or(&[][..], |status| &status.conditions);
            let says = match condition::find(conditions, CONDITION_AVAILABLE) {
                Some(available) if available.status == "True" => "available".to_owned(),
                Some(available) => format!("not available: {}", available.message),
                None => "not joined yet".to_owned(),
            };
            Some(report(&cluster.name_any(), about(cluster)?.to_owned(), says))
        })
        .collect()
}

/// The clusters that a placement chose.
pub fn decisions(decisions: &[PlacementDecision]) -> Vec<Report> {
    decisions
        .iter()
        .flat_map(|decision| {
            let chosen = decision.status.iter().flat_map(|status| &status.decisions);
            chosen.map(|one| {
                let says = match one.score {
                    Some(score) => format!("score {score} {}", one.reason),
                    None => one.reason.clone(),
                };
                report(
                    &one.cluster_name,
                    format!("chosen in {}", decision.name_any()),
                    says.trim_end().to_owned(),
                )
            })
        })
        .collect()
}

fn addon(cluster: &str, object: &Value) -> Vec<Report> {
    let rows = [
        ("namespace", "/status/namespace"),
        ("health check", "/status/healthCheck/mode"),
    ];
    rows.into_iter()
        .map(|(about, path)| report(cluster, about.into(), text(object, path)))
        .filter(|report| !report.says.is_empty())
        .collect()
}

fn sync(object: &Value, here: &str) -> Vec<Report> {
    let mut all: Vec<Report> = SYNC_PARTS
        .into_iter()
        .filter_map(|part| {
            let commit = text(object, &format!("/status/{part}/commit"));
            (!commit.is_empty()).then(|| report(here, part.into(), format!("commit {commit}")))
        })
        .collect();
    all.extend(list(object, "/status/roleRefs").map(|role| {
        let says = format!("{} {}", text(role, "/state"), text(role, "/message"));
        report(
            here,
            named(role, &text(role, "/kind")),
            says.trim_end().to_owned(),
        )
    }));
    for part in SYNC_PARTS {
        all.extend(list(object, &format!("/status/{part}/errors")).map(|error| {
            report(
                here,
                format!("{part} error {}", text(error, "/code")),
                text(error, "/errorMessage"),
            )
        }));
    }
    all
}
