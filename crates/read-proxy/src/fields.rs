//! Fields of HTTP messages: hop-by-hop fields, fields that a proxy adds, and an apiserver's warning that a created
//! object is not initialized.

use std::net::IpAddr;

use gatepost_api::initialization::id_in_pending_warning;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, WARNING},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Prefix of the impersonation fields.
const IMPERSONATE: &str = "impersonate-";
/// Hop-by-hop fields, besides those that `Connection` names.
// source: RFC 9110, 7.6.1.
const OF_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the hop-by-hop fields.
pub(super) fn end_to_end(headers: &mut HeaderMap) {
    for name in named(headers).iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Returns the fields that `Connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// Returns true if `Connection` names a field that identifies the user: behind the proxy, the request would be another
/// user's.
pub(super) fn drops_the_user(headers: &HeaderMap) -> bool {
    named(headers).iter().any(|name| *name == AUTHORIZATION || name.as_str().starts_with(IMPERSONATE))
}

/// Returns the protocol to which a request upgrades, such as `websocket`.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = |value: &HeaderValue| {
        value.to_str().is_ok_and(|names| names.split(',').any(|name| name.trim().eq_ignore_ascii_case("upgrade")))
    };
    headers.get(UPGRADE).filter(|_| headers.get_all(CONNECTION).iter().any(wanted)).cloned()
}

/// Prepares a client's request for the next hop, and adds the client's address.
pub(super) fn forward(headers: &mut HeaderMap, client: IpAddr) {
    end_to_end(headers);
    headers.remove(HOST);
    // hyper answers it when the body is read.
    headers.remove(EXPECT);
    // Trailers are not passed.
    headers.remove(TRAILER);
    let client = client.to_canonical().to_string();
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all = before.chain([&*client]).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::try_from(all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Code, agent and opening quote of an apiserver's warning.
// source: k8s.io/apimachinery/pkg/util/net/http.go, NewWarningHeader.
const BEGINNING: &str = "299 - \"";

/// Removes the warning about an uninitialized object. Other warnings stay.
pub(super) fn remove_pending_warning(headers: &mut HeaderMap) {
    let others: Vec<_> =
        headers.get_all(WARNING).iter().filter(|value| pending_warning_id(value).is_none()).cloned().collect();
    headers.remove(WARNING);
    for value in others {
        headers.append(WARNING, value);
    }
}

fn pending_warning_id(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?.strip_prefix(BEGINNING)?;
    id_in_pending_warning(text.split('"').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn fields_of_a_connection_stay_behind() {
        let mut sent = headers(&[
            ("connection", "keep-alive, X-Mine"),
            ("keep-alive", "5"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "proxy"),
            ("expect", "100-continue"),
            ("te", "trailers"),
            ("trailer", "x-remote-user"),
            ("accept", "application/json"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "192.0.2.2"),
        ]);
        forward(&mut sent, "::ffff:192.0.2.3".parse().unwrap());
        let wanted = headers(&[("accept", "application/json"), ("x-forwarded-for", "192.0.2.1, 192.0.2.2, 192.0.2.3")]);
        assert_eq!(sent, wanted);
    }

    #[test]
    fn a_user_is_not_left_behind() {
        for (names, drops) in [
            ("keep-alive", false),
            ("Accept", false),
            ("Authorization", true),
            ("x, IMPERSONATE-user", true),
            ("impersonate-extra-a", true),
        ] {
            assert_eq!(drops_the_user(&headers(&[("connection", "close"), ("connection", names)])), drops, "{names}");
        }
    }

    #[test]
    fn an_upgrade_takes_both_fields() {
        let both = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&both).unwrap(), "websocket");
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
        assert_eq!(upgrade(&headers(&[("connection", "upgrade")])), None);
    }
}

#[cfg(test)]
mod warning_tests {
    use super::*;

    #[test]
    fn only_our_own_warning_is_understood_and_removed() {
        let mut headers = HeaderMap::new();
        let theirs = HeaderValue::from_static("299 - \"unknown field \\\"init pending x\\\"\"");
        headers.append(WARNING, theirs.clone());
        remove_pending_warning(&mut headers);
        assert_eq!(headers.len(), 1);
        headers.append(WARNING, HeaderValue::from_static("299 - \"init pending 3f9a\""));
        remove_pending_warning(&mut headers);
        assert_eq!(headers.get_all(WARNING).iter().collect::<Vec<_>>(), [&theirs]);
    }
}
