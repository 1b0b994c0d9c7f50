//! Head: headers of a gRPC call.
//!
//! The deadline is stamped here, once. The caller's `grpc-timeout`, at most [`Limits::timeout`](crate::front::Limits),
//! is the budget; without one the limit is. A margin of a twentieth of the budget, at most 20 ms, is kept back so that
//! the answer "no verdict in time" still reaches the caller before the caller itself gives up: 1 s leaves 980 ms, 100
//! ms leaves 95 ms.

use std::time::{Duration, Instant};

use base64::{Engine, engine::general_purpose::STANDARD_PAD_INDIFFERENT};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use crate::{
    front::{hops::hops, refusal::Refusal},
    model::{Deadline, Hops, Labels},
    wire::{names, namespace},
};

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const NAMESPACE_LABELS: HeaderName = HeaderName::from_static(names::NAMESPACE_LABELS);
/// Says that the caller stores objects before they are initialized.
const UNFINISHED: HeaderName = HeaderName::from_static("gatepost-unfinished");
/// Identifier of the client's request in the caller's own audit log, as a kube-apiserver gives it to its clients.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// As many bytes of an audit id as a kube-apiserver keeps.
const LONGEST_AUDIT_ID: usize = 64;
const MARGIN: Duration = Duration::from_millis(20);

/// Headers of an admission call.
#[derive(Debug)]
pub(crate) struct GrpcHead {
    /// Time at which they came.
    pub(crate) arrived: Instant,
    /// Latest time for the verdict, the margin already taken off.
    pub(crate) deadline: Deadline,
    /// Labels of the namespace, where the caller sent them.
    pub(crate) namespace_labels: Option<SentLabels>,
    /// The caller stores objects before they are initialized.
    pub(crate) stores_unfinished: bool,
    /// The Gateposts that the review has passed through.
    pub(crate) hops: Hops,
    /// Identifier of the request in the caller's audit log, where it sent a usable one.
    pub(crate) audit_id: Option<Box<str>>,
}

/// Namespace labels the caller sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SentLabels {
    pub(crate) labels: Labels,
    /// As they came (base64).
    pub(crate) text: Bytes,
}

impl GrpcHead {
    /// Reads the headers of a call that arrived at `now` and may take `longest`.
    pub(crate) fn read(headers: &HeaderMap, now: Instant, longest: Duration) -> Result<Self, Refusal> {
        if headers.get(ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Refusal::Compressed);
        }
        let budget = match headers.get(TIMEOUT) {
            Some(value) => timeout(value.as_bytes()).ok_or(Refusal::Timeout)?.min(longest),
            None => longest,
        };
        if budget.is_zero() {
            return Err(Refusal::DeadlineZero);
        }
        let deadline = Deadline::after(now, budget - (budget / 20).min(MARGIN));
        let (namespace_labels, hops) = (namespace_labels(headers)?, hops(headers)?);
        let (stores_unfinished, audit_id) = (stores_unfinished(headers)?, audit_id(headers));
        Ok(Self { arrived: now, deadline, namespace_labels, stores_unfinished, hops, audit_id })
    }
}

/// Timeout of a call of health or reflection, where its caller gives a readable one.
pub(crate) fn aux_timeout(headers: &HeaderMap) -> Option<Duration> {
    timeout(headers.get(TIMEOUT)?.as_bytes())
}

/// `1*8DIGIT ("H" / "M" / "S" / "m" / "u" / "n")`.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(n * 3600),
        b'M' => Duration::from_secs(n * 60),
        b'S' => Duration::from_secs(n),
        b'm' => Duration::from_millis(n),
        b'u' => Duration::from_micros(n),
        b'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

/// `stored`, or nothing: a word that is not understood must not be taken for either.
fn stores_unfinished(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut values = headers.get_all(UNFINISHED).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(false),
        (Some(only), None) if only == "stored" => Ok(true),
        _ => Err(Refusal::Unfinished),
    }
}

/// The only one, of letters, digits and `-_.:`. Any other is left out rather than refused: it decides nothing, and is
/// only written down.
fn audit_id(headers: &HeaderMap) -> Option<Box<str>> {
    let mut values = headers.get_all(AUDIT_ID).iter();
    let (Some(only), None) = (values.next(), values.next()) else { return None };
    let id = only.to_str().ok().filter(|id| (1..=LONGEST_AUDIT_ID).contains(&id.len()))?;
    id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)).then(|| id.into())
}

fn namespace_labels(headers: &HeaderMap) -> Result<Option<SentLabels>, Refusal> {
    let mut values = headers.get_all(NAMESPACE_LABELS).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => {
            let bytes = STANDARD_PAD_INDIFFERENT.decode(only.as_bytes()).map_err(|_| Refusal::NamespaceLabels)?;
            let labels = namespace::labels(&bytes).ok_or(Refusal::NamespaceLabels)?;
            Ok(Some(SentLabels { labels, text: Bytes::copy_from_slice(only.as_bytes()) }))
        }
        (Some(_), Some(_)) => Err(Refusal::NamespaceLabels),
    }
}

#[cfg(test)]
#[path = "head/tests.rs"]
mod tests;
