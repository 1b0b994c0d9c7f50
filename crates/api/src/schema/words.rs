//! Words: the texts that occur in several places, each with its syntax (`snapshot/check/names.rs`).

use schemars::JsonSchema;

/// A DNS-1123 subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name, with or without a DNS name before it.
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
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
