//! Whether an existing ServiceAccount may be used.

use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt;
use serde_json::json;
use writ_api::authentication::{ANNOTATION_ACCOUNT, LABEL_MANAGED, ManagedServiceAccount};

use super::{
    super::{
        model::{Existing, Settings, Wish},
        plan::{service_account as own, token as plan},
    },
    account, service_account, settings,
};

fn owner(name: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ServiceAccount".into(),
        name: name.into(),
        uid: format!("uid of {name}"),
        ..OwnerReference::default()
    }
}

/// An account that has had a token.
fn reported() -> ManagedServiceAccount {
    account(
        &json!({"status": {"tokenSecretRef": {"name": "a", "lastRefreshTimestamp": "1970-01-01T00:00:00Z"}}}),
    )
}

#[test]
fn existing_service_account_is_used_restored_or_refused() {
    let reported = reported();
    let wish = plan::wish(&reported, &settings()).unwrap();
    let adopting = Wish {
        adopt: true,
        ..wish.clone()
    };
    let foreign = json!({"metadata": {"labels": null, "annotations": null}});
    let upstream = json!({"metadata": {"annotations": null}});
    let stripped = json!({"metadata": {"labels": {LABEL_MANAGED: null}}});
    let of_another_hub = json!({"metadata": {"annotations": {"authentication.writ.dev/cluster": "c2"}}});
    let of_an_add_on = json!({"metadata": {"labels": null, "annotations": null, "ownerReferences":
        [{"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "name": "x", "uid": "y"}]}});
    let stripped_of_all = foreign.clone();
    let mounted = json!({"automountServiceAccountToken": false});
    let owned_by_an_add_on = json!({"metadata": {"ownerReferences":
        [{"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "name": "x", "uid": "y"}]}});
    let terminating =
        json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": ["x/y"]}});
    let look = |wish: &Wish, known: bool, change: &serde_json::Value| match own::existing(
        &reported,
        wish,
        &service_account(change),
        known,
        &settings(),
    ) {
        Ok(Existing::Use) => "use".to_owned(),
        Ok(Existing::Restore(_)) => "restore".to_owned(),
        Ok(Existing::Replace) => "replace".to_owned(),
        Err(refusal) => refusal.reason.to_owned(),
    };
    let cases = [
        (&wish, json!({}), "use"),
        (&wish, upstream, "restore"),
        (&wish, stripped, "restore"),
        (&wish, mounted, "restore"),
        (&wish, foreign.clone(), "ServiceAccountNotOurs"),
        (&adopting, foreign.clone(), "use"),
        (&adopting, terminating.clone(), "ServiceAccountTerminating"),
        (&adopting, of_another_hub, "ServiceAccountNotOurs"),
        (&adopting, of_an_add_on, "NameReserved"),
        (&adopting, owned_by_an_add_on.clone(), "NameReserved"),
    ];
    for (wish, change, wanted) in cases {
        assert_eq!(
            look(wish, false, &change),
            wanted,
            "adopt {} {change}",
            wish.adopt
        );
    }
    // One that we made is restored whatever was taken off it; an add-on's is not ours, even so.
    assert_eq!(look(&wish, true, &stripped_of_all), "restore");
    assert_eq!(look(&wish, true, &owned_by_an_add_on), "NameReserved");
    assert_eq!(look(&wish, true, &terminating), "ServiceAccountTerminating");
    // The agent is its only owner.
    let owned = Settings {
        owner: Some(owner("writ-agent")),
        ..settings()
    };
    for (owners, restored) in [
        (vec![], true),
        (vec![owner("writ-agent")], false),
        (vec![owner("somebody")], true),
        (vec![owner("writ-agent"), owner("somebody")], true),
    ] {
        let found = service_account(&json!({"metadata": {"ownerReferences": owners}}));
        match own::existing(&reported, &wish, &found, false, &owned).unwrap() {
            Existing::Use => assert!(!restored, "{owners:?}"),
            Existing::Restore(patch) => {
                assert!(restored, "{owners:?}");
                assert_eq!(patch["metadata"]["ownerReferences"], json!([owner("writ-agent")]));
            }
            Existing::Replace => panic!("it is this account's: {owners:?}"),
        }
    }
}

#[test]
fn service_account_of_a_former_account_is_replaced() {
    let (new, old) = (account(&json!({})), reported());
    let wish = plan::wish(&new, &settings()).unwrap();
    let says = |uid: Option<&str>| json!({"metadata": {"annotations": {ANNOTATION_ACCOUNT: uid}}});
    let look = |account: &ManagedServiceAccount, known: bool, uid: Option<&str>| match own::existing(
        account,
        &wish,
        &service_account(&says(uid)),
        known,
        &settings(),
    )
    .unwrap()
    {
        Existing::Use => "use",
        Existing::Restore(_) => "restore",
        Existing::Replace => "replace",
    };
    for (account, known, uid, wanted) in [
        (&new, false, Some("u1"), "use"),
        (&new, false, Some("u0"), "replace"),
        (&old, false, Some("u0"), "replace"),
        // An older agent made it: it is this account's if that has had a token, and says so from now on.
        (&old, false, None, "restore"),
        (&new, false, None, "replace"),
        // A known ServiceAccount that was edited is not replaced.
        (&new, true, Some("u0"), "restore"),
        (&new, true, None, "restore"),
    ] {
        assert_eq!(look(account, known, uid), wanted, "{known} {uid:?}");
    }
    // Somebody else's has nothing to do with it.
    let adopting = Wish {
        adopt: true,
        ..wish.clone()
    };
    let theirs = service_account(&json!({"metadata": {"labels": null, "annotations": null}}));
    assert_eq!(
        own::existing(&new, &adopting, &theirs, false, &settings()),
        Ok(Existing::Use)
    );
}

#[test]
fn service_account_taken_over_by_an_add_on_is_known_as_ours() {
    let of = |change: &serde_json::Value, settings: &Settings| {
        let found = service_account(change);
        (own::belongs_to_an_add_on(&found), own::was_ours(&found, settings))
    };
    let with_agent = Settings {
        owner: Some(owner("writ-agent")),
        ..settings()
    };
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "name": "x",
        "uid": "y"});
    let taken = json!({"metadata": {"ownerReferences": [owner("writ-agent"), work]}});
    assert_eq!(of(&taken, &with_agent), (true, true));
    // The add-on's own, whatever it carries, is not.
    let theirs = json!({"metadata": {"labels": {LABEL_MANAGED: "true"}, "ownerReferences": [work]}});
    assert_eq!(of(&theirs, &with_agent), (true, false));
    let of_another_hub = json!({"metadata": {"annotations": {"authentication.writ.dev/cluster": "c2"},
        "ownerReferences": [work]}});
    assert_eq!(of(&of_another_hub, &settings()), (true, false));
}

#[test]
fn service_account_without_label_is_known_by_its_owner() {
    let with_agent = Settings {
        owner: Some(owner("writ-agent")),
        ..settings()
    };
    let stripped = |owners: &[OwnerReference]| {
        service_account(
            &json!({"metadata": {"labels": null, "annotations": null, "ownerReferences": owners}}),
        )
    };
    let (had, new) = (reported(), account(&json!({})));
    let wish = plan::wish(&had, &settings()).unwrap();
    let ours = stripped(&[owner("writ-agent")]);
    assert!(own::is_ours(&ours, &with_agent), "it would outlive its account");
    let verdict = own::existing(&had, &wish, &ours, false, &with_agent);
    assert!(matches!(verdict, Ok(Existing::Restore(_))), "{verdict:?}");
    // An account that has had no token has not had this one.
    assert_eq!(
        own::existing(&new, &wish, &ours, false, &with_agent),
        Ok(Existing::Replace)
    );
    for theirs in [stripped(&[]), stripped(&[owner("somebody")])] {
        assert!(!own::is_ours(&theirs, &with_agent));
        let refused = own::existing(&had, &wish, &theirs, false, &with_agent).unwrap_err();
        assert_eq!(refused.reason, "ServiceAccountNotOurs");
    }
}

#[test]
fn foreign_annotation_is_removed_from_our_service_account() {
    let had = reported();
    let wish = plan::wish(&had, &settings()).unwrap();
    let role = "eks.amazonaws.com/role-arn";
    let edited = service_account(&json!({"metadata": {"annotations": {
        role: "arn:aws:iam::1:role/admin", "openshift.io/internal-registry-pull-secret-ref": "x",
        "authentication.writ.dev/former": "before/11111111-2222-3333-4444-555555555555/7"}}}));
    let Existing::Restore(patch) = own::existing(&had, &wish, &edited, false, &settings()).unwrap() else {
        panic!("it stays");
    };
    let mut object = serde_json::to_value(&edited).unwrap();
    json_patch::merge(&mut object, &patch);
    let restored: ServiceAccount = serde_json::from_value(object).unwrap();
    assert!(!restored.annotations().contains_key(role));
    assert_eq!(restored.annotations().len(), edited.annotations().len() - 1);
    // That is all: what the platform writes, what is noted and the pull secrets are no edits.
    assert_eq!(
        own::existing(&had, &wish, &restored, false, &settings()),
        Ok(Existing::Use)
    );
    let pulls = service_account(&json!({"imagePullSecrets": [{"name": "x"}], "secrets": [{"name": "y"}]}));
    assert_eq!(
        own::existing(&had, &wish, &pulls, false, &settings()),
        Ok(Existing::Use)
    );
    // Whose it was before it was adopted keeps what it had.
    let adopting = Wish {
        adopt: true,
        ..wish.clone()
    };
    let theirs = service_account(&json!({"metadata": {"labels": null, "annotations":
        {"authentication.writ.dev/cluster": null, ANNOTATION_ACCOUNT: null, role: "theirs"}}}));
    assert_eq!(
        own::existing(&had, &adopting, &theirs, false, &settings()),
        Ok(Existing::Use)
    );
}
