//! Predicates: labels, claims and CEL. A cluster has to match all parts of at least one of them.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    CustomResourceExt,
    core::{Selector, SelectorExt},
};
use serde_json::{Value, json};
use writ_api::cluster::{
    ManagedCluster,
    placement::{ClaimSelector, PlacementSpec},
};
use writ_runtime::cel::{Answer, Expression, Variable};

use crate::placement::cluster_view::{AddOnScores, ClusterView};
use crate::selector;

/// The name of the cluster in expressions.
const CLUSTER: &str = "managedCluster";
/// The function that gives the scores of an add-on.
const SCORES: &str = "scores";

/// The fields of a cluster in expressions: those of the definition, and those of every object.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let definition = serde_json::to_value(ManagedCluster::crd()).unwrap_or_default();
    let mut schema = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or_default();
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let rest = json!({"apiVersion": text, "kind": text, "metadata": {"type": "object", "properties": {
        "name": text, "generateName": text, "uid": text, "resourceVersion": text, "creationTimestamp": text,
        "deletionTimestamp": text, "labels": texts, "annotations": texts, "generation": {"type": "integer"},
        "deletionGracePeriodSeconds": {"type": "integer"}, "finalizers": {"type": "array", "items": text},
        "ownerReferences": {"type": "array"}, "managedFields": {"type": "array"},
    }}});
    if let (Some(fields), Value::Object(rest)) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), rest)
    {
        fields.extend(rest);
    }
    schema
});

/// The predicates of a placement, compiled.
pub struct Predicates(Vec<Predicate>);

struct Predicate {
    labels: Selector,
    claims: Selector,
    expressions: Vec<(String, Expression)>,
}

impl Predicates {
    /// Compiles the predicates; the error names the one that is invalid.
    pub fn compile(spec: &PlacementSpec) -> Result<Self, String> {
        let mut all = Vec::new();
        for (index, predicate) in spec.predicates.iter().enumerate() {
            let at = |what: &str, why: &str| {
                format!("spec.predicates[{index}].requiredClusterSelector.{what}: {why}")
            };
            let selector = predicate.required_cluster_selector.clone().unwrap_or_default();
            let labels = labels(selector.label_selector.as_ref()).map_err(|e| at("labelSelector", &e))?;
            let claims = claims(selector.claim_selector.as_ref()).map_err(|e| at("claimSelector", &e))?;
            let mut expressions = Vec::new();
            for text in selector.cel_selector.into_iter().flat_map(|c| c.cel_expressions) {
                let say = |e: String| at("celSelector", &format!("{text:?}: {e}"));
                let expression = Expression::parse(&text).map_err(say)?;
                // An unknown name would match no cluster and remove every decision.
                let mistake = expression
                    .unknown_name(&[CLUSTER], &[SCORES])
                    .or_else(|| expression.mistake(CLUSTER, &SCHEMA));
                if let Some(mistake) = mistake {
                    return Err(say(mistake));
                }
                expressions.push((text, expression));
            }
            all.push(Predicate {
                labels,
                claims,
                expressions,
            });
        }
        Ok(Self(all))
    }

    /// Whether an expression uses the scores of add-ons.
    pub fn ask_for_scores(&self) -> bool {
        let mut expressions = self.0.iter().flat_map(|p| &p.expressions);
        expressions.any(|(text, _)| text.contains(SCORES))
    }

    /// Checks whether the cluster matches; the error is the reason if it does not.
    pub fn check(&self, cluster: &ClusterView, scores: &AddOnScores) -> Result<(), String> {
        let mut reasons = Vec::new();
        for predicate in &self.0 {
            match predicate.check(cluster, scores) {
                Ok(()) => return Ok(()),
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons.join("; "))
        }
    }
}

impl Predicate {
    fn check(&self, cluster: &ClusterView, scores: &AddOnScores) -> Result<(), String> {
        if !self.labels.matches(&cluster.labels) {
            return Err(format!("its labels do not match {}", self.labels));
        }
        if !self.claims.matches(&cluster.claims) {
            return Err(format!("its claims do not match {}", self.claims));
        }
        if self.expressions.is_empty() {
            return Ok(());
        }
        let variable = cluster.variable.get_or_init(|| {
            let object = serde_json::to_value(&*cluster.object).unwrap_or_default();
            Variable::from(&object)
        });
        for (text, expression) in &self.expressions {
            match expression.evaluate_with(&[(CLUSTER, variable)], &[(SCORES, &scores.table)]) {
                Ok(Answer::Bool(true)) => {}
                Ok(Answer::Bool(false)) => return Err(format!("the expression {text:?} is false")),
                Ok(_) => return Err(format!("the expression {text:?} is not true or false")),
                // A missing field is not a match.
                Err(error) => return Err(format!("the expression {text:?} fails: {error}")),
            }
        }
        Ok(())
    }
}

/// A label selector; an absent one matches everything here, as in OCM.
pub fn labels(selector: Option<&LabelSelector>) -> Result<Selector, String> {
    selector::compile(&selector.cloned().unwrap_or_default())
}

/// A claim selector; an absent one matches everything.
pub fn claims(selector: Option<&ClaimSelector>) -> Result<Selector, String> {
    selector::compile(&LabelSelector {
        match_expressions: selector.map(|s| s.match_expressions.clone()),
        match_labels: None,
    })
}
