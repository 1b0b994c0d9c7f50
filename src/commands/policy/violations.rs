//! Violations that a case of `gator verify` expects. Source: `pkg/gator/verify/assertion.go` of
//! `github.com/open-policy-agent/gatekeeper/v3`.

use regex::Regex;
use serde_json::Value;

/// Violations that a case expects.
#[derive(Debug)]
pub(super) struct ExpectedViolations {
    pub(super) assertions: Vec<Assertion>,
    /// Reviews that are decided, each with what its messages begin with.
    pub(super) reviews: Vec<(String, Value)>,
}

/// How many violations have a message.
#[derive(Debug)]
pub(super) struct Assertion {
    /// Their number; `None` for at least one.
    pub(super) count: Option<u64>,
    /// What a message must match; `None` for any.
    pub(super) message: Option<Regex>,
}

impl ExpectedViolations {
    /// Returns what differs from these messages of violations.
    pub(super) fn differences(&self, messages: &[String]) -> Vec<String> {
        let difference = |Assertion { count, message }: &Assertion| {
            let fits = |text: &&String| message.as_ref().is_none_or(|message| message.is_match(text));
            let got = messages.iter().filter(fits).count() as u64;
            if count.map_or(got > 0, |count| got == count) {
                return None;
            }
            let wanted = count.map_or_else(|| "at least one".to_owned(), |count| count.to_string());
            let of = message.as_ref().map_or_else(String::new, |message| format!(" of {:?}", message.as_str()));
            Some(format!("violations{of}: expected {wanted}, got {got}; all messages: {messages:?}"))
        };
        self.assertions.iter().filter_map(difference).collect()
    }
}
