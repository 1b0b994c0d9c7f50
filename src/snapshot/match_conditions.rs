//! `matchConditions`: checked in shape. They are not yet evaluated here, and a hook that has any is refused: asking it
//! about more than it asked for, or about less, would both be wrong.

use std::collections::HashSet;

use super::{at::At, names, problem::quoted};

/// The most that one hook may have. As upstream.
const MOST: usize = 64;

/// Checks a hook's conditions. Source: `docs/reference/webhook-semantics.md` §14.
pub(super) fn check(at: &At<'_>) {
    if !at.present() || !at.is_list() {
        return;
    }
    if at.items().count() > MOST {
        at.problem(format!("holds more than {MOST} conditions"), "join some of them with &&");
    }
    let mut seen = HashSet::new();
    for item in at.items().filter(|item| item.is_map_of(&["name", "expression"])) {
        let (name, expression) = (item.key("name"), item.key("expression"));
        if let Some(text) = given(&name, "every condition has a name, unique in its hook") {
            if !names::is_qualified_name(text) {
                name.problem(format!("{} is not a name", quoted(text)), names::KEY);
            } else if !seen.insert(text.to_owned()) {
                name.problem(format!("{} is listed twice", quoted(text)), "rename one, or remove one");
            }
        }
        if given(&expression, "write an expression, or remove the condition").is_some() {
            expression.problem(
                "matchConditions are not yet evaluated here",
                "leave this webhook registered with the apiserver itself",
            );
        }
    }
}

/// A text that holds more than spaces.
fn given<'a>(at: &At<'a>, fix: &str) -> Option<&'a str> {
    let text = if at.required(fix) { at.text()? } else { return None };
    if text.trim().is_empty() {
        at.problem("is empty", fix);
        return None;
    }
    Some(text)
}
