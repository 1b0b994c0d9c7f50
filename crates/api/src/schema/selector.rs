//! A label selector, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{
    limits,
    validation::rules,
    words::{LabelKey, LabelValue},
};

const REQUIREMENT: [(&str, &str); 2] = [
    (
        "!self.operator.endsWith('In') || (has(self.values) && self.values.size() > 0)",
        "values is empty: In and NotIn need at least one value",
    ),
    (
        "self.operator.endsWith('In') || !has(self.values) || self.values.size() == 0",
        "values is not empty: Exists and DoesNotExist take no values",
    ),
];

/// All requirements must hold. An empty selector matches everything.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Each of these labels has this value.
    #[schemars(extend("maxProperties" = limits::REQUIREMENTS))]
    pub match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Each of these requirements holds.
    #[schemars(length(max = limits::REQUIREMENTS))]
    pub match_expressions: Option<Vec<Requirement>>,
}

/// Requirement on one label.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&REQUIREMENT)))]
pub struct Requirement {
    /// The label.
    pub key: LabelKey,
    /// Operator of the requirement.
    pub operator: Operator,
    /// For `In` and `NotIn`, which need some; the others take none.
    #[schemars(length(max = limits::NAMES))]
    pub values: Option<Vec<LabelValue>>,
}

/// Operator of a requirement on a label.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}
