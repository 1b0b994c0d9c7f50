//! Checks and compiles one entry of `bypass`.

use super::{names, rules};
use crate::document::{
    Dialect,
    node::{Node, Value, given},
    problem::quoted,
};
use gatepost_api::{Bypass, BypassEffect, Operation, Rule, Scope, bypass::UserFilter};

pub(crate) const KEYS: [&str; 9] =
    ["name", "reason", "effect", "hooks", "namespaces", "users", "groups", "serviceAccounts", "resources"];

pub(crate) const EFFECTS: [(&str, BypassEffect); 2] =
    [("Skip", BypassEffect::Skip), ("FailOpen", BypassEffect::FailOpen)];

/// Maximum length of a bypass's name, which is the name part of an annotation's key.
const MAX_NAME_BYTES: usize = 63;
/// Reserved name: metrics count requests that are [`crate::Eligibility::OwnConfig`] under it.
const OWN: &str = "own-configuration";
/// Maximum length of a reason, in bytes: the audit log has it in one line per exempt request.
pub(crate) const MAX_REASON_BYTES: usize = 1024;

/// Checks one entry and reports its problems.
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
    let who = user_filter(at);
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

/// Reads `users`, `groups` and `serviceAccounts`.
pub(crate) fn user_filter(at: &Node<'_>) -> UserFilter {
    let mut users = listed(&at.key("users"), "the name of one user", is_one_user_or_group, SOMEBODY);
    let groups = listed(&at.key("groups"), "a group of some users", is_one_user_or_group, SOMEBODY);
    let accounts = listed(&at.key("serviceAccounts"), "a service account", is_account, ACCOUNT);
    users.extend(accounts.iter().map(|account| username(account)));
    UserFilter { users, groups }
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
    if !names::is_dns_subdomain(text) || text.len() > MAX_NAME_BYTES {
        at.problem(
            format!("{} is not a name of at most {MAX_NAME_BYTES} characters", quoted(text)),
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

/// Reads the reason of a bypass or break-glass, for readers of the audit log.
pub(crate) fn reason<'a>(at: &Node<'a>) -> Option<&'a str> {
    const FIX: &str = "say in one line why requests skip hooks; it is in the audit log";
    let text = if at.required("and whoever reads the audit log has to know", FIX) { at.text()? } else { return None };
    if text.trim().is_empty() {
        at.problem("is empty", "and whoever reads the audit log has to know", FIX);
    }
    if text.chars().any(char::is_control) {
        at.problem("holds a line break or another control character", "and stands on one line of the audit log", FIX);
    }
    if text.len() > MAX_REASON_BYTES {
        at.problem(format!("is longer than {MAX_REASON_BYTES} bytes"), "and stands in each line of the audit log", FIX);
    }
    Some(text)
}

/// Reads a list that is absent or has an entry: an empty list would match everything instead of nothing.
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

const SOMEBODY: &str = "write an exact name: there are no patterns, and a name that matches every user would bypass \
                        hooks for all of them";

/// Returns true if the text is the exact name of a user or group: without `*`, and not a name that any caller has.
/// Source: `k8s.io/apiserver/pkg/authentication/user`.
fn is_one_user_or_group(text: &str) -> bool {
    const ANYBODY: [&str; 3] = ["system:authenticated", "system:unauthenticated", "system:anonymous"];
    !text.contains('*') && !ANYBODY.contains(&text)
}

const ACCOUNT: &str = "write namespace/name, such as kube-system/deployment-controller";

fn is_account(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| names::is_dns_label(namespace) && names::is_dns_subdomain(name))
}

/// Returns the user of a service account. Source: `k8s.io/apiserver/pkg/authentication/serviceaccount` MakeUsername.
fn username(account: &str) -> Box<str> {
    format!("system:serviceaccount:{}", account.replacen('/', ":", 1)).into()
}

#[cfg(test)]
mod tests;
