//! Rules as people write them: upstream's form and the seeds' earlier ones, checked and compiled.

use std::collections::BTreeSet;

use super::never_matches::dead;
use crate::document::{Dialect, node::Node, problem::quoted};
use gatepost_api::{Operation, Rule, Scope};

pub(crate) const KEYS: [&str; 8] =
    ["operations", "verbs", "apiGroups", "apiGroup", "apiVersions", "resources", "subresources", "scope"];

const KUBERNETES_KEYS: [&str; 5] = ["operations", "apiGroups", "apiVersions", "resources", "scope"];

/// Reason where a list of a rule has nothing to compare with.
const NEVER: &str = "so the rule would never match";

/// The words for an operation: upstream's five, and then those of the two earlier designs.
pub(crate) const OPERATIONS: [(&str, Option<Operation>); 11] = [
    ("CREATE", Some(Operation::Create)),
    ("UPDATE", Some(Operation::Update)),
    ("DELETE", Some(Operation::Delete)),
    ("CONNECT", Some(Operation::Connect)),
    ("*", None),
    ("POST", Some(Operation::Create)),
    ("PUT", Some(Operation::Update)),
    ("Create", Some(Operation::Create)),
    ("Update", Some(Operation::Update)),
    ("Delete", Some(Operation::Delete)),
    ("Connect", Some(Operation::Connect)),
];

pub(crate) const SCOPES: [(&str, Scope); 3] =
    [("*", Scope::Any), ("Namespaced", Scope::Namespaced), ("Cluster", Scope::Cluster)];

/// Checks and compiles a list of rules; what is wrong is reported.
pub(crate) fn list(at: &Node<'_>, dialect: Dialect) -> Vec<Rule> {
    if !at.is_list() {
        return Vec::new();
    }
    at.items().filter_map(|item| check(&item, dialect)).collect()
}

/// One rule. Source: `docs/reference/webhook-semantics.md` §14.
fn check(at: &Node<'_>, dialect: Dialect) -> Option<Rule> {
    if !at.is_map_of(if dialect == Dialect::Gatepost { &KEYS } else { &KUBERNETES_KEYS }) {
        return None;
    }
    let before = at.problems();
    if dialect == Dialect::Kubernetes {
        let all_there = at.key("operations").required(NEVER, "list the operations, or [\"*\"] for all")
            & at.key("apiGroups").required(NEVER, "list the API groups: \"\" is the core group, \"*\" is all")
            & at.key("apiVersions").required(NEVER, "list the API versions, or [\"*\"] for all");
        if !all_there {
            return None;
        }
    }
    let earlier_form = at.key("apiGroup").present() || at.key("verbs").present();
    let rule = Rule {
        operations: operations(at, dialect),
        api_groups: groups(at),
        api_versions: versions(at, earlier_form),
        resources: resources(at, dialect),
        scope: Some(at.key("scope")).filter(Node::present).map_or(Some(Scope::Any), |scope| scope.choice(&SCOPES))?,
    };
    if dialect == Dialect::Gatepost && at.problems() == before {
        no_dead_entry(at, &rule);
    }
    (at.problems() == before).then_some(rule)
}

/// Problem for words that no request ever has. kube-apiserver stores such a rule, so in its own kinds it is only a
/// finding ([`hazards`](crate::hazards)); in ours it is surely a mistake.
fn no_dead_entry(at: &Node<'_>, rule: &Rule) {
    let combined = at.key("subresources").present();
    for dead in dead(rule).into_iter().filter(|dead| dead.certain) {
        let list = Some(at.key(dead.key)).filter(Node::present).unwrap_or_else(|| at.key("apiGroup"));
        let item = list.items().nth(dead.entry).filter(|_| !combined);
        match item {
            Some(item) => item.problem(dead.what, dead.why, dead.fix),
            None => list.problem(dead.what, dead.why, dead.fix),
        }
    }
}

fn operations(at: &Node<'_>, dialect: Dialect) -> Vec<Operation> {
    let (operations, verbs) = (at.key("operations"), at.key("verbs"));
    if operations.present() && verbs.present() {
        verbs.problem("stands beside operations", "which says the same", "keep one of the two");
    }
    let list = if operations.present() { operations } else { verbs };
    if !list.present() {
        return Operation::ALL.into();
    }
    if !list.is_list() || !not_empty(&list, "an operation or \"*\"") {
        return Vec::new();
    }
    let words = if dialect == Dialect::Gatepost { &OPERATIONS[..] } else { &OPERATIONS[..5] };
    let mut named = Vec::new();
    for meaning in list.items().filter_map(|item| item.choice(words)) {
        match meaning {
            Some(operation) if named.contains(&operation) => {}
            Some(operation) => named.push(operation),
            None if list.items().count() > 1 => star_alone(&list),
            None => named.extend(Operation::ALL),
        }
    }
    named
}

fn groups(at: &Node<'_>) -> Vec<Box<str>> {
    let (groups, group) = (at.key("apiGroups"), at.key("apiGroup"));
    match (groups.present(), group.present()) {
        (true, true) => {
            group.problem("stands beside apiGroups", "which says the same", "keep one of the two");
            Vec::new()
        }
        (false, true) => group.text().into_iter().map(Box::from).collect(),
        (true, false) => words(&groups, true),
        (false, false) => {
            groups.problem("is missing", NEVER, "list the API groups: \"\" is the core group, \"*\" is all");
            Vec::new()
        }
    }
}

fn versions(at: &Node<'_>, earlier_form: bool) -> Vec<Box<str>> {
    let versions = at.key("apiVersions");
    if !versions.present() && earlier_form {
        return vec!["*".into()];
    }
    if versions.required(NEVER, "list the API versions, or [\"*\"] for all") {
        words(&versions, false)
    } else {
        Vec::new()
    }
}

/// A list of words, or `*` alone.
fn words(list: &Node<'_>, empty_word: bool) -> Vec<Box<str>> {
    let Some(texts) = list.texts() else { return Vec::new() };
    not_empty(list, "an entry or \"*\"");
    if !empty_word {
        no_empty_text(list, &texts);
    }
    if texts.len() > 1 && texts.contains(&"*") {
        star_alone(list);
    }
    texts.into_iter().map(Box::from).collect()
}

fn not_empty(list: &Node<'_>, entry: &str) -> bool {
    let empty = list.items().next().is_none();
    if empty {
        list.problem("is empty", NEVER, format!("list {entry}, or remove the rule"));
    }
    !empty
}

fn no_empty_text(list: &Node<'_>, texts: &[&str]) {
    for (item, _) in list.items().zip(texts).filter(|(_, text)| text.is_empty()) {
        item.problem("is empty", NEVER, "write a name, or remove it");
    }
}

fn star_alone(list: &Node<'_>) {
    list.problem(
        "holds \"*\" beside other entries",
        "and \"*\" is everything, so the others mean nothing",
        "let it stand alone, or remove it",
    );
}

fn resources(at: &Node<'_>, dialect: Dialect) -> Vec<Box<str>> {
    let (resources, subresources) = (at.key("resources"), at.key("subresources"));
    if !resources.required(NEVER, "list the resources: pods, pods/status, *, pods/*, */scale or */*") {
        return Vec::new();
    }
    let Some(texts) = resources.texts() else { return Vec::new() };
    not_empty(&resources, "a resource or \"*\"");
    no_empty_text(&resources, &texts);
    for (item, text) in resources.items().zip(&texts) {
        let odd = text.bytes().any(|b| b.is_ascii_uppercase() || b.is_ascii_whitespace());
        if odd && dialect == Dialect::Gatepost {
            item.problem(
                format!("{} is not the name of a resource", quoted(text)),
                NEVER,
                "write the plural in lower case, as in the URL: pods, not Pod",
            );
        }
    }
    if subresources.present() {
        return combined(&resources, &texts, &subresources);
    }
    no_overlap(&resources, &texts);
    texts.into_iter().map(Box::from).collect()
}

/// Upstream's checks against entries that others contain. They depend on the order written, as upstream's do:
/// `[a/x, a/*]` passes, `[a/*, a/x]` does not, and only the last entry without a subresource counts beside `*`.
fn no_overlap(list: &Node<'_>, texts: &[&str]) {
    let (mut all_of, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let (mut star, mut main_resource) = (false, false);
    for (item, text) in list.items().zip(texts).filter(|(_, text)| !text.is_empty()) {
        star |= *text == "*";
        let Some((resource, sub)) = text.split_once('/') else {
            main_resource = *text != "*";
            continue;
        };
        if all_of.contains(resource) {
            item.problem(format!("{} is contained in {resource}/*", quoted(text)), "so it adds nothing", "remove it");
        }
        if everywhere.contains(sub) {
            item.problem(format!("{} is contained in */{sub}", quoted(text)), "so it adds nothing", "remove it");
        }
        if sub == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(sub);
        }
    }
    if texts.len() > 1 && texts.contains(&"*/*") {
        list.problem(
            "holds */* beside other entries",
            "and */* is everything, so the others mean nothing",
            "let it stand alone, or remove it",
        );
    }
    if star && main_resource {
        list.problem(
            "holds * beside another resource",
            "and * is every resource, so the other means nothing",
            "remove it or the other",
        );
    }
}

/// The earliest form: a list of resources and a list of subresources, each with each.
fn combined(resources: &Node<'_>, texts: &[&str], subresources: &Node<'_>) -> Vec<Box<str>> {
    for (item, _) in resources.items().zip(texts).filter(|(_, text)| text.contains('/')) {
        item.problem(
            "names a subresource although there is a list subresources",
            "so it would have two",
            "use one of the two forms",
        );
    }
    if texts.len() > 1 && texts.contains(&"*") {
        star_alone(resources);
    }
    let Some(subs) = subresources.texts() else { return Vec::new() };
    not_empty(subresources, "a subresource, \"\" for the resource itself, or \"*\"");
    if subs.len() > 1 && subs.contains(&"*") {
        star_alone(subresources);
    }
    let pair = |resource: &str, sub: &str| if sub.is_empty() { resource.into() } else { format!("{resource}/{sub}") };
    texts.iter().flat_map(|resource| subs.iter().map(move |sub| pair(resource, sub).into())).collect()
}
