//! Pure: what the agent reports in the status of a work, read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::{FeedbackValue, FieldValue, ManifestCondition, ManifestWork};
use writ_controller::condition;

use super::model::{ObjectId, object_id};

/// The reports on the single objects of a work.
pub fn of(work: &ManifestWork) -> impl Iterator<Item = &ManifestCondition> {
    let status = work.status.iter();
    status.flat_map(|status| &status.resource_status.manifests)
}

/// The object that a report is about.
pub fn id(report: &ManifestCondition) -> ObjectId {
    let meta = &report.resource_meta;
    object_id(&meta.kind, &meta.namespace, &meta.name)
}

/// The conditions of a work.
pub fn conditions(work: &ManifestWork) -> &[Condition] {
    let status = work.status.as_ref();
    status
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default()
}

/// What the agent says of the work as it is now.
pub fn applied(work: &ManifestWork) -> Option<&Condition> {
    let applied = condition::find(conditions(work), "Applied");
    applied.filter(|c| c.observed_generation >= work.metadata.generation)
}

/// What the agent reports of a namespace grant.
pub struct Feedback<'a>(&'a [FeedbackValue]);

impl<'a> Feedback<'a> {
    /// The feedback of a report, if there is one.
    pub fn of(report: Option<&'a ManifestCondition>) -> Self {
        Self(
            report
                .map(|report| report.status_feedback.values.as_slice())
                .unwrap_or_default(),
        )
    }

    /// Whether it is about the grant as the managed cluster has it.
    pub fn is_current(&self) -> bool {
        let observed = self.number("observedGeneration");
        observed.is_some() && observed >= self.number("generation")
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.find(name)?.integer
    }

    /// A text that is not empty.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.find(name)?.string.as_deref().filter(|text| !text.is_empty())
    }

    fn find(&self, name: &str) -> Option<&'a FieldValue> {
        let mut values = self.0.iter();
        values.find(|value| value.name == name).map(|value| &value.value)
    }
}
