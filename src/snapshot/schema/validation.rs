//! Validation: rules in CEL, for what a shape cannot say.

use serde_json::{Value, json};

/// `x-kubernetes-validations`: each rule and what a cluster answers where it does not hold.
pub(super) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}
