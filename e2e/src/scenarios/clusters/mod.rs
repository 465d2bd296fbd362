//! Clusters join; sets with exclusive keys; who may move what.
//!
//! Where each case that must be shown is shown:
//!
//! | case | scenario |
//! | --- | --- |
//! | the three stories of the design document, as the people named there | `stories` |
//! | sets created, changed, deleted with and without the right on the key; the key never changes | `permissions::keys` |
//! | the permission leak, without and with each of its two cures | `permissions::leak`, `sets::pairs` |
//! | join without permission on the set left; on create and delete; two keys at once | `permissions::moves` |
//! | a bootstrap credential that tries to join a set | `permissions::moves` |
//! | an agent that tries to relabel itself, with minimal and with upstream's rights | `registration`, `leaving::upstream_rights` |
//! | requests with a similar name, another signer, usage, organization, label or requester | `identity::attacks`, `registration::requests` |
//! | several requests that match | `registration::requests` |
//! | a certificate that was approved before the cluster was accepted | `registration::certificate_first` |
//! | a key that cannot be kept; an interrupted join | `registration::one_request` |
//! | renewal by the own identity only; a bootstrap request for an accepted cluster | `identity::renewal` |
//! | an agent that came in some other way, denied and accepted; one of a former cluster of the name | `leaving::former` |
//! | the token driver; the shared bootstrap identity never gets a token | `identity::token_driver`, `tokens::at_work`, `tokens::made_anew` |
//! | deny, detach, detach by force | `registration::lifecycle`, `leaving::detach` |
//! | an agent with `--cluster-label`, refused and then allowed; silence | `leaving::label_and_silence` |
//! | `--guard-default-key`, `--guard-selector-sets`; selectors that widen | `sets::guards` |
//! | a set and a label at the same moment | `sets::race` |
//! | webhook down | `permissions::keys` |
//! | status words, stored forms, roles of a set, removal of labels | `sets::shapes` |
//! | bindings | `sets::bindings` |
//! | objects without the labels by which they are found | `unlabelled` |
//! | placement | `placement` |

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use k8s_openapi::api::{authorization::v1::ResourceAttributes, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_hub::options::AdmissionOptions;
use writ_process::webhook::{Options as Webhook, Target};

use crate::{
    Fleet, Scenario,
    fleet::{HUB_NAMESPACE, Running, start},
    wait, yaml,
};

mod identity;
mod leaving;
mod permissions;
mod placement;
mod registration;
mod sets;
mod stories;
mod tokens;
mod unlabelled;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "clusters/an_admin_groups_a_region_and_its_agent_joins",
            clusters: 0,
            run: |fleet| stories::region(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_sre_makes_a_set_for_disaster_recovery",
            clusters: 0,
            run: |fleet| stories::disaster_recovery(fleet).boxed(),
        },
        Scenario {
            name: "clusters/developers_group_clusters_by_middleware",
            clusters: 0,
            run: |fleet| stories::middleware(fleet).boxed(),
        },
        Scenario {
            name: "clusters/sets_ask_for_their_key",
            clusters: 0,
            run: |fleet| permissions::keys(fleet).boxed(),
        },
        Scenario {
            name: "clusters/the_permission_leak_is_closed_by_pairs",
            clusters: 0,
            run: |fleet| permissions::leak(fleet).boxed(),
        },
        Scenario {
            name: "clusters/labels_move_clusters_only_with_join",
            clusters: 0,
            run: |fleet| permissions::moves(fleet).boxed(),
        },
        Scenario {
            name: "clusters/a_cluster_joins_reports_and_leaves",
            clusters: 1,
            run: |fleet| registration::lifecycle(fleet).boxed(),
        },
        Scenario {
            name: "clusters/a_certificate_before_the_acceptance_is_of_no_use_until_then",
            clusters: 0,
            run: |fleet| registration::certificate_first(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_asks_once_with_a_key_that_it_keeps",
            clusters: 1,
            run: |fleet| registration::one_request(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_that_reports_nonsense_is_denied_like_any_other",
            clusters: 0,
            run: |fleet| registration::nonsense(fleet).boxed(),
        },
        Scenario {
            name: "clusters/only_the_right_certificate_request_is_approved",
            clusters: 0,
            run: |fleet| registration::requests(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_identity_is_renewed_by_itself_alone",
            clusters: 0,
            run: |fleet| identity::renewal(fleet).boxed(),
        },
        Scenario {
            name: "clusters/nearly_right_certificate_requests_are_not_approved",
            clusters: 0,
            run: |fleet| identity::attacks(fleet).boxed(),
        },
        Scenario {
            name: "clusters/a_hub_without_a_signer_hands_out_tokens",
            clusters: 0,
            run: |fleet| identity::token_driver(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_with_a_token_does_all_its_work",
            clusters: 1,
            run: |fleet| tokens::at_work(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_whose_account_was_made_anew_comes_back",
            clusters: 0,
            run: |fleet| tokens::made_anew(fleet).boxed(),
        },
        Scenario {
            name: "clusters/upstreams_agents_may_update_their_cluster_a_little",
            clusters: 0,
            run: |fleet| leaving::upstream_rights(fleet).boxed(),
        },
        Scenario {
            name: "clusters/a_cluster_leaves_after_its_works_or_by_force",
            clusters: 0,
            run: |fleet| leaving::detach(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_of_another_origin_keeps_its_cluster",
            clusters: 0,
            run: |fleet| leaving::former(fleet).boxed(),
        },
        Scenario {
            name: "clusters/an_agent_labels_its_cluster_and_goes_silent",
            clusters: 1,
            run: |fleet| leaving::label_and_silence(fleet).boxed(),
        },
        Scenario {
            name: "clusters/sets_have_shapes_and_say_so",
            clusters: 0,
            run: |fleet| sets::shapes(fleet).boxed(),
        },
        Scenario {
            name: "clusters/selectors_take_nobody_by_surprise",
            clusters: 0,
            run: |fleet| sets::guards(fleet).boxed(),
        },
        Scenario {
            name: "clusters/pairs_are_read_from_the_config_map",
            clusters: 0,
            run: |fleet| sets::pairs(fleet).boxed(),
        },
        Scenario {
            name: "clusters/a_race_never_ends_in_a_silent_member",
            clusters: 0,
            run: |fleet| sets::race(fleet).boxed(),
        },
        Scenario {
            name: "clusters/sets_are_bound_by_those_who_may",
            clusters: 0,
            run: |fleet| sets::bindings(fleet).boxed(),
        },
        Scenario {
            name: "clusters/labels_that_were_taken_off_come_back",
            clusters: 0,
            run: |fleet| unlabelled::labels_come_back(fleet).boxed(),
        },
        Scenario {
            name: "clusters/placements_choose_from_bound_sets",
            clusters: 0,
            run: |fleet| placement::candidates(fleet).boxed(),
        },
        Scenario {
            name: "clusters/placements_rank_and_stay",
            clusters: 0,
            run: |fleet| placement::choice(fleet).boxed(),
        },
        Scenario {
            name: "clusters/placements_are_divided_into_groups",
            clusters: 0,
            run: |fleet| placement::groups(fleet).boxed(),
        },
    ]
}

/// Starts the hub with admission and the controllers of this folder.
async fn run_hub(fleet: &Fleet, change: impl FnOnce(&mut writ_hub::Options)) -> Result<Running> {
    let client = fleet.hub.service_account(HUB_NAMESPACE, "writ-hub").await?;
    run_hub_with(fleet, client, change).await
}

/// The same with a client that a scenario has made of the hub's.
async fn run_hub_with(
    fleet: &Fleet,
    client: Client,
    change: impl FnOnce(&mut writ_hub::Options),
) -> Result<Running> {
    let mut options = writ_hub::Options {
        controllers: ["cluster_set", "placement", "registration"]
            .map(str::to_owned)
            .into(),
        admission: AdmissionOptions {
            webhooks: true,
            server: Webhook {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                target: Target::Url(None),
                ..AdmissionOptions::default().server
            },
            ..AdmissionOptions::default()
        },
        ..writ_hub::Options::default()
    };
    change(&mut options);
    let running = start("the hub", |health, shutdown| {
        writ_hub::run(client, options, health, shutdown)
    })
    .await?;
    // A webhook is asked some moments after its configuration was written: a bad name tells when, in the words of this
    // hub, as where a former one was is an error too; and a good one tells when clusters are completed.
    let clusters: Api<ManagedCluster> = Api::all(fleet.hub.admin().await?);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let (bad, good) = (
        cluster("not.a.namespace", &json!({}))?,
        cluster("probe", &json!({}))?,
    );
    wait::until_true("admission is asked", || async {
        let refused = clusters.create(&params, &bad).await;
        let refused = refused.is_err_and(|error| error.to_string().contains("the name of a namespace"));
        let completed = clusters.create(&params, &good).await?;
        let label = "cluster.open-cluster-management.io/clusterset";
        Ok(refused && completed.labels().contains_key(label))
    })
    .await?;
    Ok(running)
}

/// Makes a ClusterRole with these rules, binds it to a user or a group, and waits until it counts.
async fn grant(fleet: &Fleet, name: &str, mut subject: Value, rules: &Value) -> Result<()> {
    let text = |value: &Value, path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, who) = (text(&subject, "/kind"), text(&subject, "/name"));
    if let Some(subject) = subject.as_object_mut() {
        subject.insert("apiGroup".into(), json!("rbac.authorization.k8s.io"));
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, &format!("{role}\n---\n{binding}")).await?;
    let resource = text(rules, "/0/resources/0");
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
        None => (resource, None),
    };
    let what = ResourceAttributes {
        group: Some(text(rules, "/0/apiGroups/0")),
        resource: Some(resource),
        subresource,
        verb: Some(text(rules, "/0/verbs/0")),
        name: rules
            .pointer("/0/resourceNames/0")
            .and_then(Value::as_str)
            .map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let (user, group) = if kind == "Group" {
        ("somebody", who.as_str())
    } else {
        (who.as_str(), "system:authenticated")
    };
    let groups = [group];
    wait::until_true("the grant counts", || {
        fleet.hub.allows(user, &groups, what.clone())
    })
    .await
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

fn rule(resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    let mut rule =
        json!({"apiGroups": ["cluster.open-cluster-management.io"], "resources": [resource], "verbs": verbs});
    if let Some(rule) = rule.as_object_mut().filter(|_| !names.is_empty()) {
        rule.insert("resourceNames".into(), json!(names));
    }
    rule
}

fn set_yaml(name: &str, key: &str) -> String {
    format!(
        "apiVersion: cluster.open-cluster-management.io/v1alpha1\nkind: ManagedClusterSet\nmetadata:\n  name: {name}\n\
         spec:\n  exclusiveKey: {key}\n"
    )
}

fn cluster(name: &str, labels: &Value) -> Result<ManagedCluster> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels}, "spec": {"hubAcceptsClient": false},
    }))?)
}

async fn create(client: &Client, name: &str, labels: Value) -> Result<ManagedCluster> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    Ok(api
        .create(&PostParams::default(), &cluster(name, &labels)?)
        .await?)
}

/// Sets or removes labels with `update`, the verb that the design document's roles hold. The object is read by an
/// administrator, so that no right to read is needed.
async fn relabel(fleet: &Fleet, client: &Client, name: &str, labels: &[(&str, Option<&str>)]) -> Result<()> {
    let read: Api<ManagedCluster> = Api::all(fleet.hub.admin().await?);
    let write: Api<ManagedCluster> = Api::all(client.clone());
    loop {
        let mut object = read.get(name).await?;
        for (key, value) in labels {
            match value {
                Some(value) => object.labels_mut().insert((*key).into(), (*value).into()),
                None => object.labels_mut().remove(*key),
            };
        }
        match write.replace(name, &PostParams::default(), &object).await {
            // The hub wrote in between.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => return answer.map(drop).map_err(Into::into),
        }
    }
}

/// Asserts that it was refused with these words.
fn refused<T>(answer: Result<T>, words: &str) -> Result<()> {
    let Err(error) = answer else {
        anyhow::bail!("it should have been refused with {words:?}");
    };
    let message = format!("{error:#}");
    ensure!(
        message.contains(words),
        "refused, but not with {words:?}: {message}"
    );
    Ok(())
}

/// Waits until somebody who looks at the events of a cluster reads this, so many times.
async fn told(fleet: &Fleet, cluster: &str, reason: &str, times: i32) -> Result<()> {
    let events: Api<Event> = Api::namespaced(fleet.hub.admin().await?, "default");
    wait::until_true(&format!("an event says {reason}"), || async {
        Ok(events.list(&ListParams::default()).await?.iter().any(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(cluster)
                && event.series.as_ref().map_or(1, |series| series.count) >= times
        }))
    })
    .await
}

async fn wait_members(fleet: &Fleet, set: &str, count: i64) -> Result<()> {
    let api: Api<ManagedClusterSet> = Api::all(fleet.hub.admin().await?);
    wait::until_true(&format!("set {set} has {count} members"), || async {
        let status = api.get(set).await?.status.context("no status")?;
        Ok(status.cluster_count == Some(count))
    })
    .await
}
