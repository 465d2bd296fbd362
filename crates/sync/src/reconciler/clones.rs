//! Where clones are kept, for nobody else to see or change.

use std::{
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use writ_runtime::Error;

use crate::{model::SyncId, names};

/// Where all clones are kept, in a folder that may be everybody's.
fn clones(cache: &Path) -> PathBuf {
    cache.join("clones")
}

/// Makes the folder of the clones, for nobody else to read or write: they may be of private repositories, and whoever
/// could change one would decide what is applied.
pub fn private_clones(cache: &Path) -> Result<(), Error> {
    let folder = clones(cache);
    let failed = |reason: String| {
        let folder = folder.display();
        Error::Invalid(format!(
            "clones cannot be kept in {folder}: {reason}; choose another folder with --cache"
        ))
    };
    let told = |error: std::io::Error| failed(error.to_string());
    let own = |path: &Path| gix::sec::identity::is_path_owned_by_current_user(path).map_err(told);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(told)?;
    // The owner of the folder around it could put another one in its place.
    if !own(cache)? && std::fs::symlink_metadata(cache).map_err(told)?.uid() != 0 {
        return Err(failed("the folder around it is somebody else's".into()));
    }
    let found = std::fs::symlink_metadata(&folder).map_err(told)?;
    if !found.is_dir() || !own(&folder)? {
        return Err(failed("it is somebody else's".into()));
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).map_err(told)
}

/// Where the clone of a sync is kept.
pub fn clone_folder(cache: &Path, id: &SyncId) -> PathBuf {
    clones(cache).join(names::hex(&Sha256::digest(id.to_string()), 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let cache = folder.path().join("cache");
        private_clones(&cache).unwrap();
        assert_eq!(mode(&clones(&cache)), 0o700);
        // Opened to others by somebody: closed again.
        std::fs::set_permissions(clones(&cache), std::fs::Permissions::from_mode(0o777)).unwrap();
        private_clones(&cache).unwrap();
        assert_eq!(mode(&clones(&cache)), 0o700);
        // Put there by somebody, to lead elsewhere.
        let other = folder.path().join("other");
        std::fs::create_dir_all(folder.path().join("elsewhere")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink("../elsewhere", clones(&other)).unwrap();
        let error = private_clones(&other).unwrap_err().to_string();
        assert!(error.contains("--cache"), "{error}");
    }
}
