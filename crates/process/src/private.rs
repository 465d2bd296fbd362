//! Files and folders that hold keys or tokens, readable by their owner only.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use tempfile::TempDir;
use writ_controller::Error;

/// Creates a folder that only its owner can read, or restricts an existing one.
pub fn folder(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|error| Error::io(format!("create {}", path.display()), error))
}

/// Creates a temporary folder that only its owner can read.
pub fn temporary(prefix: &str) -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(|error| Error::io("create a temporary folder", error))
}

/// Writes a file that only its owner can read. An existing file is replaced, as it may have wider permissions.
pub fn file(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Error> {
    let _ = fs::remove_file(path);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut open| open.write_all(text.as_ref()))
        .map_err(|error| Error::io(format!("write {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn permissions_are_restricted_to_the_owner() {
        let ground = tempfile::tempdir().unwrap();
        let (open, new) = (ground.path().join("open"), ground.path().join("a/b"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&open, &new] {
            folder(path).unwrap();
            assert_eq!(mode(path), 0o700);
        }
        assert_eq!(mode(temporary("writ-").unwrap().path()), 0o700);
        let key = open.join("key");
        fs::write(&key, "old").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        file(&key, "new").unwrap();
        assert_eq!(
            (mode(&key), fs::read_to_string(&key).unwrap().as_str()),
            (0o600, "new")
        );
    }
}
