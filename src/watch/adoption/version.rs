//! Version: the apiserver's, where it knows no match conditions.

use serde_json::Value;

/// The first version whose webhooks have match conditions.
const FIRST_MINOR: u64 = 28;

/// The version, where webhooks have no match conditions in it.
pub fn too_old(version: &Value) -> Option<String> {
    let number = |key: &str| {
        let digits: String = version[key].as_str()?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let old = number("major")? == 1 && number("minor")? < FIRST_MINOR;
    old.then(|| version["gitVersion"].as_str().unwrap_or("unknown").chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_before_match_conditions_are_told() {
        let version = |minor: &str| json!({"major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.3")});
        assert_eq!(too_old(&version("27+")).as_deref(), Some("v1.27+.3"));
        assert_eq!([too_old(&version("28")), too_old(&version("36+")), too_old(&json!({}))], [None, None, None]);
    }
}
