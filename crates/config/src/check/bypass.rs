//! One entry of `bypass`, checked and compiled.

use super::{names, rules};
use crate::document::{
    Dialect,
    node::{Node, Value, given},
    problem::quoted,
};
use gatepost_api::{Bypass, BypassEffect, Operation, Rule, Scope, bypass::Who};

pub(crate) const KEYS: [&str; 9] =
    ["name", "reason", "effect", "hooks", "namespaces", "users", "groups", "serviceAccounts", "resources"];

pub(crate) const EFFECTS: [(&str, BypassEffect); 2] =
    [("Skip", BypassEffect::Skip), ("FailOpen", BypassEffect::FailOpen)];

/// The name is the last part of an annotation's key, which holds no more.
const LONGEST_NAME: usize = 63;
/// Name that our own special path has; see [`crate::Eligibility::OwnConfig`].
const OWN: &str = "own-configuration";
/// The longest reason, in bytes: it stands in a line of the audit log for every request let past.
pub(crate) const LONGEST_REASON: usize = 1024;

/// Checks one entry; what is wrong is reported.
pub(crate) fn check(at: &Node<'_>) -> Option<Bypass> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let name = name(&at.key("name"));
    let reason = reason(&at.key("reason"));
    let effect = given(at.key("effect")).map_or(Some(BypassEffect::Skip), |at| at.choice(&EFFECTS));
    let hooks = listed(&at.key("hooks"), "a hook", |_| true, "");
    let namespaces = listed(&at.key("namespaces"), "a namespace", names::is_dns_label, names::LABEL);
    let who = people(at);
    let resources = at.key("resources");
    let rules = if resources.is_written() { resources_of(&resources) } else { Vec::new() };
    let dimensions = ["namespaces", "users", "groups", "serviceAccounts", "resources"];
    if !dimensions.iter().any(|key| at.key(key).present()) {
        at.problem(
            "names nothing that it is for",
            "so it would let every request past",
            "name namespaces, users, groups, serviceAccounts or resources; to open everything for a while there is \
             `gatepost break-glass`",
        );
    }
    let narrowed = ["namespaces", "users", "groups", "serviceAccounts"].iter().any(|key| at.key(key).present());
    if !narrowed && rules.iter().any(is_everything) {
        resources.problem(
            "is every request",
            "and a bypass is in force until somebody removes it",
            "name what the bypass is for; to open everything for a while there is `gatepost break-glass`",
        );
    }
    if at.problems() > before {
        return None;
    }
    Some(Bypass {
        name: name?.into(),
        reason: reason?.into(),
        effect: effect?,
        hooks,
        namespaces,
        who,
        resources: rules,
    })
}

/// The users that `users`, `groups` and `serviceAccounts` name.
pub(crate) fn people(at: &Node<'_>) -> Who {
    let mut users = listed(&at.key("users"), "the name of one user", is_somebody, SOMEBODY);
    let groups = listed(&at.key("groups"), "a group of some users", is_somebody, SOMEBODY);
    let accounts = listed(&at.key("serviceAccounts"), "a service account", is_account, ACCOUNT);
    users.extend(accounts.iter().map(|account| username(account)));
    Who { users, groups }
}

fn name<'a>(at: &Node<'a>) -> Option<&'a str> {
    let text = if at.required(
        "so the audit log could not say which rule exempted a request",
        "every bypass has a name, by which the audit log and metrics speak of it",
    ) {
        at.text()?
    } else {
        return None;
    };
    if !names::is_dns_subdomain(text) || text.len() > LONGEST_NAME {
        at.problem(
            format!("{} is not a name of at most {LONGEST_NAME} characters", quoted(text)),
            "and metrics and the audit log speak of it by its name",
            names::SUBDOMAIN,
        );
    }
    if text == OWN {
        at.problem(
            format!("{OWN} is what requests about Gatepost's own configuration are counted as"),
            "so metrics could not tell them apart",
            "rename it",
        );
    }
    Some(text)
}

/// Reason of a bypass, for readers of the audit log.
pub(crate) fn reason<'a>(at: &Node<'a>) -> Option<&'a str> {
    const FIX: &str = "say in one line why requests skip hooks; it is in the audit log";
    let text = if at.required("and whoever reads the audit log has to know", FIX) { at.text()? } else { return None };
    if text.trim().is_empty() {
        at.problem("is empty", "and whoever reads the audit log has to know", FIX);
    }
    if text.chars().any(char::is_control) {
        at.problem("holds a line break or another control character", "and stands on one line of the audit log", FIX);
    }
    if text.len() > LONGEST_REASON {
        at.problem(format!("is longer than {LONGEST_REASON} bytes"), "and stands in each line of the audit log", FIX);
    }
    Some(text)
}

/// A list that is left out, or holds at least one entry: an empty one would not be "nobody", but "anybody".
pub(crate) fn listed(at: &Node<'_>, entry: &str, good: fn(&str) -> bool, fix: &str) -> Vec<Box<str>> {
    if !at.is_written() {
        return Vec::new();
    }
    let texts = if at.present() { at.texts() } else { Some(Vec::new()) };
    let Some(texts) = texts else { return Vec::new() };
    if texts.is_empty() {
        at.problem(
            "is empty",
            "so it would apply to everything instead of nothing",
            format!("list {entry}, or remove the key"),
        );
    }
    for (item, text) in at.items().zip(&texts) {
        if text.is_empty() {
            item.problem("is empty", "so it names nobody", "write a name, or remove it");
        } else if !good(text) {
            item.problem(format!("{} is not {entry}", quoted(text)), "so it would never apply", fix);
        }
    }
    texts.into_iter().map(Box::from).collect()
}

fn resources_of(at: &Node<'_>) -> Vec<Rule> {
    let rules = if at.present() { rules::list(at, Dialect::Gatepost) } else { Vec::new() };
    if !at.present() || matches!(at.value, Value::List(items) if items.is_empty()) {
        at.problem("is empty", "so it would apply to everything instead of nothing", "list a rule, or remove the key");
    }
    rules
}

fn is_everything(rule: &Rule) -> bool {
    let all = |list: &[Box<str>], words: &[&str]| list.iter().any(|entry| words.contains(&&**entry));
    rule.operations.len() == Operation::ALL.len()
        && all(&rule.api_groups, &["*"])
        && all(&rule.api_versions, &["*"])
        && all(&rule.resources, &["*", "*/*"])
        && rule.scope == Scope::Any
}

const SOMEBODY: &str = "write an exact name: there are no patterns, and a name that fits everybody would open \
                        everything";

/// A star is no part of a name that somebody has; and these are what every caller is, or may be.
/// Source: `k8s.io/apiserver/pkg/authentication/user`.
fn is_somebody(text: &str) -> bool {
    const ANYBODY: [&str; 3] = ["system:authenticated", "system:unauthenticated", "system:anonymous"];
    !text.contains('*') && !ANYBODY.contains(&text)
}

const ACCOUNT: &str = "write namespace/name, such as kube-system/deployment-controller";

fn is_account(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| names::is_dns_label(namespace) && names::is_dns_subdomain(name))
}

/// Source: `k8s.io/apiserver/pkg/authentication/serviceaccount` MakeUsername.
fn username(account: &str) -> Box<str> {
    format!("system:serviceaccount:{}", account.replacen('/', ":", 1)).into()
}

#[cfg(test)]
mod tests;
