//! Timeouts, labels, hops, content types.

use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderValue, Request};

use super::*;

const MAX_TIMEOUT: Duration = Duration::from_secs(30);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("value")))
        .collect()
}

fn left(pairs: &[(&'static str, &str)]) -> Result<Duration, Refusal> {
    let now = Instant::now();
    GrpcHead::read(&headers(pairs), now, MAX_TIMEOUT).map(|head| head.deadline.left(now))
}

#[test]
fn grpc_deadline_is_the_capped_timeout_less_the_margin() {
    for (value, expected) in [
        ("1S", Duration::from_millis(980)),
        ("100m", Duration::from_millis(95)),
        ("100000u", Duration::from_millis(95)),
        ("20n", Duration::from_nanos(19)),
        ("1M", MAX_TIMEOUT - GRPC_MARGIN),
        ("99999999H", MAX_TIMEOUT - GRPC_MARGIN),
    ] {
        assert_eq!(left(&[("grpc-timeout", value)]), Ok(expected), "{value}");
    }
    assert_eq!(left(&[]), Ok(MAX_TIMEOUT - GRPC_MARGIN));
}

#[test]
fn invalid_grpc_timeout_is_refused() {
    for value in ["", "S", "10", "-1S", "+1S", "1s", "1 S", "1.5S", "123456789m", "1SS"] {
        assert_eq!(left(&[("grpc-timeout", value)]), Err(Refusal::Timeout), "{value:?}");
    }
    for value in ["0S", "00000000n"] {
        assert_eq!(left(&[("grpc-timeout", value)]), Err(Refusal::DeadlineZero), "{value:?}");
    }
}

#[test]
fn compressed_grpc_is_refused() {
    assert!(left(&[("grpc-encoding", "identity")]).is_ok());
    assert_eq!(left(&[("grpc-encoding", "gzip")]), Err(Refusal::Compressed));
}

#[test]
fn versions_are_listed() {
    let read = |value: &str| other_versions(&headers(&[("gatepost-versions", value)]));
    let of = |group: &str, version: &str, resource: &str| Gvr {
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
    };
    let both = [of("", "v1", "events"), of("events.k8s.io", "v1", "events")];
    assert_eq!(
        read("/v1/events,events.k8s.io/v1/events"),
        Ok(OtherVersions::Listed(Arc::new(ListedVersions::new(both.into()))))
    );
    assert_eq!(other_versions(&headers(&[])), Ok(OtherVersions::Fail));
    let many = vec!["a/v1/b"; MAX_VERSIONS].join(",");
    assert!(read(&many).is_ok());
    for value in ["", ",", "v1/pods", "/v1/pods,", "a/v1/b/c", "a//b", "a/v1/", &format!("{many},a/v1/b")] {
        assert_eq!(read(value), Err(Refusal::Versions), "{value}");
    }
    let twice = headers(&[("gatepost-versions", "/v1/pods"), ("gatepost-versions", "/v1/pods")]);
    assert_eq!(other_versions(&twice), Err(Refusal::Versions));
}

#[test]
fn audit_id_is_ignored_unless_printable() {
    let taken = |pairs: &[(&'static str, &str)]| {
        let head = GrpcHead::read(&headers(pairs), Instant::now(), MAX_TIMEOUT).expect("never refused for it");
        head.audit_id.map(String::from)
    };
    let long = "a".repeat(MAX_AUDIT_ID);
    for good in ["705ab4f5-6393-11e8-b7cc-42010a800002", "trace:1.2_3", &long] {
        assert_eq!(taken(&[("audit-id", good)]).as_deref(), Some(good));
    }
    let longer = format!("{long}a");
    for bad in ["", "two words", "quote\"", "a/b", "tab\tbed", &longer] {
        assert_eq!(taken(&[("audit-id", bad)]), None, "{bad:?}");
    }
    assert_eq!(taken(&[]), None);
    let mut twice = headers(&[("audit-id", "a")]);
    twice.append(AUDIT_ID, HeaderValue::from_static("b"));
    assert_eq!(audit_id(&twice), None);
    twice.insert(AUDIT_ID, HeaderValue::from_bytes(b"\xff").expect("opaque"));
    assert_eq!(audit_id(&twice), None);
}

#[test]
fn namespace_labels_are_read_with_or_without_padding() {
    let bytes = b"\x0a\x0b\x0a\x03env\x12\x04prod";
    for value in [STANDARD.encode(bytes), STANDARD_NO_PAD.encode(bytes)] {
        let headers = headers(&[("gatepost-namespace-labels-bin", &value)]);
        let sent = namespace_labels(&headers).expect("reads").expect("is there");
        assert_eq!(sent.labels.get("env"), Some("prod"));
        assert_eq!(sent.text, value);
    }
    let empty = namespace_labels(&headers(&[("gatepost-namespace-labels-bin", "")])).expect("reads");
    assert_eq!(
        empty,
        Some(SentLabels { labels: Labels::default(), text: Bytes::new() }),
        "sent empty: the namespace has no labels"
    );
    assert_eq!(namespace_labels(&headers(&[])), Ok(None));
    for value in ["!", "AAAA", "CgM="] {
        let headers = headers(&[("gatepost-namespace-labels-bin", value)]);
        assert_eq!(namespace_labels(&headers), Err(Refusal::NamespaceLabels), "{value}");
    }
    let twice = headers(&[("gatepost-namespace-labels-bin", ""), ("gatepost-namespace-labels-bin", "")]);
    assert_eq!(namespace_labels(&twice), Err(Refusal::NamespaceLabels));
}

fn read(uri: &str, headers: &[(&str, &str)]) -> Result<HttpHead, Refusal> {
    read_at(Instant::now(), uri, headers)
}

fn read_at(now: Instant, uri: &str, headers: &[(&str, &str)]) -> Result<HttpHead, Refusal> {
    let mut request = Request::post(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    HttpHead::read(&request.body(()).expect("request").into_parts().0, now, MAX_TIMEOUT)
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn http_deadline_is_the_timeout_less_the_margin_capped() {
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
fn http_content_type_ignores_parameters() {
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
fn http_length_and_encoding_are_read() {
    assert_eq!(read("/validate", &[JSON, ("content-length", "12")]).expect("reads").declared, Some(12));
    assert_eq!(read("/validate", &[JSON, ("content-encoding", "Identity")]).expect("reads").declared, None);
    assert_eq!(read("/validate", &[JSON, ("content-encoding", "gzip")]), Err(Refusal::ContentEncoding));
}

#[test]
fn hops_above_four_are_refused() {
    let read = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HOPS, value.parse().expect("a value"));
        }
        hops(&headers).map(Hops::get)
    };
    assert_eq!([read(&[]), read(&["1"]), read(&["3"])], [Ok(0), Ok(1), Ok(3)]);
    assert_eq!([read(&["4"]), read(&["255"])], [Err(Refusal::Loop(4)), Err(Refusal::Loop(255))]);
    for wrong in [&["x"][..], &[""], &["1", "1"], &["-1"]] {
        assert_eq!(read(wrong), Err(Refusal::Hops), "{wrong:?}");
    }
}

#[test]
fn go_duration_is_read() {
    for (text, millis) in [
        ("10s", 10_000),
        ("1m30s", 90_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        (".5s", 500),
        ("1.s", 1000),
        ("0s", 0),
        ("0", 0),
        ("2000us", 2),
        ("3000000ns", 3),
        ("1h0m0.25s", 3_600_250),
    ] {
        assert_eq!(go_duration(text), Some(Duration::from_millis(millis)), "{text}");
    }
}

#[test]
fn go_duration_rejects_the_same_texts_as_go() {
    for text in [
        "",
        "10",
        "s",
        "-1s",
        "+1s",
        "1 s",
        "1S",
        "1d",
        ".s",
        "1..5s",
        "1.2.3s",
        "1s1",
        "99999999999999999999s",
        "9999999h99999999999h",
        "1e3s",
        "%31s",
    ] {
        assert_eq!(go_duration(text), None, "{text:?}");
    }
}
