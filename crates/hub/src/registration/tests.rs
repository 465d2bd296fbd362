use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use writ_api::cluster::ManagedCluster;

use super::{
    csr::{self, Asked, Choice},
    plan::{Delete, Observed, plan},
    rights::{self, Level},
};
use crate::options::{AgentRights, RegistrationDriver};

const PREFIX: &str = "system:open-cluster-management";

/// One DER value.
fn der(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let content = parts.concat();
    let mut bytes = vec![tag];
    match content.len() {
        short @ 0..128 => bytes.push(u8::try_from(short).unwrap()),
        long => {
            bytes.push(0x82);
            bytes.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

/// A certificate request with any subject, which no library would write. Its signature is not looked at.
fn pem(subject: &[(u8, &str)], san: bool) -> String {
    let attribute = |(kind, value): &(u8, &str)| {
        let pair = [
            der(0x06, &[vec![0x55, 0x04, *kind]]),
            der(0x0c, &[value.as_bytes().to_vec()]),
        ];
        der(0x31, &[der(0x30, &pair)])
    };
    let name = der(0x30, &subject.iter().map(attribute).collect::<Vec<_>>());
    let ed25519 = der(0x30, &[der(0x06, &[vec![0x2b, 0x65, 0x70]])]);
    let key = der(0x30, &[ed25519.clone(), der(0x03, &[vec![0; 33]])]);
    let extension = der(
        0x30,
        &[
            der(0x06, &[vec![0x55, 0x1d, 0x11]]),
            der(0x04, &[der(0x30, &[der(0x82, &[b"x".to_vec()])])]),
        ],
    );
    let request_oid = vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
    let wanted = der(
        0x30,
        &[der(0x06, &[request_oid]), der(0x31, &[der(0x30, &[extension])])],
    );
    let attributes = der(0xa0, &if san { vec![wanted] } else { vec![] });
    let info = der(0x30, &[der(0x02, &[vec![0]]), name, key, attributes]);
    let request = der(0x30, &[info, ed25519, der(0x03, &[vec![0; 65]])]);
    format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(request)
    )
}

const CN: u8 = 3;
const O: u8 = 10;
const OU: u8 = 11;
const USAGES: &[&str] = &["digital signature", "key encipherment", "client auth"];

fn request(
    pem: &str,
    label: &str,
    signer: &str,
    usages: &[&str],
    requester: &str,
) -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-1", "uid": "u1", "labels": {"open-cluster-management.io/cluster-name": label}},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": signer,
            "usages": usages,
            "username": requester,
            "groups": ["system:authenticated"],
        },
    }))
    .unwrap()
}

fn recognise(subject: &[(u8, &str)], label: &str) -> Result<Asked, String> {
    csr::recognise(&request(
        &pem(subject, false),
        label,
        csr::SIGNER,
        USAGES,
        "bootstrap",
    ))
}

#[test]
fn only_an_exact_request_is_recognised() {
    let (cn, own) = (format!("{PREFIX}:prod:agent"), format!("{PREFIX}:prod"));
    let common = format!("{PREFIX}:managed-clusters");
    let good: &[(u8, &str)] = &[(CN, &cn), (O, &own), (O, &common)];
    let asked = recognise(good, "prod").unwrap();
    assert_eq!(
        (asked.cluster.as_str(), asked.user.as_str(), asked.id.as_str()),
        ("prod", cn.as_str(), "csr-1@u1")
    );
    assert_eq!(asked.fingerprint.len(), 64);
    assert!(recognise(&[(CN, &cn), (O, &own)], "prod").is_ok());

    let other_cn = format!("{PREFIX}:prod1:agent");
    let other_org = format!("{PREFIX}:prod1");
    for (subject, label, why) in [
        (
            vec![(CN, cn.as_str()), (O, own.as_str())],
            "prod1",
            "another cluster's label",
        ),
        (
            vec![(CN, other_cn.as_str()), (O, own.as_str())],
            "prod",
            "a name that starts like it",
        ),
        (
            vec![(CN, cn.as_str()), (O, other_org.as_str())],
            "prod",
            "an organization that starts like it",
        ),
        (
            vec![
                (CN, cn.as_str()),
                (O, own.as_str()),
                (O, common.as_str()),
                (O, "system:masters"),
            ],
            "prod",
            "a third organization",
        ),
        (vec![(CN, cn.as_str())], "prod", "no organization"),
        (
            vec![(CN, cn.as_str()), (O, common.as_str())],
            "prod",
            "the common organization only",
        ),
        (
            vec![(CN, cn.as_str()), (CN, "admin"), (O, own.as_str())],
            "prod",
            "two names",
        ),
        (
            vec![(CN, cn.as_str()), (O, own.as_str()), (OU, "x")],
            "prod",
            "a unit",
        ),
        (
            vec![(CN, own.as_str()), (O, own.as_str())],
            "prod",
            "no agent's name",
        ),
    ] {
        assert!(recognise(&subject, label).is_err(), "{why}");
    }
    let good = pem(good, false);
    for (signer, usages, why) in [
        ("kubernetes.io/kubelet-serving", USAGES, "another signer"),
        (csr::SIGNER, &["client auth", "server auth"][..], "more usages"),
        (csr::SIGNER, &["digital signature"][..], "no client"),
    ] {
        assert!(
            csr::recognise(&request(&good, "prod", signer, usages, "b")).is_err(),
            "{why}"
        );
    }
    let with_san = pem(&[(CN, &cn), (O, &own)], true);
    assert!(csr::recognise(&request(&with_san, "prod", csr::SIGNER, USAGES, "b")).is_err());
    assert!(csr::recognise(&request("no pem", "prod", csr::SIGNER, USAGES, "b")).is_err());
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn cluster(spec: Value, metadata: Value) -> ManagedCluster {
    let mut object = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "prod"},
        "spec": spec,
    });
    json_patch::merge(&mut object, &json!({"metadata": metadata}));
    serde_json::from_value(object).unwrap()
}

fn asked(id: &str, requester: &str) -> Asked {
    Asked {
        id: id.into(),
        cluster: "prod".into(),
        user: format!("{PREFIX}:prod:agent"),
        requester: crate::admission::access::Requester {
            name: requester.into(),
            groups: vec![],
        },
        fingerprint: String::new(),
    }
}

#[test]
fn which_request_is_chosen() {
    let accepted = |annotations: Value| {
        cluster(
            json!({"hubAcceptsClient": true}),
            json!({"annotations": annotations}),
        )
    };
    let one = [asked("a@1", "bootstrap")];
    let two = [asked("a@1", "bootstrap"), asked("b@2", "bootstrap")];
    let foreign = [asked("a@1", "system:open-cluster-management:other:agent")];
    let renewal = [asked("a@1", "system:open-cluster-management:prod:agent")];
    let record = |id: &str| Choice::Record(id.into());
    let mut joined = accepted(json!({}));
    joined.status = serde_json::from_value(
        json!({"conditions": [{"type": "ManagedClusterJoined", "status": "True",
        "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
    )
    .unwrap();
    for (object, pending, expected) in [
        (
            cluster(json!({"hubAcceptsClient": false}), json!({})),
            &one[..],
            Choice::Nothing,
        ),
        (accepted(json!({})), &one, record("a@1")),
        (
            accepted(json!({})),
            &two,
            Choice::Ambiguous(vec!["a@1".into(), "b@2".into()]),
        ),
        (
            accepted(json!({"writ.dev/accept-csr": "b@2"})),
            &two,
            record("b@2"),
        ),
        (
            accepted(json!({"writ.dev/certificate-issued": "a@1"})),
            &one,
            Choice::Approve("a@1".into()),
        ),
        // An agent came in some other way: it is not replaced without a person.
        (joined.clone(), &one, Choice::Nothing),
        (joined, &two, Choice::Nothing),
        // The name is the same, the object is another.
        (
            accepted(json!({"writ.dev/certificate-issued": "a@0"})),
            &one,
            Choice::Nothing,
        ),
        (
            accepted(json!({"writ.dev/certificate-issued": "a@0"})),
            &two,
            Choice::Nothing,
        ),
        (
            accepted(json!({"writ.dev/certificate-issued": "a@0", "writ.dev/accept-csr": "b@2"})),
            &two,
            record("b@2"),
        ),
        // The one that was picked has not been seen here yet: no other takes its place.
        (
            accepted(json!({"writ.dev/accept-csr": "c@3"})),
            &one,
            Choice::Nothing,
        ),
        (
            accepted(json!({"writ.dev/accept-csr": "c@3"})),
            &two,
            Choice::Nothing,
        ),
        (accepted(json!({})), &foreign, Choice::Nothing),
        (accepted(json!({})), &renewal, Choice::Nothing),
        (accepted(json!({})), &[], Choice::Nothing),
    ] {
        assert_eq!(csr::choose(&object, pending), expected, "{:?}", object.metadata);
    }
    assert!(renewal[0].is_renewal() && !one[0].is_renewal());
}

fn status(mut object: ManagedCluster, available: &str) -> ManagedCluster {
    object.status = serde_json::from_value(json!({"conditions": [
        {"type": "ManagedClusterConditionAvailable", "status": available, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "HubAcceptedManagedCluster", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}))
    .unwrap();
    object
}

#[test]
fn silence_makes_a_cluster_unknown_and_tainted() {
    let accepted = cluster(
        json!({"hubAcceptsClient": true, "leaseDurationSeconds": 10}),
        json!({}),
    );
    let silent = |seconds| Observed {
        silent_for: Some(Duration::from_secs(seconds)),
        ..Observed::default()
    };
    let keys = |taints: Option<Vec<writ_api::cluster::managed_cluster::Taint>>| {
        taints.map(|t| {
            t.iter()
                .map(|t| t.key.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        })
    };
    // A new cluster is unreachable until its agent reports.
    let new = plan(&accepted, &silent(0));
    assert_eq!(keys(new.taints), Some(vec!["unreachable".into()]));
    assert_eq!(new.again_in, Some(Duration::from_secs(50)));
    assert!(new.home && new.finalizer && new.level == Level::Member);

    let up = plan(&status(accepted.clone(), "True"), &silent(49));
    assert_eq!((keys(up.taints), up.conditions.len()), (None, 1));
    let late = plan(&status(accepted.clone(), "True"), &silent(50));
    assert_eq!(late.conditions[1].reason, "ManagedClusterLeaseUpdateStopped");
    assert_eq!(keys(late.taints), Some(vec!["unreachable".into()]));
    let broken = plan(&status(accepted.clone(), "False"), &silent(1));
    assert_eq!(keys(broken.taints), Some(vec!["unavailable".into()]));

    let mut tainted = status(accepted, "True");
    tainted.spec.taints = serde_json::from_value(json!([
        {"key": "cluster.open-cluster-management.io/unreachable", "effect": "NoSelect"},
        {"key": "theirs", "effect": "NoSelect"},
    ]))
    .unwrap();
    assert_eq!(
        keys(plan(&tainted, &silent(1)).taints),
        Some(vec!["theirs".into()])
    );
    // A clock that is off by five times a lease's duration is wrong, as upstream; one that was not seen says nothing.
    for (off, reason) in [
        (49, "ManagedClusterClockSynced"),
        (50, "ManagedClusterClockOutOfSync"),
    ] {
        let observed = Observed {
            clock_off: Some(Duration::from_secs(off)),
            ..silent(1)
        };
        let said = plan(&tainted, &observed).conditions;
        let said = said
            .iter()
            .find(|c| c.type_ == "ManagedClusterConditionClockSynced");
        assert_eq!(said.unwrap().reason, reason);
    }
    // Zero means the default.
    let zero = cluster(
        json!({"hubAcceptsClient": true, "leaseDurationSeconds": 0}),
        json!({}),
    );
    assert_eq!(plan(&zero, &silent(0)).again_in, Some(Duration::from_mins(5)));
}

#[test]
fn denied_clusters_lose_everything_and_leaving_ones_finish_first() {
    let denied = status(cluster(json!({"hubAcceptsClient": false}), json!({})), "True");
    let planned = plan(&denied, &Observed::default());
    assert_eq!(planned.level, Level::Nothing);
    assert_eq!(planned.conditions[0].reason, "HubClusterAdminDenied");
    let new = cluster(json!({"hubAcceptsClient": false}), json!({}));
    assert!(plan(&new, &Observed::default()).conditions.is_empty());

    let leaving = |annotations: Value| {
        cluster(
            json!({"hubAcceptsClient": true}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}),
        )
    };
    let force = json!({"writ.dev/force-detach": "true"});
    for (annotations, works, addons, level, delete, finalizer) in [
        (json!({}), 2, 1, Level::Leaving, Delete::AddOns, true),
        (json!({}), 2, 0, Level::Leaving, Delete::Works, true),
        (json!({}), 0, 0, Level::Nothing, Delete::Nothing, false),
        (force.clone(), 2, 1, Level::Nothing, Delete::WorksByForce, true),
        (force, 0, 0, Level::Nothing, Delete::Nothing, false),
    ] {
        let observed = Observed {
            works,
            addons,
            ..Observed::default()
        };
        let planned = plan(&leaving(annotations), &observed);
        assert_eq!(
            (planned.level, planned.delete, planned.finalizer),
            (level, delete, finalizer)
        );
    }
}

#[test]
fn an_agent_gets_what_it_needs() {
    let verbs = |kind| {
        let rights = rights::of("prod", Level::Member, kind, RegistrationDriver::Csr);
        rights.roles[0].rules.as_ref().unwrap()[0].verbs.clone()
    };
    assert_eq!(verbs(AgentRights::Minimal), ["get", "list", "watch"]);
    assert_eq!(verbs(AgentRights::Ocm), ["get", "list", "watch", "update"]);
    let leaving = rights::of(
        "prod",
        Level::Leaving,
        AgentRights::Minimal,
        RegistrationDriver::Csr,
    );
    assert_eq!(leaving.bindings.len(), 1);
    assert_eq!(
        leaving.bindings[0].role_ref.name,
        "open-cluster-management:managedcluster:work"
    );
    let token = rights::of(
        "prod",
        Level::Member,
        AgentRights::Minimal,
        RegistrationDriver::Token,
    );
    assert!(token.account.is_some());
    for binding in &token.bindings {
        assert_eq!(binding.subjects.as_ref().unwrap()[0].kind, "ServiceAccount");
    }
    let none = rights::of("prod", Level::Nothing, AgentRights::Ocm, RegistrationDriver::Csr);
    assert_eq!(none, rights::Rights::default());
}
