//! Whose an object is.
//!
//! A managed object names its sync in an annotation, and whoever may change the object may change that. So it is
//! believed only if that sync has the object in its inventory, which nobody else can write. A reconciler may not read
//! the inventories of others: the manager, in whose process it runs, looks for it.

use futures::future::BoxFuture;
use writ_controller::Error;

use crate::{
    model::{SyncId, SyncKind},
    names,
    reconciler::{engine::Engine, object::Key},
};

/// What the manager knows and a reconciler cannot ask for itself.
pub trait Overview: Send + Sync {
    /// Whether the sync that calls itself so exists and has that object in its inventory.
    fn holds<'a>(&'a self, manager: &'a str, key: &'a Key) -> BoxFuture<'a, Result<bool, Error>>;
    /// Whether there is no such namespace.
    fn namespace_gone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, Error>>;
}

/// What tells whose an object is.
pub struct Claims<'a> {
    /// The sync that wants to know.
    pub id: &'a SyncId,
    /// Nobody to ask, in a process of its own.
    pub overview: Option<&'a dyn Overview>,
    /// Whether the object was in this sync's own inventory before it was asked for.
    pub held: bool,
}

impl Claims<'_> {
    /// Whether the object is another sync's, as its annotation says.
    pub async fn is_anothers(&self, manager: Option<&str>, key: &Key) -> Result<bool, Error> {
        let Some(other) = manager.filter(|other| *other != names::manager_value(self.id)) else {
            return Ok(false);
        };
        match self.overview {
            Some(overview) => overview.holds(other, key).await,
            // What this sync held it does not give away for a word; but a RootSync may take it from a RepoSync.
            None => Ok(!self.held || (self.id.kind == SyncKind::Repo && other.starts_with(':'))),
        }
    }
}

impl Engine {
    /// What tells whose an object is that shall be applied.
    pub(in crate::reconciler) fn claims_of(&self, key: &Key) -> Claims<'_> {
        let listed = self.inventory.as_ref().is_some_and(|all| all.contains(key));
        Claims {
            held: listed && !self.fresh.contains(key),
            ..self.claims()
        }
    }

    /// What tells whose an object is that shall be taken away: in doubt, not ours.
    pub(in crate::reconciler) fn claims(&self) -> Claims<'_> {
        Claims {
            id: &self.id,
            overview: self.shared.overview(),
            held: false,
        }
    }

    /// Whether the place of an object is gone, and the object with it. Who had rights there only is refused instead of
    /// being told.
    pub(in crate::reconciler) async fn place_gone(&self, key: &Key) -> bool {
        use writ_api::configsync::RoleRefState;
        let namespace = match (key.group.as_str(), key.kind.as_str()) {
            ("", "Namespace") => &key.name,
            _ => &key.namespace,
        };
        if namespace.is_empty() {
            return false;
        }
        if let Some(overview) = self.shared.overview() {
            return overview.namespace_gone(namespace).await.unwrap_or_else(|error| {
                tracing::debug!(sync = %self.id, %error, "nobody knows whether the namespace is there");
                false
            });
        }
        // The manager has told so, if a role is to be bound there.
        self.sync.status.role_refs.iter().flatten().any(|role| {
            role.state == RoleRefState::WaitingForNamespace && role.namespace.as_ref() == Some(namespace)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Listed(&'static str);

    impl Overview for Listed {
        fn holds<'a>(&'a self, manager: &'a str, _: &'a Key) -> BoxFuture<'a, Result<bool, Error>> {
            Box::pin(async move { Ok(manager == self.0) })
        }

        fn namespace_gone<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
            Box::pin(async { Ok(false) })
        }
    }

    #[tokio::test]
    async fn an_annotation_alone_is_not_believed() {
        let root = SyncId::new(SyncKind::Root, "config-management-system", "a");
        let repo = SyncId::new(SyncKind::Repo, "team", "repo-sync");
        let listed = Listed(":root_b");
        let some: Option<&dyn Overview> = Some(&listed);
        // Who asks, whom it can ask, whether it held the object, what the object says, whose it is.
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
        for (id, overview, held, says, wanted) in cases {
            let claims = Claims { id, overview, held };
            let found = claims.is_anothers(says, &Key::default()).await.unwrap();
            assert_eq!(found, wanted, "{id} {held} {says:?}");
        }
    }
}
