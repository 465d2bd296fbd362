//! Which certificate requests are a cluster's, which is chosen, and who renews.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use writ_api::cluster::ManagedCluster;

use super::{
    super::{
        model::{Choice, Observation},
        plan::{agent_requests, cluster::plan},
    },
    cluster,
};
use crate::csr::{ClientRequest, SIGNER};

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

/// A certificate request with any subject, which no library would write. Its signature is not checked.
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

fn recognise(subject: &[(u8, &str)], label: &str) -> Result<ClientRequest, String> {
    agent_requests::read_agent_request(&request(&pem(subject, false), label, SIGNER, USAGES, "bootstrap"))
}

#[test]
fn agent_request_that_differs_in_anything_is_refused() {
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
        (SIGNER, &["client auth", "server auth"][..], "more usages"),
        (SIGNER, &["digital signature"][..], "no client"),
    ] {
        assert!(
            agent_requests::read_agent_request(&request(&good, "prod", signer, usages, "b")).is_err(),
            "{why}"
        );
    }
    let with_san = pem(&[(CN, &cn), (O, &own)], true);
    assert!(agent_requests::read_agent_request(&request(&with_san, "prod", SIGNER, USAGES, "b")).is_err());
    assert!(agent_requests::read_agent_request(&request("no pem", "prod", SIGNER, USAGES, "b")).is_err());
}

fn asked(id: &str, requester: &str) -> ClientRequest {
    ClientRequest {
        id: id.into(),
        cluster: "prod".into(),
        user: format!("{PREFIX}:prod:agent"),
        requester: crate::agent_identity::Requester {
            name: requester.into(),
            groups: vec![],
        },
        ..ClientRequest::default()
    }
}

#[test]
fn request_is_chosen_only_if_it_is_named_or_the_only_one() {
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
        // The named request has not been seen yet: no other takes its place.
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
        assert_eq!(
            agent_requests::choose(&object, pending),
            expected,
            "{:?}",
            object.metadata
        );
    }
    assert!(renewal[0].is_renewal() && !one[0].is_renewal());
}

/// A report of having joined is not enough to renew: the holder of an old certificate can send it as well.
#[test]
fn renewal_needs_an_agent_that_the_hub_let_in() {
    let joined = |annotations: Value| {
        let mut object = cluster(
            json!({"hubAcceptsClient": true}),
            json!({"annotations": annotations, "creationTimestamp": "2026-01-01T00:00:10Z"}),
        );
        object.status = serde_json::from_value(
            json!({"conditions": [{"type": "ManagedClusterJoined", "status": "True", "reason": "x", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        )
        .unwrap();
        object
    };
    let recorded = json!({"writ.dev/taken-over": "false"});
    for (annotations, renews) in [
        (json!({}), false),
        (recorded.clone(), false),
        (json!({"writ.dev/taken-over": "true"}), true),
        (json!({"writ.dev/certificate-issued": "a@1"}), true),
    ] {
        assert_eq!(
            agent_requests::may_renew(&joined(annotations.clone())),
            renews,
            "{annotations}"
        );
    }
    // Told once, when the cluster is first seen accepted; before anybody could have rights of ours.
    let record = |object: &ManagedCluster| plan(object, &Observation::default()).taken_over;
    let accepted = cluster(json!({"hubAcceptsClient": true}), json!({}));
    assert_eq!(record(&accepted), Some(false));
    assert_eq!(record(&joined(json!({}))), Some(true));
    assert_eq!(record(&joined(recorded.clone())), None);
    assert_eq!(
        record(&joined(json!({"writ.dev/certificate-issued": "a@1"}))),
        None
    );
    assert_eq!(record(&cluster(json!({}), json!({}))), None);

    // An approval by hand lets an agent in, for the present cluster and not for a former one.
    let (cn, own) = (format!("{PREFIX}:prod:agent"), format!("{PREFIX}:prod"));
    let approved = |requester: &str, created: &str| {
        let mut request = request(
            &pem(&[(CN, &cn), (O, &own)], false),
            "prod",
            SIGNER,
            USAGES,
            requester,
        );
        request.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
        request.status =
            serde_json::from_value(json!({"conditions": [{"type": "Approved", "status": "True"}]})).unwrap();
        request
    };
    let (early, late) = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:10Z");
    let picked = json!({"writ.dev/accept-csr": "b@2"});
    for (annotations, request, expected) in [
        (&recorded, approved("bootstrap", late), Some("csr-1@u1")),
        (&recorded, approved("bootstrap", early), None),
        (&recorded, approved(&cn, late), None),
        (&picked, approved("bootstrap", late), None),
    ] {
        let found = agent_requests::approved_by_hand(&joined(annotations.clone()), [&request]);
        let found = found.map(|asked| asked.id);
        assert_eq!(found.as_deref(), expected, "{annotations} {:?}", request.metadata);
    }
}
