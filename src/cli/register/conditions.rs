//! Conditions: requests that an entry of a registration leaves to those before it, as CEL that an apiserver evaluates.
//!
//! `request.requestResource` is the request as its client made it, whatever the rules have made of it
//! (`docs/reference/webhook-semantics.md` §7). Only what is always there is looked at, or asked for first: an
//! expression that fails rejects the write.

use std::collections::BTreeSet;

use super::{
    selectors::{is_within, names_left_out},
    union::Atom,
};
use crate::model::{Operation, Scope, Selector};

/// Requests that another entry sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentAlready {
    /// `*` is any.
    group: Box<str>,
    resource: Box<str>,
    /// Subresource; "" is none, `*` any.
    sub_resource: Box<str>,
    /// As the client made it; none for any.
    versions: Option<BTreeSet<Box<str>>>,
    operations: BTreeSet<&'static str>,
    scope: &'static str,
    /// Not in these namespaces.
    left_out: Vec<Box<str>>,
}

impl SentAlready {
    /// Requests that both atoms match, and that an entry with the first sends; `None` where there are none, or where an
    /// expression cannot match them.
    ///
    /// Nothing is described that the first entry would not send in a version that every hook of the second takes:
    /// of atoms that differ in their versions, only what is made in one that both name.
    pub(super) fn of(first: &Atom, second: &Atom, left_out: &[&str]) -> Option<Self> {
        let versions = match first.agrees_on_versions(second) {
            true => None,
            false => Some(first.shared_versions(second).into_iter().map(Box::from).collect::<BTreeSet<_>>()),
        };
        let plain = first.words().chain(second.words()).chain(left_out.iter().copied()).all(plain);
        if !plain || versions.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let narrower = |one: &str, other: &str| Box::<str>::from(if one == "*" { other } else { one });
        let ((one, one_sub), (other, other_sub)) = (first.resource(), second.resource());
        Some(Self {
            group: narrower(&first.group, &second.group),
            resource: narrower(one, other),
            sub_resource: narrower(one_sub, other_sub),
            versions,
            operations: first.operations.intersection(&second.operations).copied().collect(),
            scope: if first.scope == Scope::Any.as_str() { second.scope } else { first.scope },
            left_out: left_out.iter().copied().map(Box::from).collect(),
        })
    }

    /// True of such a request.
    pub(super) fn expression(&self) -> String {
        const RESOURCE: &str = "request.requestResource.resource";
        let mut all: Vec<String> = Vec::new();
        for (field, word) in [("group", &self.group), ("resource", &self.resource)] {
            if **word != *"*" {
                all.push(format!("request.requestResource.{field} == '{word}'"));
            }
        }
        if let Some(versions) = &self.versions {
            all.push(one_of("request.requestResource.version", versions.iter().map(AsRef::as_ref)));
        }
        match &*self.sub_resource {
            "*" => {}
            "" => all.push("(!has(request.subResource) || request.subResource == '')".into()),
            sub => all.push(format!("has(request.subResource) && request.subResource == '{sub}'")),
        }
        if self.operations.len() < Operation::ALL.len() {
            all.push(one_of("request.operation", self.operations.iter().copied()));
        }
        // Namespaces count as being in none, and a resource of that name in another group is asked about twice.
        if self.scope == Scope::Namespaced.as_str() {
            all.push(format!("has(request.namespace) && request.namespace != '' && {RESOURCE} != 'namespaces'"));
        } else if self.scope == Scope::Cluster.as_str() {
            all.push("(!has(request.namespace) || request.namespace == '')".into());
        }
        if !self.left_out.is_empty() {
            // Of a namespace itself, labels are looked at that are not to be seen here.
            let names: Vec<String> = self.left_out.iter().map(|name| format!("'{name}'")).collect();
            all.push(format!("{RESOURCE} != 'namespaces'"));
            all.push(format!("(!has(request.namespace) || !(request.namespace in [{}]))", names.join(", ")));
        }
        // Both are about everything.
        if all.is_empty() { "true".into() } else { all.join(" && ") }
    }

    /// As an apiserver evaluates the expression.
    #[cfg(test)]
    pub(super) fn holds(&self, made: &crate::model::RuleTarget<'_>) -> bool {
        let is = |word: &str, value: &str| word == "*" || word == value;
        let about_namespaces = made.resource.resource == "namespaces";
        let scope = match self.scope {
            "Namespaced" => !made.namespace.is_empty() && !about_namespaces,
            "Cluster" => made.namespace.is_empty(),
            _ => true,
        };
        is(&self.group, &made.resource.group)
            && is(&self.resource, &made.resource.resource)
            && is(&self.sub_resource, made.sub_resource)
            && self.versions.as_ref().is_none_or(|all| all.iter().any(|version| **version == *made.resource.version))
            && self.operations.contains(made.operation.as_str())
            && scope
            && (self.left_out.is_empty()
                || !about_namespaces && !self.left_out.iter().any(|name| **name == *made.namespace))
    }
}

/// Namespaces whose requests an entry with the first selectors leaves out, and one with the second sees; `None` where
/// it leaves out more than names of namespaces can describe.
pub(super) fn left_out_by<'a>(
    (namespaces, objects): (&'a Selector, &Selector),
    (second_namespaces, second_objects): (&Selector, &Selector),
) -> Option<Vec<&'a str>> {
    // An object may meet one selector by what it was, and another by what it is: only the same is the same.
    if !objects.is_empty() && objects != second_objects {
        return None;
    }
    if is_within(second_namespaces, namespaces) { Some(Vec::new()) } else { names_left_out(namespaces) }
}

/// Fit to stand between quotes.
fn plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-*/".contains(&byte))
}

fn one_of<'a>(field: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("'{word}'")).collect();
    match &words[..] {
        [only] => format!("{field} == {only}"),
        many => format!("{field} in [{}]", many.join(", ")),
    }
}
