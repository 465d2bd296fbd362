//! The add-on: its credential, and where it is installed.

use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::api::ObjectMeta;
use serde_json::json;
use writ_api::{addon::ManagedClusterAddOnStatus, cluster::ManagedCluster, work::ManifestWork};
use writ_controller::condition;

use super::{
    super::{
        model::Credential,
        plan::{addon, addon_work, credential_request, rights},
    },
    at,
};
use crate::csr::SIGNER;

const NOT_ASKED: Credential = Credential::Certificate { requested: false };

fn csr(
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
            signer_name: SIGNER.into(),
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
fn credential_request_that_differs_in_anything_is_refused() {
    let (user, group) = (rights::addon_user("prod"), rights::addon_group("prod"));
    let good = [group.as_str()];
    let nothing = |_: &mut CertificateSigningRequest| {};
    let refused = |why: &str| Err(why.to_owned());
    let check = |request: &CertificateSigningRequest| credential_request::approvable_cluster(request);
    assert_eq!(check(&csr(nothing, &user, &good)), Ok("prod".to_owned()));
    let other = rights::addon_user("prod-2");
    assert_eq!(
        check(&csr(nothing, &other, &good)),
        refused("it asks for another user")
    );
    assert_eq!(
        check(&csr(nothing, "kubernetes-admin", &good)),
        refused("it asks for another user")
    );
    assert_eq!(
        check(&csr(nothing, &user, &[&group, "system:masters"])),
        refused("it asks for other groups")
    );
    assert_eq!(
        check(&csr(nothing, &user, &[])),
        refused("it asks for other groups")
    );
    let signer =
        |csr: &mut CertificateSigningRequest| csr.spec.signer_name = "kubernetes.io/kubelet-serving".into();
    assert_eq!(
        check(&csr(signer, &user, &good)),
        refused(
            "its signer is \"kubernetes.io/kubelet-serving\", not \"kubernetes.io/kube-apiserver-client\""
        )
    );
    // A cluster whose name only begins like this one is another cluster.
    let neighbour = |csr: &mut CertificateSigningRequest| {
        csr.spec.username = Some("system:open-cluster-management:prod-2:agent1".into());
    };
    assert_eq!(
        check(&csr(neighbour, &user, &good)),
        refused("it was not made by the agent of its cluster")
    );
    let bootstrap =
        |csr: &mut CertificateSigningRequest| csr.spec.groups = Some(vec!["system:bootstrappers".into()]);
    assert_eq!(
        check(&csr(bootstrap, &user, &good)),
        refused("it was not made by the agent of its cluster")
    );
    let serving = |csr: &mut CertificateSigningRequest| {
        csr.spec.usages = Some(vec!["client auth".into(), "server auth".into()]);
    };
    assert_eq!(
        check(&csr(serving, &user, &good)),
        refused("its usages are [\"client auth\", \"server auth\"]")
    );
    // Another attribute of the subject may mean something to a reader of the certificate: a uid, for one.
    let more = |csr: &mut CertificateSigningRequest| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, text) in [
            (rcgen::DnType::CommonName, user.as_str()),
            (rcgen::DnType::OrganizationName, group.as_str()),
            (rcgen::DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "0"),
        ] {
            params.distinguished_name.push(kind, text);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        csr.spec.request = ByteString(pem.into_bytes());
    };
    assert_eq!(
        check(&csr(more, &user, &good)),
        refused("its subject has more than a common name and organizations")
    );
    let broken = |csr: &mut CertificateSigningRequest| csr.spec.request = ByteString(b"x".to_vec());
    assert_eq!(
        check(&csr(broken, &user, &good)),
        refused("it is not one CERTIFICATE REQUEST in PEM")
    );
}

/// A cluster whose agent says that it runs these controllers.
fn cluster(claim: &str) -> ManagedCluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": { "name": "c1" }, "spec": { "hubAcceptsClient": true },
        "status": { "clusterClaims": [{ "name": "agent.writ.dev", "value": claim }],
            "conditions": [{ "type": "ManagedClusterConditionAvailable", "status": "True", "reason": "r",
                "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }] },
    }))
    .unwrap()
}

#[test]
fn with_the_token_driver_the_registration_names_the_account() {
    let mca = addon::wanted("c1");
    let said = |status: &ManagedClusterAddOnStatus, kind: &str| {
        let found = condition::find(&status.conditions, kind)?;
        Some((found.status.clone(), found.message.clone()))
    };
    let status = |mca: &_, runs: &str, account: Result<&str, &str>, now| {
        let account = account.map(str::to_owned).map_err(str::to_owned);
        addon::status(mca, &cluster(runs), None, &Credential::Token(account), at(now))
    };
    let ready = status(&mca, "addons,registration,work", Ok("u1"), 1);
    assert_eq!(ready.kube_client_driver.as_deref(), Some("token"));
    let subject = ready.registrations[0].subject.clone().unwrap();
    assert_eq!(
        subject.user,
        "system:serviceaccount:c1:managed-serviceaccount-agent"
    );
    assert!(subject.groups.is_empty());
    assert_eq!(
        said(&ready, "TokenInfrastructureReady"),
        Some((
            "True".into(),
            "ServiceAccount c1/managed-serviceaccount-agent (UID: u1) is ready".into()
        ))
    );
    assert_eq!(said(&ready, "CredentialRequested"), None, "nobody can see it");
    let not = status(&mca, "addons,registration,work", Err("no"), 1);
    assert_eq!(
        said(&not, "TokenInfrastructureReady"),
        Some(("False".into(), "no".into()))
    );
    // Nobody would ask for it, and that is said once.
    let nobody = status(&mca, "registration,work", Ok("u1"), 1);
    assert_eq!(said(&nobody, "CredentialRequested").unwrap().0, "False");
    let mut known = mca.clone();
    known.status = Some(nobody.clone());
    assert_eq!(status(&known, "registration,work", Ok("u1"), 2), nobody);
    // Another driver, or an agent that keeps the accounts: nothing of it is left. What a klusterlet chose stays.
    for runs in ["registration,work", "tokens"] {
        let later = addon::status(&known, &cluster(runs), None, &NOT_ASKED, at(2));
        assert_eq!(
            (
                &later.kube_client_driver,
                said(&later, "TokenInfrastructureReady")
            ),
            (&None, None)
        );
    }
    let mut theirs = mca.clone();
    theirs.status.get_or_insert_default().kube_client_driver = Some("csr".into());
    let kept = addon::status(&theirs, &cluster("work"), None, &NOT_ASKED, at(1));
    assert_eq!(kept.kube_client_driver.as_deref(), Some("csr"));
}

#[test]
fn delivered_addon_is_available_once_a_pod_is_ready() {
    let mca = addon::wanted("c1");
    let work = |ready: Option<i64>| {
        let values = ready.map(
            |ready| json!({"name": "ReadyReplicas", "fieldValue": {"type": "Integer", "integer": ready}}),
        );
        let values: Vec<_> = values.into_iter().collect();
        let mut work = addon_work::work(&mca, "c1", "img");
        work.status = serde_json::from_value(json!({"resourceStatus": {"manifests": [
            {"resourceMeta": {"ordinal": 0, "kind": "Deployment", "name": "other"}, "statusFeedback": {"values": [
                {"name": "ReadyReplicas", "fieldValue": {"type": "Integer", "integer": 1}}]}},
            {"resourceMeta": {"ordinal": 6, "kind": "Deployment", "name": "managed-serviceaccount-addon-agent"},
                "statusFeedback": {"values": values}},
        ]}}))
        .unwrap();
        work
    };
    let said = |cluster: &ManagedCluster, work: Option<&ManifestWork>| {
        let status = addon::status(&mca, cluster, work, &NOT_ASKED, at(1));
        let said = condition::find(&status.conditions, "Available").unwrap();
        (said.status.clone(), said.reason.clone())
    };
    let expect = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    let up = cluster("work");
    assert_eq!(said(&up, None), expect("Unknown", "NoProbeResult"));
    for ready in [None, Some(0)] {
        assert_eq!(
            said(&up, Some(&work(ready))),
            expect("False", "ProbeUnavailable"),
            "{ready:?}"
        );
    }
    assert_eq!(said(&up, Some(&work(Some(1)))), expect("True", "ProbeAvailable"));
    let mut silent = up;
    silent.status.as_mut().unwrap().conditions[0].status = "Unknown".into();
    assert_eq!(
        said(&silent, Some(&work(Some(1)))),
        expect("Unknown", "NoProbeResult")
    );
    let configs = addon_work::work(&mca, "c1", "img").spec.manifest_configs;
    assert_eq!(
        configs[0].resource_identifier.namespace,
        "open-cluster-management-agent-addon"
    );
}

#[test]
fn addon_run_by_our_agent_needs_no_registration() {
    assert!(addon::runs_our_agent(&cluster("work,tokens")));
    assert!(!addon::runs_our_agent(&cluster("work,tokens2")));
    let mca = addon::wanted("c1");
    let ours = addon::status(&mca, &cluster("tokens"), None, &NOT_ASKED, at(1));
    assert_eq!(ours.namespace.as_deref(), Some("open-cluster-management-agent"));
    assert!(ours.registrations.is_empty() && condition::is_true(&ours.conditions, "Available"));
    let mut elsewhere = cluster("tokens");
    let claims = &mut elsewhere.status.as_mut().unwrap().cluster_claims;
    claims.push(
        serde_json::from_value(json!({ "name": "namespace.agent.writ.dev", "value": "agents" })).unwrap(),
    );
    let elsewhere = addon::status(&mca, &elsewhere, None, &NOT_ASKED, at(1));
    assert_eq!(elsewhere.namespace.as_deref(), Some("agents"));
    let theirs = addon::status(&mca, &cluster("work"), None, &NOT_ASKED, at(1));
    assert_eq!(
        theirs.namespace.as_deref(),
        Some("open-cluster-management-agent-addon")
    );
    let subject = theirs.registrations[0].subject.clone().unwrap();
    assert_eq!(
        (subject.user, subject.groups),
        (rights::addon_user("c1"), vec![rights::addon_group("c1")])
    );
    // Where our own agent registers the cluster and keeps no accounts, it has to ask for the credential.
    let credential = |mca: &_, requested| {
        let certificate = Credential::Certificate { requested };
        let status = addon::status(mca, &cluster("registration,work"), None, &certificate, at(1));
        let said = condition::find(&status.conditions, "CredentialRequested").cloned();
        (status, said.unwrap())
    };
    let (_, said) = credential(&mca, false);
    assert_eq!(
        (said.status.as_str(), said.reason.as_str()),
        ("False", "AddOnsNotRegistered")
    );
    let ours = addon::status(
        &mca,
        &cluster("addons,registration,work"),
        None,
        &NOT_ASKED,
        at(1),
    );
    let said = condition::find(&ours.conditions, "CredentialRequested").unwrap();
    assert_eq!(
        (said.status.as_str(), said.reason.as_str()),
        ("False", "NotRequestedYet")
    );
    let mut asked = mca.clone();
    asked.status = Some(credential(&mca, true).0);
    assert_eq!(
        credential(&asked, false).1.status,
        "True",
        "requests do not stay for ever"
    );
    assert!(condition::find(&theirs.conditions, "CredentialRequested").is_none());
    let available = condition::find(&theirs.conditions, "Available").unwrap();
    assert_eq!(available.status, "Unknown", "nothing is delivered yet");
    let kinds: Vec<_> = addon_work::work(&mca, "c1", "img")
        .spec
        .workload
        .manifests
        .iter()
        .map(|manifest| manifest.0["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(kinds.contains(&"Deployment".to_owned()));
    let text = serde_json::to_string(&addon_work::work(&mca, "c1", "img")).unwrap();
    assert!(text.contains("--controllers=tokens") && !text.contains("addon-lease"));
}
