//! A set and a label at the same moment.

use super::*;

/// A label and its set are made at the same moment; each admission looks before the other one's object is stored.
#[test]
fn a_race_never_ends_in_a_silent_member() {
    use crate::cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView};
    let guards = Guards::default();
    let now = Timestamp::UNIX_EPOCH;
    let user = user("sre1");
    // The label: there is no such set yet, so nothing is asked.
    let old = cluster("mc1", &[(KEY, "default")]);
    let mut new = cluster("mc1", &[(KEY, "default"), ("region", "apac")]);
    managed_cluster::mutate(Some(&old), &mut new, &[], &guards, now).unwrap();
    let change = managed_cluster::Change {
        user: &user,
        old: Some(&old),
        new: Some(&new),
    };
    let observed = managed_cluster::Observed::default();
    assert_eq!(
        asked(managed_cluster::decide(&change, &observed, &guards)),
        Ok(vec![])
    );
    // The set: no cluster carries the label yet, so `update` on all clusters is not asked.
    let mut made = set("apac", json!({"exclusiveKey": "region"}));
    managed_cluster_set::mutate(None, &mut made, false, &guards).unwrap();
    let needs = create(json!({"exclusiveKey": "region"}), "apac", 0, None, &guards).unwrap();
    assert_eq!(needs.len(), 1);
    // Both are stored: the cluster is reported, not a member.
    let joined = |cluster: &ManagedCluster| cluster.annotations().get(JOINED_ANNOTATION).cloned();
    let view = SetView::of(&made, false);
    assert_eq!(
        view.membership(new.labels(), joined(&new).as_deref()),
        Membership::Unconfirmed
    );
    // Somebody who may update all clusters confirms.
    let mut confirmed = made.clone();
    confirmed
        .annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    managed_cluster_set::mutate(Some(&made), &mut confirmed, true, &guards).unwrap();
    let view = SetView::of(&confirmed, false);
    assert_eq!(
        view.membership(new.labels(), joined(&new).as_deref()),
        Membership::Member
    );
    // In the other order the label's admission sees the set, asks for join, and stamps the cluster.
    let mut later = cluster("mc2", &[(KEY, "default"), ("region", "apac")]);
    managed_cluster::mutate(Some(&old), &mut later, std::slice::from_ref(&made), &guards, now).unwrap();
    assert_eq!(
        SetView::of(&made, false).membership(later.labels(), joined(&later).as_deref()),
        Membership::Member
    );
}
