//! Requests that a finding asks about: would this hook be asked?

use bytestring::ByteString;

use crate::model::{Gvr, Operation, RuleTarget};

/// A request, as far as rules look at it, in the version that apiservers of today store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) resource: &'static str,
    pub(super) sub_resource: &'static str,
}

/// Of a resource itself.
pub(super) const fn of(
    operation: Operation,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
) -> Request {
    Request { operation, group, version, resource, sub_resource: "" }
}

impl Request {
    /// Of its subresource.
    pub(super) const fn sub(self, sub_resource: &'static str) -> Self {
        Self { sub_resource, ..self }
    }

    /// The same with another operation.
    pub(super) const fn with(self, operation: Operation) -> Self {
        Self { operation, ..self }
    }

    pub(super) fn gvr(&self) -> Gvr {
        let word = ByteString::from_static;
        Gvr { group: word(self.group), version: word(self.version), resource: word(self.resource) }
    }

    /// As rules see it; `resource` is its own [`Request::gvr`].
    pub(super) fn target<'a>(&self, resource: &'a Gvr, namespace: &'a str) -> RuleTarget<'a> {
        RuleTarget { operation: self.operation, resource, sub_resource: self.sub_resource, namespace }
    }

    /// As rules name it: `pods`, `pods/ephemeralcontainers`.
    pub(super) fn entry(&self) -> String {
        match self.sub_resource {
            "" => self.resource.to_owned(),
            sub_resource => format!("{}/{sub_resource}", self.resource),
        }
    }

    /// As one speaks of it: `pods`, `deployments.apps`, `pods/ephemeralcontainers`.
    pub(super) fn noun(&self) -> String {
        let Self { group, resource, sub_resource, .. } = self;
        let (dot, slash) = (if group.is_empty() { "" } else { "." }, if sub_resource.is_empty() { "" } else { "/" });
        format!("{resource}{dot}{group}{slash}{sub_resource}")
    }
}

/// A new pod.
pub(super) const POD: Request = of(Operation::Create, "", "v1", "pods");

/// Requests that make pods, and their templates.
pub(super) const WORKLOADS: [Request; 4] = [
    of(Operation::Update, "apps", "v1", "deployments"),
    of(Operation::Update, "apps", "v1", "daemonsets"),
    of(Operation::Update, "apps", "v1", "statefulsets"),
    of(Operation::Create, "apps", "v1", "replicasets"),
];

/// `a, b and c`; of many, the first ones and how many more there are.
pub(super) fn listed(words: impl IntoIterator<Item = String>) -> String {
    const MOST: usize = 20;
    let mut words: Vec<String> = words.into_iter().collect();
    words.dedup();
    if words.len() > MOST {
        let others = words.len() - MOST;
        words.truncate(MOST);
        words.push(format!("{others} others"));
    }
    match words.pop() {
        None => String::new(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_not_all_named() {
        let message = |many: usize| listed((0..many).map(|number| format!("n{number}")));
        assert_eq!([message(0), message(1), message(3)], ["", "n0", "n0, n1 and n2"]);
        assert!(message(20).ends_with(", n18 and n19"), "{}", message(20));
        assert!(message(1000).ends_with(", n19 and 980 others"), "{}", message(1000));
    }
}
