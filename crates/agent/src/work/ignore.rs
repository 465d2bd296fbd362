//! Fields of a manifest that a server-side apply leaves alone.

use serde_json::Value;
use writ_api::work::{IgnoreField, IgnoreFieldCondition};
use writ_runtime::path::{Budget, Path, PathError};

/// Removes the fields with that condition from a manifest. A field that is not there is no error.
pub fn remove(
    object: &mut Value,
    fields: &[IgnoreField],
    condition: IgnoreFieldCondition,
) -> Result<(), String> {
    let budget = Budget::default();
    for field in fields.iter().filter(|field| field.condition == condition) {
        for (text, path) in paths(field) {
            let path = path.map_err(|error| error.to_string())?;
            path.remove(object, &budget)
                .map_err(|error| format!("{text:?}: {error}"))?;
        }
    }
    Ok(())
}

/// The paths of a field, each with its text.
pub fn paths(field: &IgnoreField) -> impl Iterator<Item = (&str, Result<Path, PathError>)> {
    type Read = fn(&str) -> Result<Path, PathError>;
    [
        (&field.json_paths, Path::jsonpath as Read),
        (&field.json_pointers, Path::pointer),
        (&field.jq_path_expressions, Path::jq),
    ]
    .into_iter()
    .flat_map(|(paths, read)| paths.iter().map(move |path| (path.as_str(), read(path))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_that_is_much_work_is_given_up_and_named() {
        let fields: Vec<IgnoreField> = serde_json::from_value(
            json!([{"condition": "OnSpokePresent", "jqPathExpressions": [".spec.a", ".. | .. | .. | .. | .b"]}]),
        )
        .unwrap();
        let run = |size: usize| {
            let mut object = json!({"spec": {"a": 1, "b": 2, "list": vec![0; size]}});
            remove(&mut object, &fields, IgnoreFieldCondition::OnSpokePresent).map(|()| object)
        };
        assert_eq!(run(1), Ok(json!({"spec": {"list": [0]}})));
        let problem = run(500_000).unwrap_err();
        assert!(
            problem.contains(".. | ..") && problem.contains("too many steps"),
            "{problem}"
        );
    }
}
