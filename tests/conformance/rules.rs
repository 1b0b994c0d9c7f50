//! `rules.json`: does a rule see a request?

use gatepost_api::RuleTarget;
use gatepost_config::{MatchKind, MatchSet};
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    documents::{configuration, snapshot},
    reviews::{self, text},
    run::{Nothing, Outcome, Understood, decoded, equal, only_keys},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    predicate: Predicate,
    /// Attributes of the rule that the upstream test gives: it checks one predicate alone.
    rule_fragment: Value,
    /// The same, with wildcards for the rest.
    rule_full: Value,
    attributes: Attributes,
    expect_match: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Predicate {
    Group,
    Version,
    Operation,
    Resource,
    Scope,
}

impl Predicate {
    /// Key of the attribute in a rule.
    const fn key(&self) -> &'static str {
        match self {
            Self::Group => "apiGroups",
            Self::Version => "apiVersions",
            Self::Operation => "operations",
            Self::Resource => "resources",
            Self::Scope => "scope",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attributes {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
    namespace: String,
    operation: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    let asked = case.predicate.key();
    only_keys("a rule", &case.rule_fragment, &["operations", "apiGroups", "apiVersions", "resources", "scope"])?;
    if case.rule_fragment.get(asked) != case.rule_full.get(asked) {
        return Err("not understood: the two rules differ in what the predicate asks".into());
    }
    Ok(Box::new(|| judge(case)))
}

fn judge(case: Case) -> Outcome {
    let snapshot = snapshot(&[configuration(json!([{
        "name": "hook",
        "clientConfig": {"url": "grpc://127.0.0.1:1"},
        "rules": [case.rule_full],
    }]))])?;
    let Attributes { group, version, resource, subresource, name, namespace, operation } = case.attributes;
    let review = reviews::review(AdmissionRequest {
        resource: reviews::resource(&[group, version, resource]),
        sub_resource: text(&subresource),
        name: text(&name),
        namespace: text(&namespace),
        operation: text(&operation),
        ..Default::default()
    })?;
    equal("the rule", snapshot.hooks[0].rules[0].matches(&RuleTarget::as_made(&review)), case.expect_match)?;
    let mut matched = MatchSet::new();
    snapshot.matching(&review, None, &mut matched);
    equal("the index", matched.iter().any(|matched| matched.how == MatchKind::AsMade), case.expect_match)
}
