//! Own: our own entries among the hooks of a registration.

use serde_json::Value;

use gatepost_api::registration::is_our_webhook;
pub use gatepost_api::registration::{MANAGED_BY, our_webhooks};

/// Is this webhook configuration a registration of Gatepost? A sidecar that called it would call itself.
///
/// By its label; or, as a package manager may have put its own there, by the names of all its webhooks.
pub fn is_our_own(object: &Value) -> bool {
    let labelled = object["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1;
    let ours = |hook: &Value| hook["name"].as_str().is_some_and(is_our_webhook);
    let webhooks = object["webhooks"].as_array();
    labelled || webhooks.is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(ours))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_registration_of_ours_is_known_by_its_label_or_its_webhooks() {
        let object = |label: &str, hooks: &[&str]| {
            let hooks: Vec<_> = hooks.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "x", "labels": {MANAGED_BY.0: label}}, "webhooks": hooks})
        };
        let (ours, second, other) = ("gatepost.validate.gatepost.dev", "g-2.validate.gatepost.dev", "a.example.com");
        assert!(is_our_own(&object("gatepost", &[other])));
        assert!(is_our_own(&object("Helm", &[ours, second])));
        assert!(is_our_own(&object("Helm", &["gatepost.mutate.gatepost.dev"])));
        assert!(!is_our_own(&object("Helm", &[ours, other])), "a hook of somebody else's must be asked");
        assert!(!is_our_own(&object("Helm", &[])));
        assert!(!is_our_own(&json!({})));
    }
}
