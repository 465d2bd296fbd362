//! Every custom resource that writ speaks: one folder per API group, one file per kind, plain data, no I/O.

pub mod addon;
pub mod authentication;
pub mod cluster;
pub mod configsync;
pub mod kpt;
pub mod proxy;
pub mod rbac;
pub mod work;
pub mod writ;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Every definition, sorted by name: what `writ crds` prints. They are generated once in a process.
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
    .concat();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}
