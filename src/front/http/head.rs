//! HttpHead: head of a review's HTTP request.
//!
//! The deadline is stamped here, once. An apiserver sends what it has left as `?timeout=`, rounded up to whole seconds
//! (`docs/reference/webhook-semantics.md` §6), so up to a second of it is not there; and a caller that has given up
//! hears no "no verdict in time". So a second is kept back, but never more than a quarter: 10 s leaves 9 s, 1 s leaves
//! 750 ms.

use std::time::{Duration, Instant};

use http::{HeaderMap, Method, header, request::Parts};

use super::duration;
use crate::{
    front::{hops::hops, refusal::Refusal, route::media_type},
    model::{Deadline, Hops},
};

const MARGIN: Duration = Duration::from_secs(1);

/// Encoding of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON.
    Json,
    /// Protobuf in Kubernetes' envelope.
    Protobuf,
}

impl Format {
    /// Its content type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// Head of a review's HTTP request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpHead {
    pub(crate) format: Format,
    /// Latest time for the verdict, the margin already taken off.
    pub(crate) deadline: Deadline,
    /// Length of the body, where it is declared.
    pub(crate) declared: Option<usize>,
    /// The Gateposts that it has passed through.
    pub(crate) hops: Hops,
}

impl HttpHead {
    /// Reads what arrived at `now` and may take `longest`.
    pub(crate) fn read(parts: &Parts, now: Instant, longest: Duration) -> Result<Self, Refusal> {
        if parts.method != Method::POST {
            return Err(Refusal::Method);
        }
        let format = format(&parts.headers).ok_or(Refusal::ContentType)?;
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Refusal::ContentEncoding);
        }
        let budget = match timeout(parts.uri.query().unwrap_or_default())? {
            Some(timeout) => (timeout - (timeout / 4).min(MARGIN)).min(longest),
            None => longest,
        };
        // hyper and h2 have refused a length that is none.
        let declared = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let hops = hops(&parts.headers)?;
        Ok(Self { format, deadline: Deadline::after(now, budget), declared, hops })
    }
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let kind = media_type(headers.get(header::CONTENT_TYPE)?);
    [Format::Json, Format::Protobuf]
        .into_iter()
        .find(|format| kind.eq_ignore_ascii_case(format.media_type().as_bytes()))
}

/// The value of `timeout` in a query; other parameters are somebody else's.
fn timeout(query: &str) -> Result<Option<Duration>, Refusal> {
    let mut values = query.split('&').filter_map(|pair| match pair.split_once('=') {
        Some(("timeout", value)) => Some(value),
        None if pair == "timeout" => Some(""),
        _ => None,
    });
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => match duration::parse(only) {
            None | Some(Duration::ZERO) => Err(Refusal::TimeoutParameter),
            timeout => Ok(timeout),
        },
        (Some(_), Some(_)) => Err(Refusal::TimeoutParameter),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn read(uri: &str, headers: &[(&str, &str)]) -> Result<HttpHead, Refusal> {
        read_at(Instant::now(), uri, headers)
    }

    fn read_at(now: Instant, uri: &str, headers: &[(&str, &str)]) -> Result<HttpHead, Refusal> {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        HttpHead::read(&request.body(()).expect("request").into_parts().0, now, LONGEST)
    }

    const JSON: (&str, &str) = ("content-type", "application/json");

    #[test]
    fn the_deadline_is_the_callers_timeout_less_the_margin_capped() {
        let now = Instant::now();
        for (query, millis) in [
            ("?timeout=10s", 9000),
            ("?timeout=1s", 750),
            ("?a=b&timeout=400ms&c", 300),
            ("?timeout=4s", 3000),
            ("?timeout=30s", 29_000),
            ("?timeout=5m", 30_000),
            ("?timeouts=1s", 30_000),
            ("", 30_000),
        ] {
            let posted = read_at(now, &format!("/validate{query}"), &[JSON]).expect(query);
            assert_eq!(posted.deadline.left(now), Duration::from_millis(millis), "{query}");
        }
        for query in ["timeout=", "timeout", "timeout=10", "timeout=0s", "timeout=-1s", "timeout=1s&timeout=2s"] {
            assert_eq!(read(&format!("/validate?{query}"), &[JSON]), Err(Refusal::TimeoutParameter), "{query}");
        }
    }

    #[test]
    fn two_content_types_are_spoken_with_or_without_parameters() {
        for (kind, format) in [
            ("application/json", Ok(Format::Json)),
            ("Application/JSON ; charset=utf-8", Ok(Format::Json)),
            ("application/vnd.kubernetes.protobuf", Ok(Format::Protobuf)),
            ("application/vnd.kubernetes.protobuf;type=watch", Ok(Format::Protobuf)),
            ("application/jsonx", Err(Refusal::ContentType)),
            ("text/plain", Err(Refusal::ContentType)),
            ("", Err(Refusal::ContentType)),
        ] {
            assert_eq!(read("/validate", &[("content-type", kind)]).map(|posted| posted.format), format, "{kind:?}");
        }
        assert_eq!(read("/validate", &[]), Err(Refusal::ContentType));
    }

    #[test]
    fn the_declared_length_and_the_encoding_are_read() {
        assert_eq!(read("/validate", &[JSON, ("content-length", "12")]).expect("reads").declared, Some(12));
        assert_eq!(read("/validate", &[JSON, ("content-encoding", "Identity")]).expect("reads").declared, None);
        assert_eq!(read("/validate", &[JSON, ("content-encoding", "gzip")]), Err(Refusal::ContentEncoding));
    }
}
