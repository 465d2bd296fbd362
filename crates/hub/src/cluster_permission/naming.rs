//! The names of the works of a permission, and back.

use kube::ResourceExt as _;
use writ_api::rbac::ClusterPermission;

/// A permission has at most this many works.
pub const MAX_PARTS: usize = 64;

/// The name of a work: `<permission>-<five characters of its uid>` as upstream, and `-<n>` for further ones.
pub fn work(permission: &ClusterPermission, part: usize) -> String {
    let name = permission.name_any();
    let uid: String = permission.uid().unwrap_or_default().chars().take(5).collect();
    if part <= 1 {
        return format!("{name}-{uid}");
    }
    // A work's name has at most 188 characters; names are ASCII.
    let short: String = name.chars().take(179).collect();
    format!("{short}-{uid}-{part}")
}

/// The permissions that a work of this name can belong to, when its owner reference does not tell.
pub fn permissions(work: &str) -> impl Iterator<Item = &str> {
    let once = work.rsplit_once('-').map(|(name, _)| name);
    let twice = once.and_then(|name| name.rsplit_once('-')).map(|(name, _)| name);
    once.into_iter().chain(twice)
}
