//! Values as YAML that both we and Kubernetes' tools read back as the same values.

use serde_json::Value;

/// One document, keys in alphabetical order. Words that YAML 1.1 takes for numbers or booleans are quoted; text of
/// several lines is written as such, and a long line stays one.
///
/// # Errors
/// The serializer's words, should it meet a value it cannot write.
pub fn yaml(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    fn read_back(value: &Value) -> Value {
        serde_saphyr::from_str(&yaml(value).unwrap()).unwrap()
    }

    #[test]
    fn words_that_look_like_something_else_stay_words() {
        let words = [
            "on",
            "NO",
            "y",
            "~",
            "null",
            "1e3",
            "0x1f",
            "1_000",
            "010",
            "12:30:45",
            "2026-11-21",
            "*",
            "*/*",
            "",
            " a",
            "a: b",
            "- a",
            "# a",
            "a\nb\n",
            "a\n\n\n",
            "\n",
            "é\u{7}",
        ];
        let value = json!({ "words": words, "number": 30, "yes": true, "none": null, "empty": {}, "list": [] });
        assert_eq!(read_back(&value), value);
        assert!(yaml(&value).unwrap().contains("- \"on\"") || yaml(&value).unwrap().contains("- 'on'"));
    }

    #[test]
    fn a_long_line_stays_one() {
        let value = json!({ "caBundle": "LS0t".repeat(500), "words": "a b ".repeat(100) + "c" });
        assert_eq!(read_back(&value), value);
        assert_eq!(yaml(&value).unwrap().lines().count(), 2);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\u{e9}]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,8}", inner, 0..5)
                    .prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(value in values()) {
            let value = json!({ "it": value });
            prop_assert_eq!(read_back(&value), value);
        }
    }
}
