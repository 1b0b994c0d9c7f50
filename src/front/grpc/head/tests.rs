//! Headers: timeouts, labels.

use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::HeaderValue;

use super::*;

const LONGEST: Duration = Duration::from_secs(30);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("value")))
        .collect()
}

fn left(pairs: &[(&'static str, &str)]) -> Result<Duration, Refusal> {
    let now = Instant::now();
    GrpcHead::read(&headers(pairs), now, LONGEST).map(|head| head.deadline.left(now))
}

#[test]
fn the_deadline_is_the_callers_timeout_capped_less_the_margin() {
    for (value, expected) in [
        ("1S", Duration::from_millis(980)),
        ("100m", Duration::from_millis(95)),
        ("100000u", Duration::from_millis(95)),
        ("20n", Duration::from_nanos(19)),
        ("1M", LONGEST - MARGIN),
        ("99999999H", LONGEST - MARGIN),
    ] {
        assert_eq!(left(&[("grpc-timeout", value)]), Ok(expected), "{value}");
    }
    assert_eq!(left(&[]), Ok(LONGEST - MARGIN));
}

#[test]
fn a_timeout_that_is_none_is_refused() {
    for value in ["", "S", "10", "-1S", "+1S", "1s", "1 S", "1.5S", "123456789m", "1SS"] {
        assert_eq!(left(&[("grpc-timeout", value)]), Err(Refusal::Timeout), "{value:?}");
    }
    for value in ["0S", "00000000n"] {
        assert_eq!(left(&[("grpc-timeout", value)]), Err(Refusal::DeadlineZero), "{value:?}");
    }
}

#[test]
fn only_the_identity_encoding_is_spoken() {
    assert!(left(&[("grpc-encoding", "identity")]).is_ok());
    assert_eq!(left(&[("grpc-encoding", "gzip")]), Err(Refusal::Compressed));
}

#[test]
fn an_audit_id_is_taken_where_it_can_be_written_down() {
    let taken = |pairs: &[(&'static str, &str)]| {
        let head = GrpcHead::read(&headers(pairs), Instant::now(), LONGEST).expect("never refused for it");
        head.audit_id.map(String::from)
    };
    let long = "a".repeat(LONGEST_AUDIT_ID);
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
fn namespace_labels_come_with_or_without_padding() {
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
