//! Which users are agents, and what an agent may change.

use super::*;

#[test]
fn agent_changes_only_labels_annotations_and_addresses_of_its_cluster() {
    let agent = Requester {
        name: "system:open-cluster-management:mc1:agent".into(),
        groups: vec!["system:open-cluster-management:mc1".into()],
    };
    let decide = |old: &ManagedCluster, change: &dyn Fn(&mut ManagedCluster)| {
        let mut new = old.clone();
        change(&mut new);
        let change = managed_cluster::Change {
            user: &agent,
            old: Some(old),
            new: Some(&new),
        };
        let observed = managed_cluster::Observed {
            sets: sets(),
            ..managed_cluster::Observed::default()
        };
        asked(managed_cluster::decide(&change, &observed, &Guards::default()))
    };
    let label = |key: &'static str, value: &'static str| {
        move |c: &mut ManagedCluster| {
            c.labels_mut().insert(key.into(), value.into());
        }
    };
    let mut mc1 = cluster("mc1", &[("region", "us")]);
    // The agent of a denied cluster changes nothing, whatever rights it was granted before.
    assert!(
        decide(&mc1, &label("region", "apac"))
            .unwrap_err()
            .contains("is not accepted")
    );
    mc1.spec.hub_accepts_client = true;
    assert_eq!(
        decide(&mc1, &label("region", "apac")),
        Ok(vec![
            "create managedclustersets/join apac".into(),
            "create managedclustersets/join us".into()
        ])
    );
    assert!(
        decide(&mc1, &label("env", "prod"))
            .unwrap_err()
            .contains("the exclusive key of no set")
    );
    assert!(
        decide(&mc1, &label("region", "nowhere"))
            .unwrap_err()
            .contains("there is no such set")
    );
    assert_eq!(
        decide(&mc1, &|c| {
            c.annotations_mut()
                .insert("agent.open-cluster-management.io/x".into(), "y".into());
            c.spec.managed_cluster_client_configs =
                vec![serde_json::from_value(json!({"url": "https://x"})).unwrap()];
        }),
        Ok(vec![])
    );
    for change in [
        (|c: &mut ManagedCluster| {
            c.annotations_mut()
                .insert("addon.open-cluster-management.io/x".into(), "y".into());
        }) as fn(&mut ManagedCluster),
        |c| c.spec.hub_accepts_client = false,
        |c| c.spec.lease_duration_seconds = Some(10_000),
        |c| c.metadata.finalizers = Some(vec!["x/y".into()]),
    ] {
        assert!(decide(&mc1, &change).is_err());
    }
    // It may not change another cluster, however similar the name.
    let mc12 = cluster("mc12", &[]);
    assert!(
        decide(&mc12, &label("region", "apac"))
            .unwrap_err()
            .contains("may not change cluster")
    );
}

#[test]
fn agent_is_recognized_by_name_account_or_group() {
    for (name, group, expected) in [
        ("system:open-cluster-management:mc1:abc", "", Some("mc1")),
        ("system:open-cluster-management:mc1", "", None),
        (
            "system:open-cluster-management:cluster:mc1:addon:a:agent:x",
            "",
            None,
        ),
        (
            "system:serviceaccount:mc1:managed-cluster-agent",
            "system:serviceaccounts",
            Some("mc1"),
        ),
        (
            "system:serviceaccount:mc1:default",
            "system:serviceaccounts",
            None,
        ),
        ("whoever", "system:open-cluster-management:mc1", Some("mc1")),
        // As OCM's agents on EKS; a person in a group of that form is not an agent.
        ("mc1", "open-cluster-management:mc1", Some("mc1")),
        ("whoever", "open-cluster-management:mc1", None),
        ("whoever", "system:open-cluster-management:managed-clusters", None),
        ("alice", "team-a", None),
    ] {
        let user = Requester {
            name: name.into(),
            groups: vec![group.into()],
        };
        assert_eq!(cluster_identity(&user), expected, "{name} {group}");
    }
    // But members of the group hold the rights of the agent, and may do no more with them than the agent.
    let person = Requester {
        name: "alice".into(),
        groups: vec!["open-cluster-management:mc1".into()],
    };
    let (mut mc1, mc2) = (cluster("mc1", &[]), cluster("mc2", &[]));
    mc1.spec.hub_accepts_client = true;
    for (old, refused) in [(&mc1, true), (&mc2, false)] {
        let mut new = old.clone();
        new.labels_mut().insert("env".into(), "prod".into());
        let change = managed_cluster::Change {
            user: &person,
            old: Some(old),
            new: Some(&new),
        };
        let observed = managed_cluster::Observed::default();
        let answer = asked(managed_cluster::decide(&change, &observed, &Guards::default()));
        assert_eq!(answer.is_err(), refused, "{answer:?}");
    }
}
