//! Words: texts that occur in several places, each with its syntax (`crates/config/src/check/names.rs`); limits on one
//! object; rules in CEL for what a shape cannot say.
//!
//! A cluster reckons what its rules cost at worst from the limits, and takes no definition whose rules could cost too
//! much; a larger configuration is spread over several objects.

use schemars::JsonSchema;
use serde_json::{Value, json};

/// A DNS-1123 subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name, with or without a DNS name before it.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// A name and no pattern.
pub(super) const EXACT: &str = "^[^*]+$";
/// Namespace and name.
pub(super) const ACCOUNT: &str =
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A label's value, which may be empty.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
/// A time with its unit, or several that are added up.
const TIME: &str = "^ *([0-9]+([.][0-9]+)? *(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h) *)+$";

/// A name of lower-case letters, digits, `-` and dots, at most 253 long.
#[derive(Clone, Debug, JsonSchema)]
pub struct Name(#[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))] pub String);

/// A name of lower-case letters, digits and `-`, at most 63 long.
#[derive(Clone, Debug, JsonSchema)]
pub struct ShortName(#[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))] pub String);

/// The key of a label.
#[derive(Clone, Debug, JsonSchema)]
pub struct LabelKey(#[schemars(length(min = 1, max = 317), regex(pattern = LABEL_KEY))] pub String);

/// The value of a label.
#[derive(Clone, Debug, JsonSchema)]
pub struct LabelValue(#[schemars(length(max = 63), regex(pattern = LABEL_VALUE))] pub String);

/// A time with its unit, such as `250ms`.
#[derive(Clone, Debug, JsonSchema)]
pub struct Time(#[schemars(length(min = 2, max = 64), regex(pattern = TIME))] pub String);

/// A point in time in UTC, such as `2026-01-31T22:15:00Z`.
#[derive(Clone, Debug, JsonSchema)]
pub struct Moment(
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$"), extend("format" = "date-time"))]
    pub String,
);

/// A text of one line, which is not blank.
#[derive(Clone, Debug, JsonSchema)]
pub struct Line(
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\p{Cc}]*[^\p{Cc}\s][^\p{Cc}]*$"))] pub String,
);

/// Hooks in one object.
pub(super) const ENTRIES: u32 = 512;
/// Resources with initializers in one object.
pub(super) const RESOURCES: u32 = 128;
/// Initializers of one resource.
pub(super) const INITIALIZERS: u32 = 32;
/// Bypasses in one object.
pub(super) const BYPASSES: u32 = 128;
/// Conditions of one hook. As upstream.
pub(super) const CONDITIONS: u32 = 64;
/// Rules of one hook or bypass.
pub(super) const RULES: u32 = 32;
/// Entries of one list in a rule.
pub(super) const WORDS: u32 = 64;
/// Requirements of one selector.
pub(super) const REQUIREMENTS: u32 = 32;
/// Names in one list of a bypass, hooks that a break glass opens, values of one requirement.
pub(super) const NAMES: u32 = 256;

/// `x-kubernetes-validations`: each rule and what a cluster answers where it does not hold.
pub(super) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

/// A time that humans write, as CEL's `duration` reads it.
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
