//! The folders of clones, which only this process may read or change.

use std::{
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use writ_api::configsync::Git;
use writ_controller::Error;

use crate::{model::SyncId, names};

/// The folder of all clones, below a folder that others may be able to write to.
fn clones(cache: &Path) -> PathBuf {
    cache.join("clones")
}

/// Makes the folder of all clones accessible to this user only: clones may be of private repositories, and a change of a
/// clone would be a change of what is applied.
pub fn private_clones(cache: &Path) -> Result<(), Error> {
    let folder = clones(cache);
    let failed = |reason: String| {
        let folder = folder.display();
        Error::Invalid(format!(
            "clones cannot be kept in {folder}: {reason}; choose another folder with --cache"
        ))
    };
    let io = |error: std::io::Error| failed(error.to_string());
    let own = |path: &Path| gix::sec::identity::is_path_owned_by_current_user(path).map_err(io);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(io)?;
    // The owner of the parent folder could replace the folder.
    if !own(cache)? && std::fs::symlink_metadata(cache).map_err(io)?.uid() != 0 {
        return Err(failed("its parent folder belongs to another user".into()));
    }
    let found = std::fs::symlink_metadata(&folder).map_err(io)?;
    if !found.is_dir() || !own(&folder)? {
        return Err(failed("it belongs to another user".into()));
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).map_err(io)
}

/// The folder of the clones of a sync. The uid distinguishes it from a sync of the same name in another cluster, and from
/// an earlier one.
pub fn clones_of(cache: &Path, id: &SyncId, uid: &str) -> PathBuf {
    clones(cache).join(digest(&[&id.to_string(), uid]))
}

/// The folder of the clone of a repository. Other clones of the sync are removed.
///
/// A commit that is in a clone is not fetched again, so a clone is valid only for one address and one set of credentials:
/// after a change of either, nothing that was fetched before may be read.
pub fn clone_folder(clones: &Path, git: &Git) -> PathBuf {
    let secret = git.secret_ref.as_ref().and_then(|secret| secret.name.as_deref());
    let name = digest(&[&git.repo, git.auth.as_str(), secret.unwrap_or_default()]);
    for other in std::fs::read_dir(clones).into_iter().flatten().flatten() {
        if other.file_name().to_str() != Some(&name) {
            let _ = std::fs::remove_dir_all(other.path());
        }
    }
    clones.join(name)
}

/// One name for several parts. They are encoded as JSON, so no two lists of parts have the same name.
fn digest(parts: &[&str]) -> String {
    names::hex(&Sha256::digest(serde_json::json!(parts).to_string()), 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_belongs_to_one_cluster_one_repository_and_one_way_to_sign_in() {
        let folder = tempfile::tempdir().unwrap();
        let id: SyncId = "RootSync/config-management-system/root-sync".parse().unwrap();
        let of = |uid: &str| clones_of(folder.path(), &id, uid);
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        let git = |value: serde_json::Value| -> Git { serde_json::from_value(value).unwrap() };
        let private =
            serde_json::json!({ "repo": "https://x/private", "auth": "token", "secretRef": { "name": "t" }});
        let first = clone_folder(&of("a"), &git(private.clone()));
        for (field, other) in [
            ("repo", serde_json::json!("http://127.0.0.1:1/nowhere")),
            ("auth", serde_json::json!("none")),
            ("secretRef", serde_json::json!({ "name": "mine" })),
        ] {
            std::fs::create_dir_all(&first).unwrap();
            assert_eq!(clone_folder(&of("a"), &git(private.clone())), first);
            assert!(first.exists());
            let mut changed = private.clone();
            changed[field] = other;
            let second = clone_folder(&of("a"), &git(changed));
            assert!(second != first && second.parent() == first.parent(), "{field}");
            assert!(!first.exists(), "{field}: the clone is still there");
        }
    }

    #[test]
    fn folder_that_others_can_change_is_closed_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let cache = folder.path().join("cache");
        private_clones(&cache).unwrap();
        assert_eq!(mode(&clones(&cache)), 0o700);
        // Opened to others: closed again.
        std::fs::set_permissions(clones(&cache), std::fs::Permissions::from_mode(0o777)).unwrap();
        private_clones(&cache).unwrap();
        assert_eq!(mode(&clones(&cache)), 0o700);
        // A link to another folder.
        let other = folder.path().join("other");
        std::fs::create_dir_all(folder.path().join("elsewhere")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink("../elsewhere", clones(&other)).unwrap();
        let error = private_clones(&other).unwrap_err().to_string();
        assert!(error.contains("--cache"), "{error}");
    }
}
