//! `matchConditions`: checked, and compiled.

use std::{collections::HashSet, sync::Arc};

use super::names;
use crate::{
    cel::Condition,
    snapshot::document::{
        node::Node,
        problem::{one_line, quoted},
        value::Value,
    },
};

/// The most that one hook may have. As upstream.
const MOST: usize = 64;

/// Checks and compiles a hook's conditions. Source: `docs/reference/webhook-semantics.md` §14.
pub(crate) fn check(at: &Node<'_>) -> Arc<[Condition]> {
    if !at.present() || !at.is_list() {
        return Arc::default();
    }
    let mut conditions = Vec::new();
    if at.items().count() > MOST {
        at.problem(
            format!("holds more than {MOST} conditions"),
            "which no apiserver accepts",
            "join some of them with &&",
        );
    }
    let mut seen = HashSet::new();
    for item in at.items().filter(|item| item.is_map_of(&["name", "expression"])) {
        let (name, expression) = (item.key("name"), item.key("expression"));
        if let Some(text) = given(&name, "every condition has a name, unique in its hook") {
            if !names::is_qualified_name(text) {
                name.problem(format!("{} is not a name", quoted(text)), "which no apiserver accepts", names::KEY);
            } else if !seen.insert(text.to_owned()) {
                name.problem(
                    format!("{} is listed twice", quoted(text)),
                    "so messages could not tell them apart",
                    "rename one, or remove one",
                );
            }
        }
        let Some(text) = given(&expression, "write an expression, or remove the condition") else { continue };
        // More than may be there are not compiled either.
        if conditions.len() >= MOST {
            continue;
        }
        let name = if let Value::Text(name) = name.value { &**name } else { "" };
        match Condition::compile(name, text) {
            Ok(condition) => conditions.push(condition),
            Err(why) => expression.problem(
                format!("cannot be evaluated: {}", one_line(&why)),
                "so whether the hook is asked could not be decided",
                "correct the expression; where an apiserver accepts it as it is, leave this webhook registered there",
            ),
        }
    }
    conditions.into()
}

/// A text that holds more than spaces.
fn given<'a>(at: &Node<'a>, fix: &str) -> Option<&'a str> {
    let why = "so whether the hook is asked could not be decided";
    let text = if at.required(why, fix) { at.text()? } else { return None };
    if text.trim().is_empty() {
        at.problem("is empty", why, fix);
        return None;
    }
    Some(text)
}
