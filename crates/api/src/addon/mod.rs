//! `addon.open-cluster-management.io`: add-ons and where they run.

pub mod cluster_management_addon;
pub mod config;
pub mod managed_cluster_addon;
pub mod reports;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use cluster_management_addon::{ClusterManagementAddOn, ClusterManagementAddOnSpec, InstallStrategy};
pub use config::{AddOnConfig, AddOnMeta, ConfigCoordinates};
pub use managed_cluster_addon::{
    HealthCheck, ManagedClusterAddOn, ManagedClusterAddOnSpec, ManagedClusterAddOnStatus, Registration,
    RegistrationSubject,
};
pub use reports::{
    ConfigAsOf, ConfigKind, ConfigReference, DefaultConfigReference, InstallConfigReference,
    InstallProgression, RelatedObject,
};

/// The API group.
pub const GROUP: &str = "addon.open-cluster-management.io";

/// On objects of the hub that belong to an add-on: its name.
pub const LABEL_ADDON: &str = "open-cluster-management.io/addon-name";

/// Where an add-on's agent is installed, if nothing else is said.
pub const DEFAULT_INSTALL_NAMESPACE: &str = "open-cluster-management-agent-addon";

/// On a ManagedClusterAddOn: `spec.installNamespace` of the older version, kept by the newer one.
pub const ANNOTATION_INSTALL_NAMESPACE: &str = "addon.open-cluster-management.io/v1alpha1-install-namespace";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![ClusterManagementAddOn::crd(), ManagedClusterAddOn::crd()]
}
