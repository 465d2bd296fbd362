//! Which crate may depend on which, and what the images link.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;

/// What the programs that ship must not link.
const TESTS_ONLY: &str = "writ-testenv";
/// How the images are built.
const CONTAINERFILE: &str = "Containerfile";

/// Every crate of ours with those of ours that it may depend on, apart from its tests.
const DIRECTION: [(&str, &[&str]); 13] = [
    ("writ-api", &[]),
    ("writ-authz", &[]),
    ("writ-controller", &[]),
    ("writ-process", &["writ-controller"]),
    ("writ-runtime", &["writ-controller"]),
    ("writ-apiserver", &["writ-authz"]),
    ("writ-tokens", &["writ-api"]),
    ("writ-hub", PARTS),
    ("writ-agent", PARTS),
    ("writ-sync", PARTS),
    ("writ-testenv", &["writ-process"]),
    (
        "writ-fleet",
        &[
            "writ-agent",
            "writ-api",
            "writ-apiserver",
            "writ-controller",
            "writ-hub",
            "writ-process",
            "writ-runtime",
            "writ-sync",
            "writ-testenv",
        ],
    ),
    (
        "writ",
        &[
            "writ-agent",
            "writ-api",
            "writ-apiserver",
            "writ-authz",
            "writ-controller",
            "writ-fleet",
            "writ-hub",
            "writ-process",
            "writ-runtime",
            "writ-sync",
            "writ-tokens",
        ],
    ),
];

/// What hub, agent and sync stand on: never on each other.
const PARTS: &[&str] = &[
    "writ-api",
    "writ-authz",
    "writ-controller",
    "writ-process",
    "writ-runtime",
];

/// A crate of `crates/`: its package name, and its folder from the root of the repository.
#[derive(Clone, Debug)]
pub struct Package {
    /// The name in its manifest.
    pub name: String,
    /// Its folder.
    pub folder: String,
    /// The crates of ours that it depends on, apart from its tests.
    pub depends_on: Vec<String>,
}

/// The crates of `crates/`, as their manifests say. Nothing is downloaded or built.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    let output = cargo(
        root,
        &["metadata", "--no-deps", "--format-version", "1", "--offline"],
    )?;
    let metadata: Value = serde_json::from_str(&output).context("read cargo's metadata")?;
    let root = metadata
        .pointer("/workspace_root")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let all = metadata
        .pointer("/packages")
        .and_then(Value::as_array)
        .context("no packages")?;
    let mut found: Vec<Package> = all.iter().filter_map(|package| parsed(package, root)).collect();
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}

fn parsed(package: &Value, root: &str) -> Option<Package> {
    let manifest = package.get("manifest_path")?.as_str()?;
    let folder = manifest
        .strip_prefix(root)?
        .trim_start_matches('/')
        .strip_suffix("/Cargo.toml")?;
    let of = package.get("dependencies")?.as_array()?.iter();
    // Tests may use what they like.
    let shipped = of.filter(|dependency| dependency.get("kind").is_none_or(|kind| kind != "dev"));
    let names = shipped.filter_map(|dependency| dependency.get("name")?.as_str());
    let ours = names.filter(|name| *name == "writ" || name.starts_with("writ-"));
    folder.starts_with("crates/").then_some(())?;
    Some(Package {
        name: package.get("name")?.as_str()?.into(),
        folder: folder.into(),
        depends_on: ours.map(str::to_owned).collect(),
    })
}

/// Dependencies against the direction.
pub fn check_direction(packages: &[Package]) -> Vec<Finding> {
    let allowed: BTreeMap<&str, &[&str]> = DIRECTION.into_iter().collect();
    let mut findings = Vec::new();
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            let what = format!(
                "{} has no row in the table of directions (xtask/src/house/manifests.rs)",
                package.name
            );
            findings.push(Finding::new(manifest, what));
            continue;
        };
        for name in &package.depends_on {
            if !allowed.contains(&name.as_str()) {
                let what = format!(
                    "{} depends on {name}, against the direction: allowed are {allowed:?}",
                    package.name
                );
                findings.push(Finding::new(manifest.clone(), what));
            }
        }
    }
    findings
}

/// Whether the images link what only tests need: asked of cargo, with the features that the images are built with.
pub fn check_shipped(root: &Path) -> Result<Vec<Finding>> {
    let containerfile =
        std::fs::read_to_string(root.join(CONTAINERFILE)).context("read the Containerfile")?;
    let features = features(&containerfile).context("the Containerfile has no `cargo build`")?;
    let mut args = vec![
        "tree",
        "--locked",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    args.extend(features);
    let tree = cargo(root, &args)?;
    let linked = tree
        .lines()
        .any(|line| line.split(' ').next() == Some(TESTS_ONLY));
    let what = format!("what the images build links {TESTS_ONLY}");
    Ok(linked
        .then(|| Finding::new(CONTAINERFILE, what))
        .into_iter()
        .collect())
}

/// The arguments of the Containerfile's `cargo build` that choose packages and features.
fn features(containerfile: &str) -> Option<Vec<&str>> {
    let build = containerfile
        .lines()
        .find_map(|line| line.strip_prefix("RUN cargo build "))?;
    let words = build.split_whitespace();
    Some(
        words
            .filter(|word| !matches!(*word, "--release" | "--locked"))
            .collect(),
    )
}

fn cargo(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(args)
        .output()
        .context("run cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo {} failed: {complaint}",
        args.join(" ")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, depends_on: &[&str]) -> Package {
        Package {
            name: name.into(),
            folder: format!("crates/{name}"),
            depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn dependency_against_the_direction_is_found() {
        let fine = [
            package("writ-api", &[]),
            package("writ-hub", &["writ-api", "writ-controller"]),
        ];
        assert!(check_direction(&fine).is_empty());
        let wrong = [package("writ-hub", &["writ-agent"]), package("writ-new", &[])];
        let found: Vec<_> = check_direction(&wrong)
            .into_iter()
            .map(|finding| finding.what)
            .collect();
        assert!(
            found[0].starts_with("writ-hub depends on writ-agent, against the direction"),
            "{found:?}"
        );
        assert!(found[1].starts_with("writ-new has no row"), "{found:?}");
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let manifest = serde_json::json!({
            "name": "writ-api",
            "manifest_path": "/r/crates/api/Cargo.toml",
            "dependencies": [
                {"name": "writ-testenv", "kind": "dev"},
                {"name": "writ-authz", "kind": null},
                {"name": "serde", "kind": null},
            ],
        });
        let package = parsed(&manifest, "/r").unwrap();
        assert_eq!(
            (package.folder.as_str(), package.depends_on),
            ("crates/api", vec!["writ-authz".to_owned()])
        );
        assert!(
            parsed(&manifest, "/r/crates").is_none(),
            "only crates/ is looked at"
        );
    }

    #[test]
    fn features_are_those_of_the_containerfile() {
        let text = "FROM x\nRUN cargo build --release --locked --package writ --no-default-features\n";
        assert_eq!(
            features(text).unwrap(),
            ["--package", "writ", "--no-default-features"]
        );
        assert_eq!(features("FROM x"), None);
    }
}
