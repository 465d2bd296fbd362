//! Which sync an object belongs to.
//!
//! A managed object names its sync in an annotation, which anybody who may change the object may change. The annotation
//! therefore counts only if the named sync lists the object in its inventory, which only its account and the manager can
//! write. A reconciler may not read the inventories of other syncs; the manager in its process does that for it.

use futures::future::BoxFuture;
use writ_api::configsync::RoleRefState;
use writ_controller::{Error, ObjectId};

use crate::{
    model::{Sync, SyncKind},
    names,
};

/// What the manager knows and a reconciler may not read.
pub trait ManagerView: Send + std::marker::Sync {
    /// Whether the sync with this manager annotation exists and lists the object in its inventory.
    fn lists<'a>(&'a self, manager: &'a str, id: &'a ObjectId) -> BoxFuture<'a, Result<bool, Error>>;
    /// Whether a namespace does not exist.
    fn is_namespace_gone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, Error>>;
}

/// Decides for one sync which objects belong to others.
#[derive(Clone, Copy)]
pub struct Ownership<'a> {
    /// The sync.
    pub sync: &'a Sync,
    /// The view of the manager; `None` in a process of its own.
    pub view: Option<&'a dyn ManagerView>,
}

impl Ownership<'_> {
    /// Whether an object belongs to another sync, given its manager annotation and whether it was in the inventory of this
    /// sync before.
    pub async fn is_of_another(
        &self,
        manager: Option<&str>,
        id: &ObjectId,
        is_known_ours: bool,
    ) -> Result<bool, Error> {
        let own = names::manager_value(&self.sync.id);
        let Some(other) = manager.filter(|other| *other != own) else {
            return Ok(false);
        };
        if let Some(view) = self.view {
            return view.lists(other, id).await;
        }
        // An annotation alone takes no object away; but a RootSync may take one from a RepoSync.
        let is_taken_by_root = self.sync.id.kind == SyncKind::Repo && other.starts_with(':');
        Ok(!is_known_ours || is_taken_by_root)
    }

    /// Whether the namespace of an object is gone, and the object with it. An account whose rights were in that namespace
    /// gets a refusal instead of that answer.
    pub async fn is_gone_with_namespace(&self, id: &ObjectId) -> bool {
        let namespace = match (&*id.group, &*id.kind) {
            ("", "Namespace") => &id.name.name,
            _ => &id.name.namespace,
        };
        if namespace.is_empty() {
            return false;
        }
        if let Some(view) = self.view {
            return view.is_namespace_gone(namespace).await.unwrap_or_else(|error| {
                tracing::debug!(sync = %self.sync.id, %namespace, %error, "cannot find out whether the namespace exists");
                false
            });
        }
        // The manager reports a missing namespace of a role.
        let mut roles = self.sync.status.role_refs.iter().flatten();
        roles.any(|role| {
            role.state == RoleRefState::WaitingForNamespace && role.namespace.as_deref() == Some(&**namespace)
        })
    }
}

#[cfg(test)]
mod tests {
    use writ_api::configsync::{RootSyncSpec, SyncStatus};

    use super::*;
    use crate::model::SyncId;

    struct Lists(&'static str);

    impl ManagerView for Lists {
        fn lists<'a>(&'a self, manager: &'a str, _: &'a ObjectId) -> BoxFuture<'a, Result<bool, Error>> {
            Box::pin(async move { Ok(manager == self.0) })
        }

        fn is_namespace_gone<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
            Box::pin(async { Ok(false) })
        }
    }

    fn sync(kind: SyncKind, namespace: &str, name: &str) -> Sync {
        Sync {
            id: SyncId::new(kind, namespace, name),
            metadata: kube::api::ObjectMeta::default(),
            spec: Ok(RootSyncSpec::default()),
            status: SyncStatus::default(),
        }
    }

    #[tokio::test]
    async fn annotation_counts_only_if_that_sync_lists_the_object() {
        let root = sync(SyncKind::Root, "config-management-system", "a");
        let repo = sync(SyncKind::Repo, "team", "repo-sync");
        let lists = Lists(":root_b");
        let some: Option<&dyn ManagerView> = Some(&lists);
        // The sync, the view, whether the object was known as its own, the annotation, and whether it is of another sync.
        let cases = [
            (&root, some, true, None, false),
            (&root, some, true, Some(":root_a"), false),
            (&root, some, true, Some(":root_b"), true),
            (&root, some, false, Some(":root_nobody"), false),
            (&repo, some, true, Some(":root_nobody"), false),
            (&repo, some, true, Some(":root_b"), true),
            (&root, None, true, Some(":root_a"), false),
            (&root, None, true, Some(":root_b"), false),
            (&root, None, false, Some(":root_b"), true),
            (&root, None, false, None, false),
            (&repo, None, true, Some("team_other"), false),
            (&repo, None, true, Some(":root_b"), true),
        ];
        for (sync, view, is_known_ours, annotation, expected) in cases {
            let ownership = Ownership { sync, view };
            let found = ownership
                .is_of_another(annotation, &ObjectId::default(), is_known_ours)
                .await
                .unwrap();
            assert_eq!(found, expected, "{} {is_known_ours} {annotation:?}", sync.id);
        }
    }
}
