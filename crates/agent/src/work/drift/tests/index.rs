//! Tables: which changes matter to a work.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use writ_controller::{Name, ServedKind};

use crate::owner::Owner;
use crate::work::{
    drift::{DriftIndex, LastSeen, Need, index::Wake, watch_scope::WatchScope},
    model::{Key, OwnedObject},
};

fn kind() -> Arc<ServedKind> {
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    Arc::new(ServedKind {
        resource: ApiResource::from_gvk_with_plural(&gvk, "deployments"),
        namespaced: true,
    })
}

fn name(namespace: &str, name: &str) -> Name {
    Name::new(namespace, name)
}

fn wakes(key: &Key) -> Vec<Wake> {
    vec![Wake {
        key: key.clone(),
        delay: Duration::ZERO,
        is_awaited: false,
    }]
}

fn metadata(version: u64, generation: Option<i64>, label: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("shop".into()),
        name: Some("web".into()),
        uid: Some("u".into()),
        resource_version: Some(version.to_string()),
        generation,
        labels: Some([("l".to_owned(), label.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

#[test]
fn change_by_others_that_can_matter_wakes_the_work() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    assert_eq!(index.need(&key, resource, &web, 7), Need::Write);
    index.end_request(
        &key,
        resource,
        &web,
        Some(LastSeen::of(&metadata(10, Some(1), "a"), 7, false, "me")),
    );
    assert_eq!(index.need(&key, resource, &web, 7), Need::Nothing);
    assert_eq!(index.need(&key, resource, &web, 8), Need::Write);
    // Our own write and an older event.
    assert!(
        index
            .object_changed(resource, &metadata(10, Some(1), "a"))
            .is_empty()
    );
    assert!(
        index
            .object_changed(resource, &metadata(9, Some(1), "b"))
            .is_empty()
    );
    // A change of the status only.
    assert!(
        index
            .object_changed(resource, &metadata(11, Some(1), "a"))
            .is_empty()
    );
    // A change of a label, then of the spec.
    assert_eq!(
        index.object_changed(resource, &metadata(12, Some(1), "b")),
        wakes(&key)
    );
    assert_eq!(index.need(&key, resource, &web, 7), Need::Write);
    index.end_request(
        &key,
        resource,
        &web,
        Some(LastSeen::of(&metadata(13, Some(1), "a"), 7, false, "me")),
    );
    assert_eq!(
        index.object_changed(resource, &metadata(14, Some(2), "a")),
        wakes(&key)
    );
    // A kind without generations: any change can be drift.
    index.end_request(
        &key,
        resource,
        &web,
        Some(LastSeen::of(&metadata(15, None, "a"), 7, false, "me")),
    );
    assert_eq!(
        index.object_changed(resource, &metadata(16, None, "a")),
        wakes(&key)
    );
    // Feedback needs every change.
    index.end_request(
        &key,
        resource,
        &web,
        Some(LastSeen::of(&metadata(17, Some(3), "a"), 7, true, "me")),
    );
    assert_eq!(
        index.object_changed(resource, &metadata(18, Some(3), "a")),
        wakes(&key)
    );
    assert_eq!(index.need(&key, resource, &web, 7), Need::Read);
    assert_eq!(
        index.object_deleted(resource, &metadata(19, Some(3), "a")),
        wakes(&key)
    );
    assert_eq!(index.need(&key, resource, &web, 7), Need::Write);
    index.set_interest(&key, &[], &[]);
    assert!(index.scopes().is_empty());
}

#[test]
fn change_during_a_request_is_written_again() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    assert_eq!(
        index.object_changed(&kind.resource, &metadata(21, Some(1), "x")),
        wakes(&key)
    );
    let ours = LastSeen::of(&metadata(20, Some(1), "a"), 7, false, "me");
    index.end_request(&key, &kind.resource, &web, Some(ours));
    assert_eq!(index.need(&key, &kind.resource, &web, 7), Need::Write);
    // An object that a listing lacks is gone.
    let ours = LastSeen::of(&metadata(22, Some(1), "a"), 7, false, "me");
    index.end_request(&key, &kind.resource, &web, Some(ours));
    assert_eq!(index.need(&key, &kind.resource, &web, 7), Need::Nothing);
    let woken = index.listing_completed(&kind.resource, &WatchScope::All, &BTreeSet::new());
    assert_eq!(woken, wakes(&key));
}

#[test]
fn object_changed_again_and_again_is_corrected_with_pauses() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    let mut delays = Vec::new();
    for round in 0..20 {
        index.begin_request(&key, &kind.resource, &web);
        let ours = LastSeen::of(&metadata(round * 2 + 1, None, "a"), 7, false, "me");
        index.end_request(&key, &kind.resource, &web, Some(ours));
        let woken = index.object_changed(&kind.resource, &metadata(round * 2 + 2, None, "b"));
        delays.extend(woken.into_iter().map(|wake| wake.delay));
    }
    assert_eq!(delays.len(), 20);
    assert!(delays.iter().take(10).all(Duration::is_zero));
    assert!(
        delays
            .iter()
            .skip(10)
            .all(|delay| *delay >= Duration::from_secs(2) && *delay <= Duration::from_mins(1))
    );
}

#[test]
fn fields_of_others_changed_often_cause_no_pauses() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    index.end_request(
        &key,
        &kind.resource,
        &web,
        Some(LastSeen::of(&metadata(1, None, "a"), 7, false, "me")),
    );
    for version in 2..50 {
        // Without a generation any change can be drift: the work runs at once, and nothing has to be written.
        let theirs = metadata(version, None, "a");
        let woken = index.object_changed(&kind.resource, &theirs);
        assert_eq!(woken, wakes(&key), "{version}");
        index.begin_request(&key, &kind.resource, &web);
        index.end_request(
            &key,
            &kind.resource,
            &web,
            Some(LastSeen::of(&theirs, 7, false, "me")),
        );
    }
}

#[test]
fn owned_object_has_version_only_with_one_owner() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    let owned = |version: u64, owners: &[&str]| ObjectMeta {
        owner_references: Some(
            owners
                .iter()
                .map(|uid| {
                    let owner = Owner {
                        name: "n".into(),
                        uid: (*uid).into(),
                    };
                    owner.reference()
                })
                .collect(),
        ),
        ..metadata(version, None, "a")
    };
    let owned_after = |owners: &[&str]| {
        let last_seen = LastSeen::of(&owned(5, owners), 7, false, "me");
        index.end_request(&key, resource, &web, Some(last_seen));
        index.owned_object(&key, resource, &web, "me")
    };
    let own = |version: Option<&str>| {
        Some(OwnedObject {
            uid: "u".into(),
            version: version.map(ToOwned::to_owned),
        })
    };
    assert_eq!(owned_after(&[]), None);
    assert_eq!(owned_after(&["you"]), None);
    assert_eq!(owned_after(&["me", "you"]), own(None));
    assert_eq!(owned_after(&["me"]), own(Some("5")));
    // It was changed since: the version is not exact any more.
    index.object_changed(resource, &owned(6, &["me", "you"]));
    assert_eq!(index.owned_object(&key, resource, &web, "me"), own(None));
    // Without the owner reference it is still known to be the work's.
    index.object_changed(resource, &owned(7, &[]));
    assert_eq!(index.owned_object(&key, resource, &web, "me"), own(None));
}

#[test]
fn scope_is_the_smallest_that_includes_all_objects() {
    let key = Key::work("w");
    let kind = kind();
    let index = DriftIndex::default();
    let scope = |names: &[Name]| {
        let wanted: Vec<_> = names.iter().map(|name| (kind.clone(), name.clone())).collect();
        index.set_interest(&key, &wanted, &[]);
        index.scopes().pop().unwrap().1
    };
    assert_eq!(scope(&[name("a", "x")]), WatchScope::Object(name("a", "x")));
    assert_eq!(
        scope(&[name("a", "x"), name("a", "y")]),
        WatchScope::Namespace("a".into())
    );
    assert_eq!(scope(&[name("a", "x"), name("b", "y")]), WatchScope::All);
    assert_eq!(scope(&[name("", "x"), name("", "y")]), WatchScope::All);
    assert!(WatchScope::Namespace("a".into()).covers(&WatchScope::Object(name("a", "x"))));
    assert!(!WatchScope::Object(name("a", "x")).covers(&WatchScope::Namespace("a".into())));
}

#[test]
fn echo_of_own_write_wakes_no_work_and_change_meanwhile_does() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let index = DriftIndex::default();
    index.set_interest(&key, &[(kind.clone(), web.clone())], &[]);
    index.begin_request(&key, resource, &web);
    assert!(
        index
            .object_changed(resource, &metadata(10, Some(1), "a"))
            .is_empty()
    );
    let last_seen = LastSeen::of(&metadata(10, Some(1), "a"), 7, false, "me");
    assert!(!index.end_request(&key, resource, &web, Some(last_seen)));
    assert_eq!(index.need(&key, resource, &web, 7), Need::Nothing);
    // Another writer is faster than the answer.
    index.begin_request(&key, resource, &web);
    assert!(
        index
            .object_deleted(resource, &metadata(12, Some(1), "a"))
            .is_empty()
    );
    let last_seen = LastSeen::of(&metadata(11, Some(1), "a"), 7, false, "me");
    assert!(index.end_request(&key, resource, &web, Some(last_seen)));
    assert_eq!(index.need(&key, resource, &web, 7), Need::Write);
}

#[test]
fn name_shared_by_works_is_stored_once() {
    let (index, key) = (DriftIndex::default(), Key::work("w"));
    let names = |all: &[&str]| -> Vec<(Arc<ServedKind>, Name)> {
        all.iter().map(|object| (kind(), name("shop", object))).collect()
    };
    assert!(index.set_interest(&key, &names(&["a", "b"]), &[]));
    assert!(!index.set_interest(&key, &names(&["a", "b"]), &[]));
    assert!(index.set_interest(&key, &names(&["b", "c"]), &[]));
    assert!(index.set_interest(&Key::work("other"), &names(&["c"]), &[]));
    let known = index.lock();
    let kept = &known.kinds.get(&kind().resource).unwrap().objects;
    assert_eq!(kept.len(), 2);
    let wanted = known.interests.values().flat_map(|interest| &interest.objects);
    let mut count = 0;
    for (_, name) in wanted {
        let (kept, _) = kept.get_key_value(name).unwrap();
        assert!(Arc::ptr_eq(&kept.name, &name.name), "{name:?}");
        assert!(Arc::ptr_eq(&kept.namespace, &name.namespace), "{name:?}");
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn awaited_kind_resets_pauses_only_for_new_objects() {
    let (index, key, kind) = (DriftIndex::default(), Key::work("w"), kind());
    index.set_interest(&key, &[], std::slice::from_ref(&kind));
    let event = |version: u64| {
        let wake = index.object_changed(&kind.resource, &metadata(version, Some(1), "a"));
        wake.into_iter().map(|wake| wake.is_awaited).collect::<Vec<_>>()
    };
    assert_eq!(event(5), [true]);
    // A list that starts over shows the same object: the work runs, and its pauses go on growing.
    assert_eq!(event(5), [false]);
    assert_eq!(event(4), [false]);
    assert_eq!(event(6), [true]);
}
