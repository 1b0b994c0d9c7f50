//! Checks and compiles selectors (`matchLabels` and `matchExpressions`) and match conditions.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use super::names::{KEY, VALUE, is_label_value, is_qualified_name};
use crate::document::{
    Dialect,
    node::{Node, UNCLEAR, Value},
    problem::{one_line, quoted},
};
use gatepost_api::{Selector, selector::Requirement};
use gatepost_cel::Condition;

/// Keys of a selector.
pub(crate) const KEYS: [&str; 2] = ["matchLabels", "matchExpressions"];

pub(crate) const REQUIREMENT_KEYS: [&str; 3] = ["key", "operator", "values"];

#[derive(Clone, Copy)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

pub(crate) const OPERATORS: [(&str, Operator); 4] = [
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];

/// Checks and compiles a selector. If it is absent or null, it matches everything, as by upstream's API defaulting:
/// `docs/reference/webhook-semantics.md` §4.3. Requirements that contradict each other are a problem only in our own
/// form; Kubernetes allows them.
pub(crate) fn check(at: &Node<'_>, dialect: Dialect) -> Selector {
    let mut requirements = Vec::new();
    if !at.present() || !at.is_map_of(&KEYS) {
        return Selector(requirements);
    }
    let before = at.problems();
    let labels = at.key("matchLabels");
    if labels.present() {
        requirements
            .extend(labelled(&labels).into_iter().map(|(key, value)| Requirement::Is(key.into(), value.into())));
    }
    let expressions = at.key("matchExpressions");
    if expressions.present() && expressions.is_list() {
        requirements.extend(expressions.items().filter_map(|item| expression(&item)));
    }
    if at.problems() == before && dialect == Dialect::Gatepost {
        report_contradictions(at, &requirements);
    }
    Selector(requirements)
}

/// Returns the keys and values of a map of labels. Reports and omits invalid entries.
pub(crate) fn labelled<'a>(at: &Node<'a>) -> Vec<(&'a str, &'a str)> {
    let Value::Map(written) = at.value else {
        at.wrong_type("a map");
        return Vec::new();
    };
    let mut labels = Vec::new();
    for ((key, entry), (_, value)) in at.entries().zip(written) {
        let key_is_good = check_key(&entry, key);
        match value {
            Value::Text(value) if check_value(&entry, value) && key_is_good => labels.push((key, &**value)),
            Value::Text(_) => {}
            _ => entry.wrong_type("a text"),
        }
    }
    labels
}

fn check_key(at: &Node<'_>, key: &str) -> bool {
    let good = is_qualified_name(key);
    if !good {
        at.problem(format!("{} is not a label key", quoted(key)), "so no object can have it", KEY);
    }
    good
}

fn check_value(at: &Node<'_>, value: &str) -> bool {
    let good = is_label_value(value);
    if !good {
        at.problem(format!("{} is not a label value", quoted(value)), "so no object can have it", VALUE);
    }
    good
}

fn expression(at: &Node<'_>) -> Option<Requirement> {
    if !at.is_map_of(&REQUIREMENT_KEYS) {
        return None;
    }
    let before = at.problems();
    let (key, operator, values) = (at.key("key"), at.key("operator"), at.key("values"));
    let name = if key.required(UNCLEAR, "name a label key") { key.text() } else { None };
    name.map(|name| check_key(&key, name));
    let listed = if values.present() { values.texts()? } else { Vec::new() };
    values.items().zip(&listed).for_each(|(item, value)| _ = check_value(&item, value));
    let meaning = if operator.required(UNCLEAR, "write In, NotIn, Exists or DoesNotExist") {
        operator.choice(&OPERATORS)
    } else {
        None
    };
    match meaning {
        Some(Operator::In | Operator::NotIn) if listed.is_empty() => {
            values.problem("is empty", "and In and NotIn need at least one value", "list it");
        }
        Some(Operator::Exists | Operator::DoesNotExist) if !listed.is_empty() => {
            values.problem("is not empty", "and Exists and DoesNotExist take no values", "remove them");
        }
        _ => {}
    }
    let (name, operator) = (name?, meaning?);
    let list = || listed.iter().map(|value| Box::from(*value)).collect();
    (at.problems() == before).then(|| match operator {
        Operator::In => Requirement::In(name.into(), list()),
        Operator::NotIn => Requirement::NotIn(name.into(), list()),
        Operator::Exists => Requirement::Exists(name.into()),
        Operator::DoesNotExist => Requirement::DoesNotExist(name.into()),
    })
}

/// Values of one label that the requirements allow.
#[derive(Default)]
struct LabelConstraint<'a> {
    /// Allowed values; `None` if any value is allowed.
    allowed: Option<BTreeSet<&'a str>>,
    forbidden: BTreeSet<&'a str>,
    must_exist: bool,
    must_not_exist: bool,
}

impl<'a> LabelConstraint<'a> {
    /// Restricts the label to these values.
    fn keep(&mut self, values: BTreeSet<&'a str>) {
        self.must_exist = true;
        self.allowed = Some(match self.allowed.take() {
            Some(allowed) => allowed.intersection(&values).copied().collect(),
            None => values,
        });
    }
}

/// Reports every key whose requirements contradict each other.
fn report_contradictions(at: &Node<'_>, requirements: &[Requirement]) {
    let mut constraints: BTreeMap<&str, LabelConstraint<'_>> = BTreeMap::new();
    for requirement in requirements {
        let constraint = constraints.entry(requirement.key()).or_default();
        match requirement {
            Requirement::Is(_, value) => constraint.keep(BTreeSet::from([&**value])),
            Requirement::In(_, values) => constraint.keep(values.iter().map(AsRef::as_ref).collect()),
            Requirement::NotIn(_, values) => constraint.forbidden.extend(values.iter().map(|value| &**value)),
            Requirement::Exists(_) => constraint.must_exist = true,
            Requirement::DoesNotExist(_) => constraint.must_not_exist = true,
        }
    }
    for (key, constraint) in constraints {
        let left = constraint.allowed.is_none_or(|allowed| allowed.difference(&constraint.forbidden).next().is_some());
        if !left || (constraint.must_exist && constraint.must_not_exist) {
            at.problem(
                format!("can never hold: what it asks of {} contradicts itself", quoted(key)),
                "and all requirements must hold together",
                "remove one, or leave the hook out",
            );
        }
    }
}

/// Maximum number of conditions of one hook, as in upstream.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Checks and compiles a hook's conditions. Source: `docs/reference/webhook-semantics.md` §14.
pub(crate) fn check_match_conditions(at: &Node<'_>) -> Arc<[Condition]> {
    if !at.present() || !at.is_list() {
        return Arc::default();
    }
    let mut conditions = Vec::new();
    if at.items().count() > MAX_MATCH_CONDITIONS {
        at.problem(
            format!("holds more than {MAX_MATCH_CONDITIONS} conditions"),
            "which no apiserver accepts",
            "join some of them with &&",
        );
    }
    let mut seen = HashSet::new();
    for item in at.items().filter(|item| item.is_map_of(&["name", "expression"])) {
        let (name, expression) = (item.key("name"), item.key("expression"));
        if let Some(text) = given(&name, "every condition has a name, unique in its hook") {
            if !is_qualified_name(text) {
                name.problem(format!("{} is not a name", quoted(text)), "which no apiserver accepts", KEY);
            } else if !seen.insert(text.to_owned()) {
                name.problem(
                    format!("{} is listed twice", quoted(text)),
                    "so messages could not tell them apart",
                    "rename one, or remove one",
                );
            }
        }
        let Some(text) = given(&expression, "write an expression, or remove the condition") else { continue };
        // Conditions beyond the maximum are not compiled.
        if conditions.len() >= MAX_MATCH_CONDITIONS {
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

/// Reads a text that is not blank.
fn given<'a>(at: &Node<'a>, fix: &str) -> Option<&'a str> {
    let why = "so whether the hook is asked could not be decided";
    let text = if at.required(why, fix) { at.text()? } else { return None };
    if text.trim().is_empty() {
        at.problem("is empty", why, fix);
        return None;
    }
    Some(text)
}
