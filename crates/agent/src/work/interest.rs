//! Which objects on the managed cluster a work watches: those that it delivers, those that it dropped, and what it waits for.

use std::sync::Arc;

use writ_api::work::AppliedResource;
use writ_controller::{Error, Name, ServedKind};

use super::{
    model::{Key, PlannedManifest, Prerequisite, TargetObject},
    plan::{can_exist, rbac::awaited_roles},
    state::Agent,
};

impl Agent {
    /// Watches the objects of a work, its dropped objects that still exist, and what it waits for.
    pub async fn watch_work(
        &self,
        name: &str,
        manifests: &[PlannedManifest],
        still_present: &[AppliedResource],
    ) {
        let key = Key::work(name);
        let terminating = self.served_objects(still_present).await;
        let mut objects: Vec<(Arc<ServedKind>, Name)> = manifests
            .iter()
            .filter_map(|manifest| manifest.target.as_ref().ok())
            .map(|target| (target, target.full_name()))
            // A kind that this very work defines is watched once it is served.
            .filter(|(target, name)| !target.kind_to_come || self.drift.is_known(&target.kind.resource, name))
            .map(|(target, name)| (target.kind.clone(), name))
            .chain(terminating)
            .collect();
        let [roles, _, cluster_roles, _] = &self.well_known.rbac;
        objects.extend(
            awaited_roles(manifests)
                .into_iter()
                .map(|(kind, namespace, name)| {
                    let kind = if kind == writ_authz::Kind::Role {
                        roles
                    } else {
                        cluster_roles
                    };
                    (kind.clone(), Name::new(namespace, name))
                }),
        );
        let mut awaited = Vec::new();
        self.states.with(name, |state| {
            for prerequisite in &state.waits_for {
                match prerequisite {
                    Prerequisite::Namespace(name) => {
                        let namespaces = self.well_known.namespaces.clone();
                        objects.push((namespaces, Name::global(name.as_str())));
                    }
                    Prerequisite::Kind => awaited.push(self.well_known.definitions.clone()),
                    Prerequisite::Permission => awaited.extend(self.well_known.rbac.iter().cloned()),
                }
            }
        });
        if self.drift.set_interest(&key, &objects, &awaited) {
            self.watches.refresh();
        }
    }

    /// Watches the recorded objects whose end an AppliedManifestWork waits for.
    pub async fn watch_deletions(&self, key: &Key, records: &[AppliedResource]) {
        let objects = self.served_objects(records).await;
        if self.drift.set_interest(key, &objects, &[]) {
            self.watches.refresh();
        }
    }

    /// Watches an object whose kind was not served when the pass began.
    pub fn watch_served(&self, key: &Key, target: &TargetObject) {
        if self.drift.add_interest(key, &target.kind, target.full_name()) {
            self.watches.refresh();
        }
    }

    /// Kind and name of each of these objects whose kind is served. Kinds that cannot be resolved now are retried with
    /// backoff and do not block the pass.
    async fn served_objects(&self, records: &[AppliedResource]) -> Vec<(Arc<ServedKind>, Name)> {
        let mut objects = Vec::new();
        for record in records {
            let kind = self.recorded_kind(record).await.ok().flatten();
            let name = Name::new(record.namespace.as_str(), record.name.as_str());
            objects.extend(kind.map(|kind| (kind, name)));
        }
        objects
    }

    /// The kind of a recorded object; `None` if no such object can exist.
    pub async fn recorded_kind(&self, record: &AppliedResource) -> Result<Option<Arc<ServedKind>>, Error> {
        if !can_exist(record) {
            tracing::warn!(?record, "a record names what cannot be an object, it is ignored");
            return Ok(None);
        }
        let AppliedResource {
            group,
            version,
            resource,
            ..
        } = record;
        let kind = self
            .mapper
            .find_resource(&self.spoke, group, version, resource)
            .await
            .map_err(|error| Error::Busy(error.to_string()))?;
        Ok(kind.filter(|kind| !kind.namespaced || !record.namespace.is_empty()))
    }
}
