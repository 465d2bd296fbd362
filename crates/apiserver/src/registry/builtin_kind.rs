//! The built-in kinds as resources.

use std::sync::{Arc, LazyLock};

use super::{Resource, Scale, Version};
use crate::builtin::{Kind, TOKEN_REQUEST, autoscaler, kinds};

pub(super) fn resources() -> impl Iterator<Item = Resource> {
    kinds().iter().map(resource)
}

/// What `serviceaccounts/token` takes.
pub(crate) fn token_request() -> Arc<Resource> {
    static RESOURCE: LazyLock<Arc<Resource>> = LazyLock::new(|| Arc::new(resource(TOKEN_REQUEST)));
    RESOURCE.clone()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// Both groups of events show the same objects.
fn table_name(kind: &Kind) -> String {
    match kind.group {
        "" | "events.k8s.io" => kind.plural.to_owned(),
        group => format!("{}.{group}", kind.plural),
    }
}

fn resource(kind: &'static Kind) -> Resource {
    Resource {
        table: table_name(kind).into(),
        group: kind.group.to_owned(),
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        versions: vec![Version {
            name: kind.version.to_owned(),
            served: true,
            deprecated: (kind.kind == "Endpoints").then(|| {
                "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into()
            }),
            schema: Some(Arc::new(kind.schema())),
            status: kind.subresources.contains(&"status"),
            scale: kind.subresources.contains(&"scale").then(|| Scale {
                spec: ".spec.replicas".into(),
                status: ".status.replicas".into(),
                selector: Some(".spec.selector".into()),
            }),
            columns: Vec::new(),
            selectable: Vec::new(),
        }],
        storage: if autoscaler::is_older(kind) {
            autoscaler::NEWER.to_owned()
        } else {
            kind.version.to_owned()
        },
        differing: false,
        variants: Vec::new(),
        builtin: Some(kind),
        verbs: match table_name(kind).as_str() {
            // All namespaces at once cannot be deleted.
            "namespaces" => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ => kind.verbs,
        },
    }
}
