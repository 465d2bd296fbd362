//! Label selectors of aggregated ClusterRoles.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::names::{Name, Names};

/// Labels as sorted pairs.
pub(crate) type Labels = Box<[(Name, Name)]>;

/// A compiled selector: all requirements must hold; none at all selects everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Box<[Requirement]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Name,
    operator: Operator,
    values: Box<[Name]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Whether the API server could make a selector of it.
fn operator_of(operator: &str, values: usize) -> Option<Operator> {
    match (operator, values) {
        ("In", 1..) => Some(Operator::In),
        ("NotIn", 1..) => Some(Operator::NotIn),
        ("Exists", 0) => Some(Operator::Exists),
        ("DoesNotExist", 0) => Some(Operator::DoesNotExist),
        _ => None,
    }
}

impl Selector {
    /// Compiles a selector; nothing where it is not valid.
    pub(crate) fn compile(names: &mut Names, selector: &LabelSelector) -> Option<Self> {
        let expressions = selector.match_expressions.as_deref().unwrap_or_default();
        let operators = expressions
            .iter()
            .map(|wanted| operator_of(&wanted.operator, wanted.values.as_ref().map_or(0, Vec::len)))
            .collect::<Option<Vec<_>>>()?;
        let labels = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: names.take(key),
                operator: Operator::In,
                values: Box::new([names.take(value)]),
            });
        let mut requirements: Vec<_> = labels.collect();
        requirements.extend(expressions.iter().zip(operators).map(|(wanted, operator)| {
            Requirement {
                key: names.take(&wanted.key),
                operator,
                values: wanted
                    .values
                    .iter()
                    .flatten()
                    .map(|value| names.take(value))
                    .collect(),
            }
        }));
        Some(Self(requirements.into_boxed_slice()))
    }

    pub(crate) fn release(&self, names: &mut Names) {
        for requirement in &self.0 {
            names.release(requirement.key);
            for &value in &requirement.values {
                names.release(value);
            }
        }
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|wanted| {
            let value = labels
                .iter()
                .find(|(key, _)| *key == wanted.key)
                .map(|(_, value)| value);
            match (wanted.operator, value) {
                (Operator::In, Some(value)) => wanted.values.contains(value),
                (Operator::NotIn, Some(value)) => !wanted.values.contains(value),
                (Operator::Exists, Some(_)) | (Operator::NotIn | Operator::DoesNotExist, None) => true,
                (Operator::DoesNotExist, Some(_)) | (Operator::In | Operator::Exists, None) => false,
            }
        })
    }
}
