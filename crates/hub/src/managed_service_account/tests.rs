//! Tables against the plans.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use writ_api::{
    authentication::{ManagedServiceAccount, ManagedServiceAccountStatus},
    cluster::ManagedCluster,
    proxy,
};
use writ_runtime::condition;

use super::{
    addon,
    plan::{self, Place, SeenSecret},
    rights,
};
use crate::options::RegistrationDriver;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn account(namespace: &str, uid: &str, change: &Value) -> ManagedServiceAccount {
    let mut object = json!({
        "apiVersion": "authentication.open-cluster-management.io/v1beta1",
        "kind": "ManagedServiceAccount",
        "metadata": { "name": "robot", "namespace": namespace, "uid": uid, "generation": 2,
            "creationTimestamp": "1970-01-01T00:01:40Z" },
        "spec": { "rotation": {} },
    });
    json_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn reported(status: &str, reason: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "TokenReported", "status": status, "reason": reason, "message": "m",
        "lastTransitionTime": "1970-01-01T00:00:00Z" }] } })
}

fn sets(clusters: &[&str]) -> Place {
    Place::Sets(clusters.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn an_account_ends_to_the_second() {
    let account = account("c1", "u", &json!({ "spec": { "ttlSecondsAfterCreation": 60 } }));
    assert_eq!(plan::ends_at(&account), Some(at(160)));
    assert_eq!(plan::ends_at(&self::account("c1", "u", &json!({}))), None);
}

#[test]
fn children_follow_the_clusters_and_take_no_name() {
    let parent = account(
        "team",
        "p",
        &json!({ "spec": { "ttlSecondsAfterCreation": 60, "audiences": ["x"] } }),
    );
    let mine = |cluster: &str| {
        let mut child = plan::child(&parent, cluster);
        child.metadata.uid = Some(format!("child-{cluster}"));
        child
    };
    let found = BTreeMap::from([
        ("c1".to_owned(), mine("c1")),
        ("gone".to_owned(), mine("gone")),
        ("c2".to_owned(), account("c2", "theirs", &json!({}))),
        ("other".to_owned(), account("other", "o", &json!({}))),
    ]);
    let family = plan::family(&parent, &sets(&["c1", "c2", "c3"]), &found);
    let wanted: Vec<_> = family.wanted.iter().filter_map(ResourceExt::namespace).collect();
    assert_eq!(wanted, ["c1", "c3"]);
    assert!(
        family
            .wanted
            .iter()
            .all(|child| child.spec.ttl_seconds_after_creation.is_none())
    );
    assert_eq!(family.taken.keys().collect::<Vec<_>>(), ["c2"]);
    let surplus: Vec<_> = family.surplus.iter().filter_map(ResourceExt::namespace).collect();
    assert_eq!(surplus, ["gone"]);
    // Without a binding, or in the namespace of a cluster, all children go, and nothing else.
    for place in [Place::Nowhere, Place::Cluster] {
        let family = plan::family(&parent, &place, &found);
        assert!(family.wanted.is_empty());
        let surplus: Vec<_> = family.surplus.iter().filter_map(ResourceExt::namespace).collect();
        assert_eq!(surplus, ["c1", "gone"]);
    }
}

#[test]
fn one_status_counts_and_names_the_failing() {
    let parent = account("team", "p", &json!({}));
    let child = |cluster: &str, change: &Value| {
        let mut child = plan::child(&parent, cluster);
        child.status = serde_json::from_value(change["status"].clone()).ok();
        (cluster.to_owned(), child)
    };
    let found = BTreeMap::from([
        child("c1", &reported("True", "TokenReported")),
        child("c2", &reported("False", "TokenReportFailed")),
        child("c3", &json!({})),
    ]);
    let place = sets(&["c1", "c2", "c3"]);
    let status = |found| {
        plan::family_status(
            &parent,
            &place,
            &plan::family(&parent, &place, found),
            found,
            at(1),
        )
    };
    let now = status(&found);
    let counts = now.clusters.clone().unwrap();
    assert_eq!((counts.total, counts.ready, counts.failing.len()), (3, 1, 1));
    assert_eq!(
        (counts.failing[0].name.as_str(), counts.failing[0].reason.as_str()),
        ("c2", "TokenReportFailed")
    );
    let present = condition::find(&now.conditions, "AllServiceAccountPresent").unwrap();
    assert_eq!(
        (present.status.as_str(), present.message.as_str()),
        ("False", "on 1 of 3 clusters; 1 fail")
    );
    assert_eq!(present.observed_generation, Some(2));
    let good = BTreeMap::from(["c1", "c2", "c3"].map(|c| child(c, &reported("True", "TokenReported"))));
    assert!(condition::is_true(
        &status(&good).conditions,
        "AllServiceAccountPresent"
    ));
    let nowhere = plan::family_status(&parent, &Place::Nowhere, &plan::Family::default(), &found, at(1));
    assert_eq!(nowhere.clusters, None);
    assert_eq!(nowhere.conditions[0].reason, "NamespaceNotBound");
}

#[test]
fn the_older_group_owns_shows_and_yields() {
    let from: proxy::ManagedServiceAccount = serde_json::from_value(json!({
        "apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedServiceAccount",
        "metadata": { "name": "robot", "namespace": "c1", "uid": "old", "generation": 7 },
        "spec": { "audiences": ["foo"], "rotation": { "enabled": false, "validity": "1h" } },
    }))
    .unwrap();
    let mut owned = plan::owned(&from);
    assert!(plan::owns(&from, &owned));
    assert_eq!(
        owned.annotations()["authentication.writ.dev/rotation"],
        "disabled"
    );
    assert_eq!(
        (
            owned.spec.rotation.validity.as_str(),
            owned.spec.audiences.as_ref().unwrap().len()
        ),
        ("1h", 1)
    );
    owned.metadata.generation = Some(3);
    owned.status = Some(ManagedServiceAccountStatus {
        secret_digest: Some("d".into()),
        ..serde_json::from_value(reported("True", "TokenReported")["status"].clone()).unwrap()
    });
    if let Some(status) = &mut owned.status {
        status.conditions[0].observed_generation = Some(3);
    }
    let shown = plan::owner_status(&from, Some(&owned), at(1));
    assert_eq!(shown.conditions[0].observed_generation, Some(7));
    assert_eq!(shown.secret_digest, None);
    let foreign = account("c1", "x", &json!({}));
    let conflict = plan::owner_status(&from, Some(&foreign), at(1));
    assert!(condition::is_true(&conflict.conditions, "Conflict"));
}

#[test]
fn a_secret_that_differs_from_the_report_is_suspect() {
    let reported = account("c1", "u", &json!({ "status": { "secretDigest": "d" } }));
    let seen = |digest: &str| SeenSecret {
        digest: digest.into(),
        version: "5".into(),
    };
    assert_eq!(plan::suspicion(&reported, Some(&seen("d"))), None);
    assert_eq!(
        plan::suspicion(&reported, Some(&seen("e"))).as_deref(),
        Some("changed-5")
    );
    assert_eq!(plan::suspicion(&reported, None).as_deref(), Some("missing"));
    let new = account("c1", "u", &json!({}));
    assert_eq!(plan::suspicion(&new, None), None, "nothing was reported yet");
}

#[test]
fn rights_name_every_secret_and_never_all() {
    let owner = OwnerReference::default();
    let rules = |names: &[&str]| {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        rights::role("c1", &owner, &names).rules.unwrap()
    };
    let reads = |rules: &[k8s_openapi::api::rbac::v1::PolicyRule]| -> Vec<Option<Vec<String>>> {
        rules
            .iter()
            .filter(|rule| rule.resources.as_deref() == Some(&["secrets".to_owned()]))
            .filter(|rule| rule.verbs.iter().any(|verb| verb != "create"))
            .map(|rule| rule.resource_names.clone())
            .collect()
    };
    assert!(reads(&rules(&[])).is_empty(), "no account, no Secret");
    assert_eq!(
        reads(&rules(&["b", "a"])),
        [Some(vec!["a".to_owned(), "b".to_owned()])]
    );
    for (driver, kind) in [
        (RegistrationDriver::Csr, "Group"),
        (RegistrationDriver::Token, "ServiceAccount"),
    ] {
        let subjects = rights::role_binding("c1", &owner, driver).subjects.unwrap();
        assert!(
            subjects
                .iter()
                .all(|subject| subject.name.contains(":c1") || subject.namespace.as_deref() == Some("c1")),
            "of this one cluster only: {subjects:?}"
        );
        let kinds: Vec<_> = subjects.iter().map(|subject| subject.kind.as_str()).collect();
        assert_eq!(
            kinds,
            [kind, "User"],
            "and only the identity that this driver gives"
        );
    }
    rights::policy().unwrap();
}

fn request(
    change: impl FnOnce(&mut CertificateSigningRequest),
    user: &str,
    groups: &[&str],
) -> CertificateSigningRequest {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    for group in groups {
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, *group);
    }
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let mut csr = CertificateSigningRequest {
        metadata: ObjectMeta {
            labels: Some(
                [(
                    "open-cluster-management.io/cluster-name".to_owned(),
                    "prod".to_owned(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: addon::SIGNER.into(),
            usages: Some(vec![
                "digital signature".into(),
                "key encipherment".into(),
                "client auth".into(),
            ]),
            username: Some("system:open-cluster-management:prod:agent1".into()),
            groups: Some(vec![
                "system:open-cluster-management:prod".into(),
                "system:authenticated".into(),
            ]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    change(&mut csr);
    csr
}

#[test]
fn only_the_exact_request_for_the_credential_is_granted() {
    let (user, group) = (rights::addon_user("prod"), rights::addon_group("prod"));
    let good = [group.as_str()];
    let nothing = |_: &mut CertificateSigningRequest| {};
    let check = |csr: &CertificateSigningRequest| addon::may_approve(csr).map_err(|denied| denied.0);
    assert_eq!(check(&request(nothing, &user, &good)).as_deref(), Ok("prod"));
    let other = rights::addon_user("prod-2");
    assert_eq!(
        check(&request(nothing, &other, &good)),
        Err("it asks for another user")
    );
    assert_eq!(
        check(&request(nothing, "kubernetes-admin", &good)),
        Err("it asks for another user")
    );
    assert_eq!(
        check(&request(nothing, &user, &[&group, "system:masters"])),
        Err("it asks for other groups")
    );
    assert_eq!(
        check(&request(nothing, &user, &[])),
        Err("it asks for other groups")
    );
    let signer =
        |csr: &mut CertificateSigningRequest| csr.spec.signer_name = "kubernetes.io/kubelet-serving".into();
    assert_eq!(
        check(&request(signer, &user, &good)),
        Err("it asks another signer")
    );
    // A cluster whose name only begins like this one is another cluster.
    let neighbour = |csr: &mut CertificateSigningRequest| {
        csr.spec.username = Some("system:open-cluster-management:prod-2:agent1".into());
    };
    assert_eq!(
        check(&request(neighbour, &user, &good)),
        Err("it was not made by the agent of its cluster")
    );
    let bootstrap =
        |csr: &mut CertificateSigningRequest| csr.spec.groups = Some(vec!["system:bootstrappers".into()]);
    assert_eq!(
        check(&request(bootstrap, &user, &good)),
        Err("it was not made by the agent of its cluster")
    );
    let serving = |csr: &mut CertificateSigningRequest| {
        csr.spec.usages = Some(vec!["client auth".into(), "server auth".into()]);
    };
    assert_eq!(
        check(&request(serving, &user, &good)),
        Err("it asks for other usages than a client's")
    );
    let broken = |csr: &mut CertificateSigningRequest| csr.spec.request = ByteString(b"x".to_vec());
    assert_eq!(
        check(&request(broken, &user, &good)),
        Err("it is not a certificate request")
    );
}

#[test]
fn where_our_agent_runs_nothing_is_installed() {
    let cluster = |claim: &str| -> ManagedCluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": { "name": "c1" }, "spec": { "hubAcceptsClient": true },
            "status": { "clusterClaims": [{ "name": "agent.writ.dev", "value": claim }],
                "conditions": [{ "type": "ManagedClusterConditionAvailable", "status": "True", "reason": "r",
                    "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }] },
        }))
        .unwrap()
    };
    assert!(addon::runs_our_agent(&cluster("work,tokens")));
    assert!(!addon::runs_our_agent(&cluster("work,tokens2")));
    let mca = addon::wanted("c1");
    let ours = addon::status(&mca, &cluster("tokens"), None, at(1));
    assert_eq!(ours.namespace.as_deref(), Some("open-cluster-management-agent"));
    assert!(ours.registrations.is_empty() && condition::is_true(&ours.conditions, "Available"));
    let mut elsewhere = cluster("tokens");
    let claims = &mut elsewhere.status.as_mut().unwrap().cluster_claims;
    claims.push(
        serde_json::from_value(json!({ "name": "namespace.agent.writ.dev", "value": "agents" })).unwrap(),
    );
    let elsewhere = addon::status(&mca, &elsewhere, None, at(1));
    assert_eq!(elsewhere.namespace.as_deref(), Some("agents"));
    let theirs = addon::status(&mca, &cluster("work"), None, at(1));
    assert_eq!(
        theirs.namespace.as_deref(),
        Some("open-cluster-management-agent-addon")
    );
    let subject = theirs.registrations[0].subject.clone().unwrap();
    assert_eq!(
        (subject.user, subject.groups),
        (rights::addon_user("c1"), vec![rights::addon_group("c1")])
    );
    let available = condition::find(&theirs.conditions, "Available").unwrap();
    assert_eq!(available.status, "Unknown", "nothing is delivered yet");
    let kinds: Vec<_> = addon::work(&mca, "c1", "img")
        .spec
        .workload
        .manifests
        .iter()
        .map(|manifest| manifest.0["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(kinds.contains(&"Deployment".to_owned()));
    let text = serde_json::to_string(&addon::work(&mca, "c1", "img")).unwrap();
    assert!(text.contains("--controllers=tokens") && !text.contains("addon-lease"));
}
