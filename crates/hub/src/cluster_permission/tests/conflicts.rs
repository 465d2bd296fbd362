//! Permissions that name the same object, and grants that keep their names.

use super::*;
use manifest::{grants_the_same, read};

/// A permission of that age, in seconds.
fn aged(name: &str, age: u32, spec: Value) -> ClusterPermission {
    let mut permission = permission(spec);
    permission.metadata.name = Some(name.into());
    permission.metadata.uid = Some(format!("{name}-uid-0000"));
    let created = format!("2026-01-01T00:00:{:02}Z", 59 - age);
    permission.metadata.creation_timestamp = Some(serde_json::from_value(json!(created)).unwrap());
    permission
}

fn role(name: &str) -> Value {
    json!({"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

fn world(own: ClusterPermission, others: Vec<ClusterPermission>) -> World {
    let mut world = World::new(json!({}));
    world.permission = own;
    world.neighbours = others;
    world
}

#[test]
fn object_named_by_two_permissions_belongs_to_the_older() {
    let x = |user_name: &str| json!({"roleBindings": [binding("a", "x", &user(user_name)), binding("a", "rest", &user("u"))]});
    let all = ["RoleBinding a/x", "RoleBinding a/rest"];
    let own = || aged("p", 5, x("alice"));
    for (what, others, wanted, blamed) in [
        ("no other", vec![], &all[..], None),
        ("a younger one", vec![aged("a", 1, x("bob"))], &all[..], None),
        (
            "an older one",
            vec![aged("z", 9, x("bob"))],
            &all[1..],
            Some("ClusterPermission z "),
        ),
        (
            "of the same second, by name",
            vec![aged("a", 5, x("bob"))],
            &all[1..],
            Some("ClusterPermission a "),
        ),
        (
            "of the same second, by name, second",
            vec![aged("q", 5, x("bob"))],
            &all[..],
            None,
        ),
        ("the same content", vec![aged("z", 9, x("alice"))], &all[..], None),
        (
            "the oldest decides, and it agrees",
            vec![aged("y", 7, x("bob")), aged("z", 9, x("alice"))],
            &all[..],
            None,
        ),
        (
            "the oldest decides, and it does not",
            vec![aged("y", 7, x("alice")), aged("z", 9, x("bob"))],
            &all[1..],
            Some("ClusterPermission z "),
        ),
    ] {
        let world = world(own(), others);
        assert_eq!(world.ids(), wanted, "{what}");
        let problems = world.plan().built.problems;
        match blamed {
            None => assert!(problems.is_empty(), "{what}: {problems:?}"),
            Some(other) => {
                let (status, reason, message) = world.condition("Ready");
                assert_eq!(
                    (&*status, &*reason),
                    ("False", "FailedBuildManifestWork"),
                    "{what}"
                );
                let words = [
                    "spec.roleBindings[0]: conflict",
                    other,
                    "RoleBinding a/x",
                    "another name",
                ];
                for words in words {
                    assert!(message.contains(words), "{what}: {message}");
                }
            }
        }
    }
}

#[test]
fn conflict_with_an_older_permission_revokes_and_heals() {
    let x = |name: &str| json!({"clusterRoleBinding": {"name": "x", "subject": user(name), "roleRef": role("view")}});
    let mut world = world(aged("p", 5, x("alice")), vec![]);
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    world.neighbours = vec![aged("z", 9, x("bob"))];
    world.reconcile();
    assert!(world.works.is_empty(), "it was the only object");
    world.neighbours.clear();
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
}

#[test]
fn conflict_does_not_depend_on_existing_accounts() {
    let x = |subjects: Value| {
        json!({"roleBindings": [{"namespace": "a", "name": "x", "subjects": subjects,
        "roleRef": role("view")}]})
    };
    let alice = || x(json!([user("alice")]));
    let older = aged("z", 9, x(json!([user("alice"), account("bot")])));
    for (accounts, add_on) in [(vec![], None), (vec!["bot"], Some("addons"))] {
        let mut world = world(aged("p", 5, alice()), vec![older.clone()]);
        world.accounts = accounts.into_iter().map(str::to_owned).collect();
        world.add_on = add_on;
        assert!(world.ids().is_empty(), "{add_on:?}");
        // The same accounts are the same content, also while they cannot be read.
        world.permission = aged("p", 5, json!(older.spec));
        world.not_synced.accounts = true;
        assert_eq!(world.ids(), ["RoleBinding a/x"], "{add_on:?}");
    }
}

#[test]
fn binding_of_a_role_in_conflict_is_withheld() {
    let own = json!({
        "clusterRole": {"rules": rules()},
        "clusterRoleBinding": {"subject": user("alice")},
        "roleBindings": [
            {"namespace": "a", "name": "mine", "roleRef": role("p"), "subject": user("alice")},
            {"namespaceSelector": {}, "name": "wide", "roleRef": role("p"), "subject": user("alice")},
            binding("a", "other", &user("alice"))],
    });
    let older = json!({"roleRefs": [role("p")]});
    let world = world(aged("p", 5, own), vec![aged("z", 9, older)]);
    assert_eq!(world.ids(), ["RoleBinding a/other"]);
    let message = world.condition("Ready").2;
    assert!(message.contains("spec.clusterRole: conflict"), "{message}");
    assert!(
        message.contains("RoleBinding a/mine binds ClusterRole p"),
        "{message}"
    );
}

#[test]
fn older_selector_with_unread_namespaces_takes_and_gives_nothing() {
    let named = json!({"roleBindings": [binding("one", "x", &user("alice"))]});
    let older = json!({"roleBindings": [{"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "x", "subject": user("bob"),
        "roleRef": role("view")}]});
    let mut world = world(aged("p", 5, named), vec![]);
    world.selected_by = SelectedBy::Hub;
    world.reconcile();
    world.neighbours = vec![aged("z", 9, older)];
    assert_eq!(world.ids(), ["RoleBinding one/x"], "it stays as it was");
    let works = std::mem::take(&mut world.works);
    assert!(world.ids().is_empty(), "the older one may select it");
    assert!(world.condition("Ready").2.contains("Namespaces"));
    world.works = works;
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    world.hub_namespaces = Some(vec![("one".into(), labels)]);
    assert!(world.ids().is_empty(), "the older one selects it");
    world.hub_namespaces = Some(vec![("one".into(), BTreeMap::new())]);
    assert_eq!(world.ids(), ["RoleBinding one/x"]);
}

/// Bindings of one name for each of these teams.
fn teams(teams: &[&str]) -> Value {
    let bindings = teams.iter().map(|team| {
        json!({"namespaceSelector": {"matchLabels": {"team": team}}, "name": "x", "subject": user("alice"),
            "roleRef": role("view")})
    });
    json!({"roleBindings": bindings.collect::<Vec<_>>()})
}

fn grants(world: &World) -> BTreeMap<String, String> {
    let works = world.works.values().flat_map(|w| &w.spec.workload.manifests);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    works
        .map(|m| {
            (
                text(&m.0["spec"]["namespaceSelector"]["matchLabels"]["team"]),
                text(&m.0["metadata"]["name"]),
            )
        })
        .collect()
}

#[test]
fn grant_with_edited_selector_keeps_its_name() {
    let mut world = World::new(teams(&["a", "b"]));
    let mut edit = |teams_now: &[&str]| {
        world.permission = permission(teams(teams_now));
        world.reconcile();
        let names = grants(&world);
        assert_eq!(names.len(), teams_now.len(), "each has its own: {names:?}");
        let distinct: BTreeSet<&String> = names.values().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        names
    };
    let first = edit(&["a", "b"]);
    let second = edit(&["b", "c"]);
    assert_eq!(second["b"], first["b"], "what was not edited stays");
    assert_eq!(second["c"], first["a"], "what was edited is the same grant");
    let third = edit(&["c", "b", "a"]);
    assert_eq!((&third["b"], &third["c"]), (&first["b"], &first["a"]));
    assert_ne!(
        third["a"], first["a"],
        "its first name belongs to another one now"
    );
    let fourth = edit(&["a"]);
    assert_eq!(
        fourth["a"], third["a"],
        "an entry that goes takes its own grant along"
    );
}

#[test]
fn renamed_binding_stays_until_the_new_one_is_applied() {
    let entry = |name: &str, who: &str| json!({"roleBindings": [binding("a", name, &user(who))]});
    let mut world = World::new(entry("x", "alice"));
    world.reconcile();
    world.agent(&[]);
    world.permission = permission(entry("y", "alice"));
    world.reconcile();
    assert_eq!(world.ids(), ["RoleBinding a/y", "RoleBinding a/x"]);
    world.agent(&[]);
    assert_eq!(world.ids(), ["RoleBinding a/y"]);
    world.reconcile();
    world.agent(&[]);
    // Another subject, or another namespace: what was revoked does not stay.
    for next in [
        entry("z", "bob"),
        json!({"roleBindings": [binding("b", "y", &user("alice"))]}),
    ] {
        world.permission = permission(next);
        assert_eq!(world.ids().len(), 1, "{:?}", world.ids());
    }
}

#[test]
fn name_stays_with_the_first_entry_when_its_account_appears() {
    let unnamed = |subject: &Value| {
        let mut entry = binding("a", "", subject);
        entry.as_object_mut().unwrap().remove("name");
        entry
    };
    let mut world = World::new(json!({"roleBindings": [unnamed(&account("bot")), unnamed(&user("alice"))]}));
    world.add_on = Some("addons");
    for there in [false, true] {
        world.accounts = there.then(|| "bot".to_owned()).into_iter().collect();
        let subjects: Vec<Value> = world
            .plan()
            .works
            .values()
            .flat_map(|work| &work.spec.workload.manifests)
            .map(|manifest| manifest.0["subjects"][0]["name"].clone())
            .collect();
        assert_eq!(subjects, if there { vec![json!("bot")] } else { vec![] });
        let message = world.condition("Ready").2;
        assert!(
            message.contains("spec.roleBindings[0] and spec.roleBindings[1] both make"),
            "{message}"
        );
    }
}

#[test]
fn rule_with_empty_list_equals_rule_without_it() {
    let absent = rules();
    let mut empty = rules();
    for list in ["resourceNames", "nonResourceURLs"] {
        empty[0][list] = json!([]);
    }
    let urls = json!([{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]);
    let mut empty_urls = urls.clone();
    for list in ["apiGroups", "resources", "resourceNames"] {
        empty_urls[0][list] = json!([]);
    }
    let spec = |rules: &Value| json!({"clusterRole": {"rules": rules}, "roles": [{"namespaceSelector": {}, "rules": rules}]});
    for (one, other) in [(&absent, &empty), (&urls, &empty_urls)] {
        for (mine, theirs) in [(one, other), (other, one)] {
            // What a work of before carries stays until the agent has taken over.
            let mut world = World::new(json!({"roles": [{"namespaceSelector": {}, "rules": mine}]}));
            world.selected_by = SelectedBy::Hub;
            world.hub_namespaces = Some(vec![("one".into(), BTreeMap::new())]);
            world.reconcile();
            world.agent(&[]);
            world.works.get_mut(&1).unwrap().spec.workload.manifests[0].0["rules"] = theirs.clone();
            world.selected_by = SelectedBy::Agent;
            let ids = world.ids();
            assert!(ids.contains(&"Role one/p".to_owned()), "{mine} {theirs}: {ids:?}");

            // What is delivered has none.
            let mut world = World::new(spec(mine));
            world.reconcile();
            let manifests = &mut world.works.get_mut(&1).unwrap().spec.workload.manifests;
            for manifest in manifests.iter_mut().map(|m| &mut m.0) {
                let delivered = manifest.clone();
                let content = match delivered.get("spec") {
                    Some(spec) => &spec["rules"],
                    None => &delivered["rules"],
                };
                assert_eq!(content, one);
                // Also a work of before, which still carries them, grants the same.
                let before = match manifest.get_mut("spec") {
                    Some(spec) => &mut spec["rules"],
                    None => &mut manifest["rules"],
                };
                *before = other.clone();
                let (before, after) = (read(manifest).unwrap(), read(&delivered).unwrap());
                assert!(grants_the_same(&before, &after), "{manifest}");
                assert_ne!(*manifest, delivered);
            }
        }
    }
}
