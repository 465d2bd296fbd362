//! Every custom resource that writ speaks: one folder per API group, one file per kind, plain data, no I/O.
//!
//! ```text
//!      person                 hub                                      managed cluster
//! ClusterPermission ──▶ ManifestWork (namespace cluster1) ──▶ objects, NamespaceGrant, AppliedManifestWork
//! ManagedServiceAccount ──────────────────────────────────▶ ServiceAccount, and its token back in a Secret
//! ManagedClusterSet, Placement ──▶ PlacementDecision ──▶ ManifestWorkReplicaSet ──▶ ManifestWork
//! RootSync, RepoSync (on the cluster) ──▶ bindings and objects of a repository, ResourceGroup as inventory
//! ```
//!
//! [`crds`] returns every definition; `cargo xtask generate` writes them to `deploy/crds`, and the descriptions of their
//! fields to `docs/reference/api.md`.

pub mod addon;
pub mod authentication;
pub mod cluster;
pub mod configsync;
mod features;
pub mod go_duration;
pub mod kpt;
mod number_or_text;
pub mod proxy;
pub mod rbac;
mod readable;
mod schema;
pub mod work;
pub mod writ;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use features::FEATURES;
pub use number_or_text::NumberOrText;

/// The definitions that match. Unlike those of [`crds`] they are not kept: they are large, and most processes need them
/// once.
pub fn definitions_of(wanted: impl Fn(&CustomResourceDefinition) -> bool) -> Vec<CustomResourceDefinition> {
    let mut all = generate();
    all.retain(wanted);
    all
}

/// Every definition, sorted by name: what `writ crds` prints. Generated once per process and kept.
pub fn crds() -> &'static [CustomResourceDefinition] {
    static ALL: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(generate);
    &ALL
}

fn generate() -> Vec<CustomResourceDefinition> {
    let mut all = [
        addon::crds(),
        authentication::crds(),
        cluster::crds(),
        configsync::crds(),
        kpt::crds(),
        proxy::crds(),
        rbac::crds(),
        work::crds(),
        writ::crds(),
    ]
    .concat()
    .into_iter()
    .map(schema::without_null)
    .map(schema::without_status_defaults)
    .collect::<Vec<_>>();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}
