//! Which changes matter.

use kube::core::GroupVersionKind;

use super::*;

fn kind() -> Arc<Kind> {
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    Arc::new(Kind {
        resource: ApiResource::from_gvk_with_plural(&gvk, "deployments"),
        namespaced: true,
    })
}

fn name(namespace: &str, name: &str) -> Name {
    (namespace.into(), name.into())
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
fn only_a_change_that_is_not_ours_and_can_matter_wakes_a_work() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
    objects.mark(
        &key,
        resource,
        &web,
        Some(Mark::of(&metadata(10, Some(1), "a"), 7, false, "me")),
    );
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Nothing);
    assert_eq!(objects.need(&key, resource, &web, 8), Need::Write);
    // Our own write and an older event.
    assert!(objects.seen(resource, &metadata(10, Some(1), "a")).is_empty());
    assert!(objects.seen(resource, &metadata(9, Some(1), "b")).is_empty());
    // A change of the status only.
    assert!(objects.seen(resource, &metadata(11, Some(1), "a")).is_empty());
    // A change of a label, then of the spec.
    assert_eq!(
        objects.seen(resource, &metadata(12, Some(1), "b")),
        vec![(key.clone(), Duration::ZERO)]
    );
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
    objects.mark(
        &key,
        resource,
        &web,
        Some(Mark::of(&metadata(13, Some(1), "a"), 7, false, "me")),
    );
    assert_eq!(
        objects.seen(resource, &metadata(14, Some(2), "a")),
        vec![(key.clone(), Duration::ZERO)]
    );
    // A kind without generations: any change can be drift.
    objects.mark(
        &key,
        resource,
        &web,
        Some(Mark::of(&metadata(15, None, "a"), 7, false, "me")),
    );
    assert_eq!(
        objects.seen(resource, &metadata(16, None, "a")),
        vec![(key.clone(), Duration::ZERO)]
    );
    // Feedback wants every change.
    objects.mark(
        &key,
        resource,
        &web,
        Some(Mark::of(&metadata(17, Some(3), "a"), 7, true, "me")),
    );
    assert_eq!(
        objects.seen(resource, &metadata(18, Some(3), "a")),
        vec![(key.clone(), Duration::ZERO)]
    );
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Read);
    assert_eq!(
        objects.deleted(resource, &metadata(19, Some(3), "a")),
        vec![(key.clone(), Duration::ZERO)]
    );
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
    objects.interest(&key, &[], &[]);
    assert!(objects.scopes().is_empty());
}

#[test]
fn a_change_during_a_request_is_not_lost() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    assert_eq!(
        objects.seen(&kind.resource, &metadata(21, Some(1), "x")),
        vec![(key.clone(), Duration::ZERO)]
    );
    let ours = Mark::of(&metadata(20, Some(1), "a"), 7, false, "me");
    objects.mark(&key, &kind.resource, &web, Some(ours));
    assert_eq!(objects.need(&key, &kind.resource, &web, 7), Need::Write);
    // An object that a listing lacks is gone.
    let ours = Mark::of(&metadata(22, Some(1), "a"), 7, false, "me");
    objects.mark(&key, &kind.resource, &web, Some(ours));
    assert_eq!(objects.need(&key, &kind.resource, &web, 7), Need::Nothing);
    let woken = objects.listed(&kind.resource, &Scope::All, &BTreeSet::new());
    assert_eq!(woken, vec![(key.clone(), Duration::ZERO)]);
}

#[test]
fn a_fight_over_an_object_slows_down() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    let mut delays = Vec::new();
    for round in 0..20 {
        objects.begin(&key, &kind.resource, &web);
        let ours = Mark::of(&metadata(round * 2 + 1, None, "a"), 7, false, "me");
        objects.mark(&key, &kind.resource, &web, Some(ours));
        let woken = objects.seen(&kind.resource, &metadata(round * 2 + 2, None, "b"));
        delays.extend(woken.into_iter().map(|(_, delay)| delay));
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
fn others_may_change_what_is_theirs_as_often_as_they_like() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    objects.mark(
        &key,
        &kind.resource,
        &web,
        Some(Mark::of(&metadata(1, None, "a"), 7, false, "me")),
    );
    for version in 2..50 {
        // Without a generation any change can be drift: it is looked at, at once, and nothing had to be written.
        let theirs = metadata(version, None, "a");
        let woken = objects.seen(&kind.resource, &theirs);
        assert_eq!(woken, vec![(key.clone(), Duration::ZERO)], "{version}");
        objects.begin(&key, &kind.resource, &web);
        objects.mark(
            &key,
            &kind.resource,
            &web,
            Some(Mark::of(&theirs, 7, false, "me")),
        );
    }
}

#[test]
fn only_the_sole_owner_knows_the_exact_version() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    let owned = |version: u64, owners: &[&str]| ObjectMeta {
        owner_references: Some(
            owners
                .iter()
                .map(|uid| {
                    let owner = crate::work::apply::Owner {
                        name: "n".into(),
                        uid: (*uid).into(),
                    };
                    owner.reference()
                })
                .collect(),
        ),
        ..metadata(version, None, "a")
    };
    let marked = |owners: &[&str]| {
        let mark = Mark::of(&owned(5, owners), 7, false, "me");
        objects.mark(&key, resource, &web, Some(mark));
        objects.own(&key, resource, &web, "me")
    };
    let own = |version: Option<&str>| {
        Some(Own {
            uid: "u".into(),
            version: version.map(ToOwned::to_owned),
        })
    };
    assert_eq!(marked(&[]), None);
    assert_eq!(marked(&["you"]), None);
    assert_eq!(marked(&["me", "you"]), own(None));
    assert_eq!(marked(&["me"]), own(Some("5")));
    // Somebody changed it since: what is known of it is not the last word.
    objects.seen(resource, &owned(6, &["me", "you"]));
    assert_eq!(objects.own(&key, resource, &web, "me"), own(None));
    // Nor is it somebody else's because the owner reference is off.
    objects.seen(resource, &owned(7, &[]));
    assert_eq!(objects.own(&key, resource, &web, "me"), own(None));
}

#[test]
fn the_smallest_part_that_holds_everything_is_watched() {
    let key = Key::work("w");
    let kind = kind();
    let objects = Objects::default();
    let scope = |names: &[Name]| {
        let wanted: Vec<_> = names.iter().map(|name| (kind.clone(), name.clone())).collect();
        objects.interest(&key, &wanted, &[]);
        objects.scopes().pop().unwrap().1
    };
    assert_eq!(scope(&[name("a", "x")]), Scope::Object(name("a", "x")));
    assert_eq!(
        scope(&[name("a", "x"), name("a", "y")]),
        Scope::Namespace("a".into())
    );
    assert_eq!(scope(&[name("a", "x"), name("b", "y")]), Scope::All);
    assert_eq!(scope(&[name("", "x"), name("", "y")]), Scope::All);
    assert!(Scope::Namespace("a".into()).covers(&Scope::Object(name("a", "x"))));
    assert!(!Scope::Object(name("a", "x")).covers(&Scope::Namespace("a".into())));
}

#[test]
fn the_echo_of_our_own_write_wakes_nobody_and_a_change_under_way_is_not_lost() {
    let key = Key::work("w");
    let (kind, web) = (kind(), name("shop", "web"));
    let resource = &kind.resource;
    let objects = Objects::default();
    objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
    objects.begin(&key, resource, &web);
    assert!(objects.seen(resource, &metadata(10, Some(1), "a")).is_empty());
    let mark = Mark::of(&metadata(10, Some(1), "a"), 7, false, "me");
    assert!(!objects.mark(&key, resource, &web, Some(mark)));
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Nothing);
    // Somebody is faster than the answer.
    objects.begin(&key, resource, &web);
    assert!(objects.deleted(resource, &metadata(12, Some(1), "a")).is_empty());
    let mark = Mark::of(&metadata(11, Some(1), "a"), 7, false, "me");
    assert!(objects.mark(&key, resource, &web, Some(mark)));
    assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
}

#[test]
fn a_name_is_kept_once_however_often_it_is_named() {
    let (objects, key) = (Objects::default(), Key::work("w"));
    let names = |all: &[&str]| -> Vec<(Arc<Kind>, Name)> {
        all.iter().map(|object| (kind(), name("shop", object))).collect()
    };
    assert!(objects.interest(&key, &names(&["a", "b"]), &[]));
    assert!(!objects.interest(&key, &names(&["a", "b"]), &[]));
    assert!(objects.interest(&key, &names(&["b", "c"]), &[]));
    assert!(objects.interest(&Key::work("other"), &names(&["c"]), &[]));
    let known = objects.lock();
    let kept = &known.kinds.get(&kind().resource).unwrap().objects;
    assert_eq!(kept.len(), 2);
    let wanted = known.interests.values().flat_map(|interest| &interest.objects);
    let mut count = 0;
    for (_, name) in wanted {
        let (kept, _) = kept.get_key_value(name).unwrap();
        assert!(Arc::ptr_eq(&kept.1, &name.1), "{name:?}");
        assert!(Arc::ptr_eq(&kept.0, &name.0), "{name:?}");
        count += 1;
    }
    assert_eq!(count, 3);
}
