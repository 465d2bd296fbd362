//! A set and a label created at the same time.

use super::*;

/// A label and its set are created at the same time; each is admitted before the other object is stored.
#[test]
fn label_and_set_created_at_once_make_no_unconfirmed_member() {
    use crate::cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView};
    let guards = Guards::default();
    let now = Timestamp::UNIX_EPOCH;
    let user = user("sre1");
    // The label: the set does not exist yet, so nothing is required.
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
    // The set: no cluster carries the label yet, so `update` on all clusters is not required.
    let mut made = set("apac", json!({"exclusiveKey": "region"}));
    managed_cluster_set::mutate(None, &mut made, false, &guards).unwrap();
    let needs = create(json!({"exclusiveKey": "region"}), "apac", 0, None, &guards).unwrap();
    assert_eq!(needs.len(), 1);
    // Both are stored: the cluster is reported, and not a member.
    let joined = |cluster: &ManagedCluster| cluster.annotations().get(JOINED_ANNOTATION).cloned();
    let view = SetView::of(&made, false);
    assert_eq!(
        view.membership(new.labels(), joined(&new).as_deref()),
        Membership::Unconfirmed
    );
    // A user who may update all clusters confirms the set.
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
    // In the other order, admission of the label sees the set, requires join, and records the membership.
    let mut later = cluster("mc2", &[(KEY, "default"), ("region", "apac")]);
    managed_cluster::mutate(Some(&old), &mut later, std::slice::from_ref(&made), &guards, now).unwrap();
    assert_eq!(
        SetView::of(&made, false).membership(later.labels(), joined(&later).as_deref()),
        Membership::Member
    );
}
