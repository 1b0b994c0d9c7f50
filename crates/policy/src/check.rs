//! Checks that kube-apiserver makes when a policy is created. Source:
//! `pkg/apis/admissionregistration/validation/validation.go` of kubernetes.

use std::collections::HashSet;

use gatepost_api::{
    HookType, Operation,
    names::{is_dns_1035_label, is_dns_subdomain},
};

use crate::matching::{MatchResources, ParamKind};

/// A fault of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path below `spec`, such as `validations[2].expression`.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// Consequence.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// Consequence of a fault that has no other.
pub(super) const REFUSED: &str = "which no apiserver accepts";

/// Consequence of a missing or wrong expression.
pub(super) const UNDECIDED: &str = "so the policy could not decide";

/// The faults of one document.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, path: impl Into<String>, what: String, why: &'static str, fix: &'static str) {
        self.0.push(Fault { path: path.into(), what, why, fix });
    }

    /// Returns the result of the check.
    pub(super) fn end<T>(self, checked: T) -> Result<T, Vec<Fault>> {
        if self.0.is_empty() { Ok(checked) } else { Err(self.0) }
    }

    /// Adds a fault if the text is empty or has only white space. Returns true if it has content.
    pub(super) fn requires(&mut self, path: &str, text: &str, fix: &'static str) -> bool {
        let has_content = !text.trim().is_empty();
        if !has_content {
            self.add(path, "is empty".to_owned(), UNDECIDED, fix);
        }
        has_content
    }

    /// Adds a fault for a list with too many items.
    pub(super) fn bounds(&mut self, path: &str, many: usize, most: usize, fix: &'static str) {
        if many > most {
            self.add(path, format!("has {many} items; the limit is {most}"), REFUSED, fix);
        }
    }

    pub(super) fn check_resources(&mut self, path: &str, resources: &MatchResources, hook_type: HookType) {
        for (list, rules) in [("resourceRules", &resources.rules), ("excludeResourceRules", &resources.excluded)] {
            for (at, named) in rules.iter().enumerate() {
                let mut seen = HashSet::new();
                for (of, name) in named.resource_names.iter().enumerate() {
                    let path = || format!("{path}.{list}[{at}].resourceNames[{of}]");
                    if !is_path_segment(name) {
                        let fix = "write the name of an object, without / and %";
                        self.add(path(), format!("{name:?} is not a name"), REFUSED, fix);
                    }
                    if !seen.insert(name) {
                        self.add(path(), format!("{name:?} is listed twice"), REFUSED, "remove one");
                    }
                }
                // All four are also written as `*`, which upstream accepts.
                let operations = &named.rule.operations;
                let is_any = Operation::ALL.iter().all(|operation| operations.contains(operation));
                let deletes = operations.contains(&Operation::Delete) && !is_any;
                if hook_type == HookType::Mutating && list == "resourceRules" && deletes {
                    let (path, what) = (format!("{path}.{list}[{at}].operations"), "names DELETE".to_owned());
                    let why = "which has no object to mutate, so no apiserver accepts it";
                    self.add(path, what, why, "write CREATE, UPDATE or CONNECT");
                }
            }
        }
    }

    pub(super) fn check_param_kind(&mut self, ParamKind { api_version, kind }: &ParamKind) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_group = api_version.split_once('/').is_none() || group.is_empty() || is_dns_subdomain(group);
        if !is_group || !is_dns_1035_label(version) {
            let fix = "write a group and a version, such as example.com/v1, or v1";
            self.add("paramKind.apiVersion", format!("{api_version:?} is not a version"), REFUSED, fix);
        }
        if !is_dns_1035_label(&kind.to_ascii_lowercase()) {
            self.add("paramKind.kind", format!("{kind:?} is not a kind"), REFUSED, "write a kind, such as ConfigMap");
        }
    }
}

/// Returns true if this can be a part of a path. Source: `k8s.io/apimachinery/pkg/api/validate/content/path.go`.
pub(super) fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}
