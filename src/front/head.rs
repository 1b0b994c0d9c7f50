//! Head: headers of a review, over gRPC or plain HTTP.
//!
//! The deadline of the review is computed here. It is earlier than the caller's own deadline by a margin, so that the
//! answer "no verdict in time" still reaches the caller. [`FrontLimits::timeout`](super::FrontLimits) bounds it.
//!
//! - Over gRPC the margin is a twentieth of the bounded timeout, at most 20 ms: 1 s leaves 980 ms.
//! - An apiserver sends its remaining time as `?timeout=`, rounded up to whole seconds
//!   (`docs/reference/webhook-semantics.md` §6). So the margin is 1 s, at most a quarter: 10 s leaves 9 s. The bound
//!   applies after the margin. Without `?timeout=` there is no margin.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD_PAD_INDIFFERENT};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts};

use super::refusal::Refusal;
use crate::review::{ListedVersions, OtherVersions};
use gatepost_api::{Deadline, ForwardedContext, Gvr, Hops, Labels, TraceContext};
use gatepost_wire::{metadata, names};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const HOPS: HeaderName = HeaderName::from_static(Hops::HEADER);
const NAMESPACE_LABELS: HeaderName = HeaderName::from_static(names::NAMESPACE_LABELS);
/// Set if the caller stores objects before they are initialized.
const UNFINISHED: HeaderName = HeaderName::from_static("gatepost-unfinished");
/// Resource of the request in each version in which the caller can send it, as `GROUP/VERSION/RESOURCE` joined by commas.
const VERSIONS: HeaderName = HeaderName::from_static(names::VERSIONS);
/// Maximum number of these versions.
const MAX_VERSIONS: usize = 64;
/// Identifier of the client's request in the caller's audit log, as a kube-apiserver returns it to its clients.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Maximum length of an audit id, as in a kube-apiserver.
const MAX_AUDIT_ID: usize = 64;
const GRPC_MARGIN: Duration = Duration::from_millis(20);
const HTTP_MARGIN: Duration = Duration::from_secs(1);

/// Headers of a review over gRPC.
#[derive(Debug)]
pub(super) struct GrpcHead {
    /// Latest time for the verdict, after the margin.
    pub(super) deadline: Deadline,
    /// Labels of the namespace, if the caller sent them.
    pub(super) namespace_labels: Option<SentLabels>,
    /// True if the caller stores objects before they are initialized.
    pub(super) stores_unfinished: bool,
    /// Headers that go on to the hooks.
    pub(super) forwarded: ForwardedContext,
    /// Identifier of the request in the caller's audit log, if it sent a valid one.
    pub(super) audit_id: Option<Box<str>>,
    /// Treatment of hooks that want the object in another version.
    pub(super) other_versions: OtherVersions,
}

/// Namespace labels that the caller sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SentLabels {
    pub(super) labels: Labels,
    /// Base64 text as it was sent.
    pub(super) text: Bytes,
}

impl GrpcHead {
    /// Reads the headers of a call that arrived at `now` and may take `max_timeout`.
    pub(super) fn read(headers: &HeaderMap, now: Instant, max_timeout: Duration) -> Result<Self, Refusal> {
        grpc_encoding(headers)?;
        let timeout = match headers.get(GRPC_TIMEOUT) {
            Some(value) => grpc_timeout(value.as_bytes()).ok_or(Refusal::Timeout)?.min(max_timeout),
            None => max_timeout,
        };
        if timeout.is_zero() {
            return Err(Refusal::DeadlineZero);
        }
        let deadline = Deadline::after(now, timeout - (timeout / 20).min(GRPC_MARGIN));
        let (namespace_labels, forwarded) = (namespace_labels(headers)?, forwarded(headers)?);
        let (stores_unfinished, audit_id) = (stores_unfinished(headers)?, audit_id(headers));
        let other_versions = other_versions(headers)?;
        Ok(Self { deadline, namespace_labels, stores_unfinished, forwarded, audit_id, other_versions })
    }
}

/// Encoding of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON.
    Json,
    /// Protobuf in Kubernetes' envelope.
    Protobuf,
}

impl Format {
    /// Returns the content type.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// Head of a review's HTTP request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpHead {
    pub(super) format: Format,
    /// Latest time for the verdict, after the margin if the caller sent a timeout.
    pub(super) deadline: Deadline,
    /// Length of the body, if declared.
    pub(super) declared: Option<usize>,
    /// Headers that go on to the hooks.
    pub(super) forwarded: ForwardedContext,
}

impl HttpHead {
    /// Reads the head of a request that arrived at `now` and may take `max_timeout`.
    pub(super) fn read(parts: &Parts, now: Instant, max_timeout: Duration) -> Result<Self, Refusal> {
        if parts.method != Method::POST {
            return Err(Refusal::Method);
        }
        let format = format(&parts.headers).ok_or(Refusal::ContentType)?;
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Refusal::ContentEncoding);
        }
        let timeout = match query_timeout(parts.uri.query().unwrap_or_default())? {
            Some(timeout) => (timeout - (timeout / 4).min(HTTP_MARGIN)).min(max_timeout),
            None => max_timeout,
        };
        // hyper and h2 reject an invalid length.
        let declared = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let forwarded = forwarded(&parts.headers)?;
        Ok(Self { format, deadline: Deadline::after(now, timeout), declared, forwarded })
    }
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let kind = media_type(headers.get(header::CONTENT_TYPE)?);
    [Format::Json, Format::Protobuf]
        .into_iter()
        .find(|format| kind.eq_ignore_ascii_case(format.media_type().as_bytes()))
}

/// Returns the value of `timeout` in a query; other parameters are ignored.
fn query_timeout(query: &str) -> Result<Option<Duration>, Refusal> {
    let mut values = query.split('&').filter_map(|pair| match pair.split_once('=') {
        Some(("timeout", value)) => Some(value),
        None if pair == "timeout" => Some(""),
        _ => None,
    });
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => match go_duration(only) {
            None | Some(Duration::ZERO) => Err(Refusal::TimeoutParameter),
            timeout => Ok(timeout),
        },
        (Some(_), Some(_)) => Err(Refusal::TimeoutParameter),
    }
}

/// Refuses a compressed call.
pub(super) fn grpc_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_compressed = headers.get(GRPC_ENCODING).is_some_and(|encoding| encoding != "identity");
    if is_compressed { Err(Refusal::Compressed) } else { Ok(()) }
}

/// Returns the value of a header; an error if the header is repeated.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(()),
    }
}

/// Returns true for `stored`, false without the header. Any other word is refused, as its intent is unknown.
fn stores_unfinished(headers: &HeaderMap) -> Result<bool, Refusal> {
    match single(headers, UNFINISHED).map_err(|()| Refusal::Unfinished)? {
        None => Ok(false),
        Some(only) if only == "stored" => Ok(true),
        Some(_) => Err(Refusal::Unfinished),
    }
}

/// Returns the listed versions; without the header the calls of hooks that want another version fail.
fn other_versions(headers: &HeaderMap) -> Result<OtherVersions, Refusal> {
    let Some(only) = single(headers, VERSIONS).map_err(|()| Refusal::Versions)? else { return Ok(OtherVersions::Fail) };
    let texts = only.to_str().map_err(|_| Refusal::Versions)?.split(',');
    let mut listed = Vec::new();
    for text in texts {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(version), Some(resource), None)
                if !version.is_empty() && !resource.is_empty() && listed.len() < MAX_VERSIONS =>
            {
                listed.push(Gvr { group: group.into(), version: version.into(), resource: resource.into() });
            }
            _ => return Err(Refusal::Versions),
        }
    }
    Ok(OtherVersions::Listed(Arc::new(ListedVersions::new(listed))))
}

/// Returns the audit id if it is valid: a single one of letters, digits and `-_.:`. Any other is dropped and not
/// refused, because the id decides nothing and is only logged.
fn audit_id(headers: &HeaderMap) -> Option<Box<str>> {
    let only = single(headers, AUDIT_ID).ok()??;
    let id = only.to_str().ok().filter(|id| (1..=MAX_AUDIT_ID).contains(&id.len()))?;
    id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)).then(|| id.into())
}

fn namespace_labels(headers: &HeaderMap) -> Result<Option<SentLabels>, Refusal> {
    let Some(only) = single(headers, NAMESPACE_LABELS).map_err(|()| Refusal::NamespaceLabels)? else { return Ok(None) };
    let bytes = STANDARD_PAD_INDIFFERENT.decode(only.as_bytes()).map_err(|_| Refusal::NamespaceLabels)?;
    let labels = metadata::namespace_labels(&bytes).ok_or(Refusal::NamespaceLabels)?;
    Ok(Some(SentLabels { labels, text: Bytes::copy_from_slice(only.as_bytes()) }))
}

/// Returns the number of Gateposts that a review has passed through; 0 without the header. Refuses too many.
fn hops(headers: &HeaderMap) -> Result<Hops, Refusal> {
    let Some(only) = single(headers, HOPS).map_err(|()| Refusal::Hops)? else { return Ok(Hops::default()) };
    let hops = Hops::parse(only.as_bytes()).ok_or(Refusal::Hops)?;
    if hops.is_too_many() { Err(Refusal::Loop(hops.get())) } else { Ok(hops) }
}

/// Returns what goes on to the hooks. Refuses a review that has passed through too many Gateposts; an invalid trace is
/// dropped, as it decides nothing.
fn forwarded(headers: &HeaderMap) -> Result<ForwardedContext, Refusal> {
    let trace = TraceContext::new(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes));
    Ok(ForwardedContext { hops: hops(headers)?, trace })
}

/// Returns a content type without its parameters.
pub(super) fn media_type(value: &HeaderValue) -> &[u8] {
    value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Returns the timeout of a call of health or reflection, if its caller sent a valid one.
pub(super) fn aux_timeout(headers: &HeaderMap) -> Option<Duration> {
    grpc_timeout(headers.get(GRPC_TIMEOUT)?.as_bytes())
}

/// Parses `1*8DIGIT ("H" / "M" / "S" / "m" / "u" / "n")`.
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
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

/// Parses a duration without a sign as Go's `time.ParseDuration` does: `10s`, `1m30s`, `500ms`, `1.5h`.
fn go_duration(text: &str) -> Option<Duration> {
    let unsigned = Some(text).filter(|text| !text.starts_with(['+', '-']))?;
    u64::try_from(gatepost_cel::parse_go_duration(unsigned)?).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests;
