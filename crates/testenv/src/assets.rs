//! Finds the binaries of a real control plane.

use std::{env, fmt, path::PathBuf};

/// The versions that the project is tested against, in the one place where they are pinned.
const VERSIONS: &str = include_str!("../versions.txt");

/// The pinned version of `kubernetes`, `etcd`, `ocm` or `kubectl-older`; empty for anything else.
pub fn pinned_version(of: &str) -> &'static str {
    VERSIONS
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| *name == of)
        .map_or("", |(_, v)| v)
}

/// The folder that holds `etcd`, `kube-apiserver`, `kube-controller-manager` and `kubectl`.
#[derive(Clone, Debug)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// Searches `KUBEBUILDER_ASSETS`, then the cache folder of the project.
    pub fn find() -> Result<Self, Missing> {
        let candidates: Vec<PathBuf> = env::var_os("KUBEBUILDER_ASSETS")
            .map(PathBuf::from)
            .into_iter()
            .chain(
                cache_folder()
                    .map(|cache| cache.join(format!("control-plane-{}", pinned_version("kubernetes")))),
            )
            .collect();
        candidates
            .iter()
            .find(|folder| folder.join("etcd").is_file() && folder.join("kube-apiserver").is_file())
            .map(|folder| Self {
                folder: folder.clone(),
            })
            .ok_or(Missing {
                looked_in: candidates,
            })
    }

    /// The path of one binary.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder itself, for `PATH`.
    pub fn folder(&self) -> &PathBuf {
        &self.folder
    }
}

/// A kubectl ten minors older than the control plane, if `cargo xtask control-plane` has built it.
pub fn older_kubectl() -> Option<PathBuf> {
    let folder = cache_folder()?.join(format!("kubectl-{}", pinned_version("kubectl-older")));
    Some(folder.join("kubectl")).filter(|binary| binary.is_file())
}

/// `WRIT_CACHE_DIR`, else `writ` in the user's cache folder. `cargo xtask control-plane` fills it.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("WRIT_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("writ")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/writ")))
}

/// There is no real control plane on this machine.
#[derive(Clone, Debug)]
pub struct Missing {
    looked_in: Vec<PathBuf>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self
            .looked_in
            .iter()
            .map(|place| place.display().to_string())
            .collect();
        write!(
            f,
            "no real control plane found (looked in: {}). Three ways to get one: \
             (1) `cargo xtask control-plane` builds it, on a machine that has Go; \
             (2) set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager and kubectl, \
             such as `setup-envtest use {version} -p path` prints (add kube-controller-manager); \
             (3) copy these four binaries of Kubernetes {version} to the last folder named above",
            places.join(", "),
            version = pinned_version("kubernetes"),
        )
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_versions_are_found() {
        assert!(pinned_version("kubernetes").starts_with("1."));
        assert!(pinned_version("etcd").starts_with("3."));
        assert_eq!(pinned_version("nothing"), "");
    }

    #[test]
    fn missing_control_plane_names_three_ways_out() {
        let message = Missing {
            looked_in: vec!["/nowhere".into()],
        }
        .to_string();
        for way in [
            "/nowhere",
            "cargo xtask control-plane",
            "KUBEBUILDER_ASSETS",
            "copy these four binaries",
        ] {
            assert!(message.contains(way), "{message}");
        }
    }
}
