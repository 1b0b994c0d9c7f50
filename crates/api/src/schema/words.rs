//! Texts that occur in several places, each with its syntax (`crates/config/src/check/names.rs`); limits on one object;
//! and helpers for rules in CEL, which the other modules contain: [`rules`] and `duration!`.
//!
//! A cluster estimates the maximum cost of the rules from the limits, and rejects a definition whose rules could cost
//! too much. A larger configuration is split into several objects.

use schemars::JsonSchema;
use serde_json::{Value, json};

/// A DNS-1123 subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name, with or without a DNS name as its prefix.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// A name that is not a pattern.
pub(super) const EXACT: &str = "^[^*]+$";
/// Namespace and name of a service account.
pub(super) const ACCOUNT: &str =
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A label's value, which may be empty.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
/// A duration with its unit, or several durations that are added up.
const TIME: &str = "^ *([0-9]+([.][0-9]+)? *(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h) *)+$";

/// A name of lower-case letters, digits, `-` and dots, at most 253 characters.
#[derive(Clone, Debug, JsonSchema)]
pub struct Name(#[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))] pub String);

/// A name of lower-case letters, digits and `-`, at most 63 characters.
#[derive(Clone, Debug, JsonSchema)]
pub struct ShortName(#[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))] pub String);

/// The key of a label.
#[derive(Clone, Debug, JsonSchema)]
pub struct LabelKey(#[schemars(length(min = 1, max = 317), regex(pattern = LABEL_KEY))] pub String);

/// The value of a label.
#[derive(Clone, Debug, JsonSchema)]
pub struct LabelValue(#[schemars(length(max = 63), regex(pattern = LABEL_VALUE))] pub String);

/// A duration with its unit, such as `250ms`.
#[derive(Clone, Debug, JsonSchema)]
pub struct Time(#[schemars(length(min = 2, max = 64), regex(pattern = TIME))] pub String);

/// A point in time in UTC, such as `2026-01-31T22:15:00Z`.
#[derive(Clone, Debug, JsonSchema)]
pub struct Moment(
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$"), extend("format" = "date-time"))]
    pub String,
);

/// One line of text that is not blank.
#[derive(Clone, Debug, JsonSchema)]
pub struct Line(
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\p{Cc}]*[^\p{Cc}\s][^\p{Cc}]*$"))] pub String,
);

/// Maximum number of hooks in one object.
pub(super) const MAX_HOOKS: u32 = 512;
/// Maximum number of resources with initializers in one object.
pub(super) const MAX_RESOURCES: u32 = 128;
/// Maximum number of initializers of one resource.
pub(super) const MAX_INITIALIZERS: u32 = 32;
/// Maximum number of bypasses in one object.
pub(super) const MAX_BYPASSES: u32 = 128;
/// Maximum number of conditions of one hook, as in upstream.
pub(super) const MAX_CONDITIONS: u32 = 64;
/// Maximum number of rules of one hook or bypass.
pub(super) const MAX_RULES: u32 = 32;
/// Maximum number of entries in one list of a rule.
pub(super) const MAX_RULE_ENTRIES: u32 = 64;
/// Maximum number of requirements of one selector.
pub(super) const MAX_REQUIREMENTS: u32 = 32;
/// Maximum number of names in one list of a bypass, hooks in a break-glass document, or values of one requirement.
pub(super) const MAX_NAMES: u32 = 256;

/// Returns `x-kubernetes-validations`: each rule with the cluster's message if it is violated.
pub(super) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

/// CEL expression for a duration that people wrote, in the syntax of CEL's `duration`.
macro_rules! duration {
    ($time:literal) => {
        concat!(
            "duration(",
            $time,
            ".replace(' ', '').replace('nanos', 'ns').replace('nsec', 'ns').replace('usec', 'us').replace('millis', 'ms')\
             .replace('msec', 'ms').replace('seconds', 's').replace('second', 's').replace('secs', 's').replace('sec', 's')\
             .replace('minutes', 'm').replace('minute', 'm').replace('mins', 'm').replace('min', 'm')\
             .replace('hours', 'h').replace('hour', 'h').replace('hrs', 'h').replace('hr', 'h'))"
        )
    };
}
pub(super) use duration;
