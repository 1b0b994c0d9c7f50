//! `resourceInitializers`, checked. They are acted on by a later version; a wrong one is wrong today.

use std::collections::HashSet;

use super::names;
use crate::{
    model::{FailurePolicy, Initializer, ResourceInitializers},
    snapshot::document::{node::Node, problem::quoted, value::Value},
};

pub(crate) const KEYS: [&str; 3] = ["apiGroup", "resource", "initializers"];
/// The keys of one initializer.
pub(crate) const ONE_KEYS: [&str; 2] = ["name", "failurePolicy"];

pub(crate) const POLICIES: [(&str, FailurePolicy); 2] =
    [("Ignore", FailurePolicy::Ignore), ("Fail", FailurePolicy::Fail)];

/// Checks one resource's initializers; what is wrong is reported.
pub(crate) fn check(at: &Node<'_>) -> Option<ResourceInitializers> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let (group, resource, list) = (at.key("apiGroup"), at.key("resource"), at.key("initializers"));
    let group_name = if group.present() { group.text() } else { Some("") };
    if let Some(name) = group_name.filter(|name| !name.is_empty() && !names::is_dns_subdomain(name)) {
        group.problem(
            format!("{} is not an API group", quoted(name)),
            "write one group, such as apps; \"\" is the core",
        );
    }
    let resource_name = if resource.required("name one resource, such as pods") { resource.text() } else { None };
    if let Some(name) = resource_name.filter(|name| !names::is_dns_label(name)) {
        resource.problem(
            format!("{} is not the name of one resource", quoted(name)),
            "write the plural in lower case, without a subresource or wildcard: pods",
        );
    }
    let mut initializers = Vec::new();
    if list.required("list the initializers, in the order in which they act") && list.is_list() {
        let mut seen = HashSet::new();
        for item in list.items() {
            let Some(initializer) = one(&item) else { continue };
            if !seen.insert(initializer.name.clone()) {
                item.problem(format!("{} is listed twice", quoted(&initializer.name)), "keep one of them");
            }
            initializers.push(initializer);
        }
    }
    (at.problems() == before).then_some(())?;
    Some(ResourceInitializers { api_group: group_name?.into(), resource: resource_name?.into(), initializers })
}

/// `{name, failurePolicy}`, or in the earliest form the name alone.
fn one(at: &Node<'_>) -> Option<Initializer> {
    if matches!(at.value, Value::Text(_)) {
        return Some(Initializer { name: name(at)?.into(), failure_policy: FailurePolicy::Ignore });
    }
    if !at.is_map_of(&ONE_KEYS) {
        return None;
    }
    let (place, policy) = (at.key("name"), at.key("failurePolicy"));
    let name = if place.required("every initializer has a name") { name(&place) } else { None };
    let failure_policy = if policy.present() { policy.choice(&POLICIES) } else { Some(FailurePolicy::Ignore) };
    Some(Initializer { name: name?.into(), failure_policy: failure_policy? })
}

fn name<'a>(at: &Node<'a>) -> Option<&'a str> {
    let text = at.text()?;
    if !names::is_dns_subdomain(text) {
        at.problem(format!("{} is not a name", quoted(text)), names::SUBDOMAIN);
        return None;
    }
    Some(text)
}
