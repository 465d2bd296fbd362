//! Numbers as Go writes them into JSON.

use serde_json::Value;

/// Takes from whole numbers the sign that they were floats: to whoever reads what was written, they are integers, if they are small
/// enough for one.
pub(crate) fn strip_whole_floats(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(strip_whole_floats),
        Value::Array(list) => list.iter_mut().for_each(strip_whole_floats),
        Value::Number(number) if number.is_f64() => {
            // The digits count, not what they stand for: beyond 2^53 that is another number.
            let digits = number.as_f64().map(|float| float.to_string());
            if let Some(whole) = digits.and_then(|digits| digits.parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

/// The same for a value of one's own.
pub(crate) fn without_whole_floats(mut value: Value) -> Value {
    strip_whole_floats(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn whole_floats_are_integers() {
        for (float, written) in [
            (json!(1.0), json!(1)),
            (json!(-0.0), json!(0)),
            (json!(1e3), json!(1000)),
            (json!(1.5), json!(1.5)),
            (json!([{"a": 2.0}]), json!([{"a": 2}])),
            (
                json!(4_611_686_018_427_387_904.0),
                json!(4_611_686_018_427_388_000_i64),
            ),
            (json!(1e19), json!(1e19)),
        ] {
            assert_eq!(super::without_whole_floats(float), written);
        }
    }
}
