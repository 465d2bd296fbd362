//! Whether the expressions of an admission policy make sense for the kinds that it is about. What does not is no error: a
//! policy may outlive the kinds that it was written for. Its writer is told in its status.

use serde_json::{Value, json};

use super::{list, policies, text};
use crate::schema::{Expression, Scope, Ty, child, index};

/// What an expression of a policy gets to see, for one of the kinds that the policy is about.
pub(crate) struct Subject {
    /// As warnings name it.
    pub kind: String,
    pub ty: Ty,
}

/// The warnings of a policy, as its status lists them; `params` is the type of its parameters, where it has any.
pub(crate) fn warnings(policy: &Value, subjects: &[Subject], params: Option<&Ty>) -> Vec<Value> {
    let scopes: Vec<_> = subjects
        .iter()
        .map(|subject| (&subject.kind, scope(policy, subject, params)))
        .collect();
    let mut warnings = Vec::new();
    for (i, validation) in list(policy, "/spec/validations").iter().enumerate() {
        for name in ["expression", "messageExpression"] {
            let source = text(validation, &format!("/{name}"));
            if source.is_empty() {
                continue;
            }
            let compiled = Expression::compile(source);
            let problem = |scope: &Scope<'_>| match &compiled {
                Ok(expression) => expression.check_as(&[], scope).err(),
                Err(problem) => Some(format!("compilation failed: {problem}")),
            };
            let problems: Vec<String> = scopes
                .iter()
                .filter_map(|(kind, scope)| Some(format!("{kind}: {}\n", problem(scope)?)))
                .collect();
            if !problems.is_empty() {
                let field = child(&index("spec.validations", i), name);
                warnings.push(json!({ "fieldRef": field, "warning": problems.join("\n") }));
            }
        }
    }
    warnings
}

/// What the expressions may name, with the types that it has for one kind.
fn scope(policy: &Value, subject: &Subject, params: Option<&Ty>) -> Scope<'static> {
    let mut scope = policies::scope();
    scope.bind("object", subject.ty.clone());
    scope.bind("oldObject", subject.ty.clone());
    if let Some(params) = params {
        scope.bind("params", params.clone());
    }
    // A variable that makes no sense is not mentioned by itself.
    policies::variables(policy, &mut scope, &mut Vec::new());
    scope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    fn told(policy: &Value) -> Vec<Value> {
        let subjects = [("apps", "v1", "deployments"), ("", "v1", "pods")].map(|(group, version, plural)| {
            let kind = builtin::find(group, version, plural).unwrap();
            Subject {
                kind: format!("{}, Kind={}", kind.api_version(), kind.kind),
                ty: Ty::of_objects(&kind.schema(), &builtin::object_meta()),
            }
        });
        let maps = builtin::find("", "v1", "configmaps").unwrap();
        let params = Ty::of_objects(&maps.schema(), &builtin::object_meta());
        warnings(policy, &subjects, Some(&params))
    }

    #[test]
    fn only_what_makes_no_sense_is_warned_about() {
        let policy = |expression: &str| {
            let variables = json!([{ "name": "spec", "expression": "object.spec" }]);
            json!({ "spec": { "variables": variables, "validations": [{ "expression": expression }] } })
        };
        for fine in [
            "object.metadata.labels.all(l, l != 'x')",
            "oldObject == null || object.spec == oldObject.spec",
            "params.data['k'] == 'v' && has(params.metadata)",
            "variables.spec.anything > 3",
            "object.status.conditions.exists(c, c.lastTransitionTime > timestamp('2020-01-01T00:00:00Z'))",
            "authorizer.group('').resource('pods').check('get').allowed()",
        ] {
            assert_eq!(told(&policy(fine)), [] as [Value; 0], "{fine}");
        }
        for (wrong, of) in [
            ("object.spec.replicas > 3", &["v1, Kind=Pod"][..]),
            ("object.spec.containers.size() > 3", &["apps/v1, Kind=Deployment"]),
            (
                "object.nothing == 1",
                &["apps/v1, Kind=Deployment", "v1, Kind=Pod"],
            ),
            (
                "object.metadata.name == 1",
                &["apps/v1, Kind=Deployment", "v1, Kind=Pod"],
            ),
            (
                "params.spec.x == 1",
                &["apps/v1, Kind=Deployment", "v1, Kind=Pod"],
            ),
        ] {
            let told = told(&policy(wrong));
            let warning = told[0]["warning"].as_str().unwrap();
            assert_eq!(told[0]["fieldRef"], "spec.validations[0].expression");
            let named: Vec<&str> = warning
                .split_inclusive('\n')
                .filter_map(|line| Some(line.split_once(": compilation failed")?.0))
                .collect();
            assert_eq!(named, of, "{wrong}: {warning}");
        }
    }
}
