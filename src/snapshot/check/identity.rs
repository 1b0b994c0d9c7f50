//! Identity: identity of a hook among all others, also those of the same name.

use std::{collections::HashMap, sync::Arc};

/// Gives out ids. Source: `docs/reference/webhook-semantics.md` §3.
#[derive(Default)]
pub(crate) struct Identities(HashMap<String, usize>);

impl Identities {
    /// `<prefix><configuration>/<hook>/<n>`, where n counts how often the rest was given out before.
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
