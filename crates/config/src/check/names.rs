//! Names: their syntax, advice on it, and the ids of hooks.

use std::{collections::HashMap, sync::Arc};

pub(crate) use gatepost_api::names::{
    is_dns_1035_label, is_dns_label, is_dns_subdomain, is_label_value, is_qualified_name,
};

/// Advice on the syntax of a DNS subdomain.
pub(crate) const SUBDOMAIN: &str =
    "write lower-case letters, digits, - and dots, at most 253, such as no-latest.example.com";

/// Advice on the syntax of a DNS label.
pub(crate) const LABEL: &str = "write lower-case letters, digits and -, at most 63, such as kube-system";

/// Advice on the syntax of a label key.
pub(crate) const KEY: &str = "write a name of at most 63 letters, digits, -, _ and dots, \
     with a DNS name and / before it if wanted, such as example.com/tier";

/// Advice on the syntax of a label value.
pub(crate) const VALUE: &str = "write at most 63 letters, digits, -, _ and dots, or nothing";

/// Assigns ids to hooks. Source: `docs/reference/webhook-semantics.md` §3.
#[derive(Default)]
pub(crate) struct Identities(HashMap<String, usize>);

impl Identities {
    /// Returns `<prefix><configuration>/<hook>/<n>`; n is the number of earlier ids that differ only in n.
    pub(crate) fn next(&mut self, prefix: &str, configuration: &str, hook: &str) -> Arc<str> {
        let name = format!("{prefix}{configuration}/{hook}");
        let before = self.0.entry(name.clone()).or_default();
        let id = format!("{name}/{before}");
        *before += 1;
        id.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_equal() {
        let mut identities = Identities::default();
        let ids = [("", "c", "h"), ("", "c", "h"), ("manifest/", "c", "h"), ("", "d", "h")]
            .map(|(prefix, configuration, hook)| identities.next(prefix, configuration, hook));
        assert_eq!(ids.each_ref().map(|id| &**id), ["c/h/0", "c/h/1", "manifest/c/h/0", "d/h/0"]);
    }
}
