//! Parses the URLs of gRPC hooks (`grpc://`, `grpcs://`, `unix://`) and webhooks (`https://`, `http://`,
//! `http+unix://`).

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv6Addr},
};

use crate::document::{Dialect, problem::quoted};
use gatepost_api::{
    Endpoint, Transport,
    hook::{Address, EndpointTls},
};

/// Reason why a URL cannot name a hook, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, {why}; {fix}")]
pub struct UrlProblem {
    /// Fault of the URL.
    pub what: String,
    /// Reason, as in a [`Problem`](crate::Problem).
    pub why: &'static str,
    /// Advice on the fault.
    pub fix: String,
}

/// Consequence of a missing or invalid address.
pub(crate) const UNREACHABLE: &str = "so the hook could not be called";

pub(crate) fn problem<T>(what: impl Into<String>, why: &'static str, fix: impl Into<String>) -> Result<T, UrlProblem> {
    Err(UrlProblem { what: what.into(), why, fix: fix.into() })
}

/// Parses the URL of a gRPC hook: `grpc://host:port` (plaintext), `grpcs://host[:port]` (TLS with the system's CAs,
/// port 443 by default) or `unix:///absolute/path` (plaintext).
///
/// # Errors
/// Any other scheme; a missing or malformed host or port; a user, path, query or fragment, which gRPC does not use.
pub fn parse_url(url: &str) -> Result<Endpoint, UrlProblem> {
    parse(url, "write grpc://host:port, grpcs://host:port or unix:///path")
}

/// Parses the URL of a gRPC hook. Unlike [`parse_url`], it also suggests the URLs of webhooks if the URL is invalid.
///
/// # Errors
/// As [`parse_url`].
pub(crate) fn parse_any(url: &str) -> Result<Endpoint, UrlProblem> {
    parse(
        url,
        "write https://host:port/path, http://127.0.0.1:port/path or http+unix:///socket:/path for a webhook, or \
         grpc://host:port, grpcs://host:port or unix:///path for a hook that speaks gRPC",
    )
}

fn parse(url: &str, examples: &str) -> Result<Endpoint, UrlProblem> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return problem(format!("{} is not a URL", quoted(url)), UNREACHABLE, examples);
    };
    match scheme {
        "unix" => unix(rest),
        "grpc" | "grpcs" => tcp(rest, scheme == "grpcs"),
        "http" | "https" | "http+unix" => {
            problem(format!("{scheme}:// is not gRPC"), "which alone is spoken here", examples)
        }
        _ => problem(format!("the scheme {} is not known", quoted(scheme)), UNREACHABLE, examples),
    }
}

fn unix(path: &str) -> Result<Endpoint, UrlProblem> {
    Ok(Endpoint { address: socket(path)?, tls: None, transport: Transport::Grpc, authorization: None })
}

/// Parses the absolute path of a Unix socket.
pub(crate) fn socket(path: &str) -> Result<Address, UrlProblem> {
    /// Length of `sun_path` in a socket address on Linux, without its terminator.
    const MAX_SOCKET_PATH_BYTES: usize = 107;
    if !path.starts_with('/') {
        return problem(
            "the socket's path is not absolute",
            "so it would depend on where Gatepost was started",
            "write three slashes: unix:///run/hook.sock",
        );
    }
    if path.len() > MAX_SOCKET_PATH_BYTES || path.contains('\0') {
        return problem(
            format!("the socket's path is longer than {MAX_SOCKET_PATH_BYTES} bytes, or holds a zero"),
            "which the system does not accept",
            "use another path",
        );
    }
    Ok(Address::Unix(path.into()))
}

fn tcp(rest: &str, tls: bool) -> Result<Endpoint, UrlProblem> {
    let written = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(sign) = written.chars().find(|c| "/?#@".contains(*c)) {
        return problem(
            format!("holds {sign:?}"),
            "and a gRPC URL has no user, path, query or fragment",
            "write the host and the port only",
        );
    }
    let (host, port) = authority(written, tls.then_some(443))?;
    Ok(place(host, port, tls, Transport::Grpc))
}

/// Returns an endpoint. With TLS, the certificate must have the host's name.
pub(crate) fn place(host: &str, port: u16, tls: bool, transport: Transport) -> Endpoint {
    let tls = tls.then(|| EndpointTls { server_name: certified(host).into(), ca_pem: None, client_pem: None });
    Endpoint { address: Address::Tcp { host: host.into(), port }, tls, transport, authorization: None }
}

/// Splits into a host and a port, and checks both.
pub(crate) fn authority(written: &str, default_port: Option<u16>) -> Result<(&str, u16), UrlProblem> {
    let (host, port) = match written.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((host, after)) if host.parse::<Ipv6Addr>().is_ok() => (host, after.strip_prefix(':').or(Some(after))),
            _ => {
                return problem(
                    "holds no IPv6 address in the brackets",
                    UNREACHABLE,
                    "write it as in grpc://[::1]:9001",
                );
            }
        },
        None => written.split_once(':').map_or((written, None), |(host, port)| (host, Some(port))),
    };
    if !is_host(host) {
        return problem(
            format!("{} is not a host name or IP address", quoted(host)),
            UNREACHABLE,
            "write a DNS name, an IPv4 address, or an IPv6 address in brackets",
        );
    }
    let port = match (port, default_port) {
        (None | Some(""), Some(default)) => default,
        (None | Some(""), None) => {
            return problem(
                "has no port",
                "and plaintext gRPC has no usual one",
                "add it, as in grpc://127.0.0.1:9001",
            );
        }
        (Some(port), _) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => {
                return problem(
                    format!("{} is not a port", quoted(port)),
                    UNREACHABLE,
                    "write a number from 1 to 65535",
                );
            }
        },
    };
    Ok((host, port))
}

/// Returns the name that the host's certificate must have: the host without the final dot of an absolute name.
pub(crate) fn certified(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns true if this is a DNS name (either case, `_` tolerated, absolute or not) or an IP address without brackets.
pub(crate) fn is_host(host: &str) -> bool {
    let name = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    host.parse::<IpAddr>().is_ok() || (host.len() <= 253 && certified(host).split('.').all(name))
}

/// Endpoint of a webhook, and the path of its requests.
pub(crate) type HttpPlace = (Endpoint, String);

/// Parses `https://host[:port][/path]`. Our own form also allows `http://` to loopback addresses,
/// `http+unix:///socket[:/path]`, and a query.
pub(crate) fn parse_http(url: &str, dialect: Dialect) -> Result<HttpPlace, UrlProblem> {
    let example = match dialect {
        Dialect::Gatepost => "write https://host:port/path, http://127.0.0.1:port/path or http+unix:///socket:/path",
        Dialect::Kubernetes => "write https://host:port/path",
    };
    let Some((scheme, rest)) = url.split_once("://") else {
        return problem(format!("{} is not a URL", quoted(url)), UNREACHABLE, example);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "https" => http_tcp(rest, dialect, true),
        "http" if dialect == Dialect::Gatepost => http_tcp(rest, dialect, false),
        "http+unix" if dialect == Dialect::Gatepost => http_unix(rest),
        _ => {
            let why = match dialect {
                Dialect::Gatepost => UNREACHABLE,
                Dialect::Kubernetes => "since kube-apiserver calls webhooks over TLS alone",
            };
            problem(format!("the scheme {} is not allowed here", quoted(scheme)), why, example)
        }
    }
}

fn http_tcp(rest: &str, dialect: Dialect, tls: bool) -> Result<HttpPlace, UrlProblem> {
    let (written, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if written.contains('@') {
        return problem(
            "holds a user",
            "and a hook knows Gatepost by its certificate alone",
            "write the host and the port only",
        );
    }
    let (host, port) = authority(written, Some(if tls { 443 } else { 80 }))?;
    if !tls && !is_loopback(host) {
        return problem(
            format!("http:// to {} would send objects in the clear", quoted(host)),
            "so anybody in between could read and answer them",
            "use https://, or an address of this machine: 127.0.0.1, [::1] or localhost",
        );
    }
    Ok((place(host, port, tls, Transport::Http), path(after, dialect)?))
}

fn http_unix(rest: &str) -> Result<HttpPlace, UrlProblem> {
    let (written, after) = rest.split_at(rest.find(":/").unwrap_or(rest.len()));
    let endpoint = Endpoint { address: socket(written)?, tls: None, transport: Transport::Http, authorization: None };
    Ok((endpoint, path(after.strip_prefix(':').unwrap_or(after), Dialect::Gatepost)?))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the path and query for a request's first line: with `/` first, and non-ASCII characters escaped. Kubernetes'
/// form is cleaned as by kube-apiserver; our own form stays as written, with a final slash.
fn path(after: &str, dialect: Dialect) -> Result<String, UrlProblem> {
    let (before, fragment) = after.split_once('#').unwrap_or((after, ""));
    if !fragment.is_empty() {
        return problem(format!("holds the fragment {}", quoted(fragment)), "which is never sent", "remove it");
    }
    let (path, query) = before.split_once('?').unwrap_or((before, ""));
    if !query.is_empty() && dialect == Dialect::Kubernetes {
        return problem(
            format!("holds the query {}", quoted(query)),
            "which no apiserver accepts",
            "remove it, or put it into the path",
        );
    }
    if let Some(escape) = broken_escape(before) {
        return problem(
            format!("{} is not an escape", quoted(escape)),
            "so which path is meant would be a guess",
            "write % and two digits from 0 to F, or %25",
        );
    }
    if before.chars().any(|c| c.is_ascii_control()) {
        return problem("holds a control character", "which no path may have", "remove it");
    }
    if dialect == Dialect::Kubernetes {
        return Ok(of_url(path));
    }
    let mut written = String::from(if path.starts_with('/') { "" } else { "/" });
    let query = Some(query).filter(|query| !query.is_empty()).map(|query| ["?", query]);
    for byte in path.bytes().chain(query.iter().flatten().flat_map(|part| part.bytes())) {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b' ' | 0x7f.. => {
                // Writing to a String does not fail.
                _ = write!(written, "%{byte:02X}");
            }
            _ => written.push(char::from(byte)),
        }
    }
    Ok(written)
}

/// Returns the first `%` without two hexadecimal digits.
fn broken_escape(text: &str) -> Option<&str> {
    let escapes = text.match_indices('%').map(|(at, _)| &text[at..]);
    let good = |escape: &str| escape.len() > 2 && escape.bytes().skip(1).take(2).all(|b| b.is_ascii_hexdigit());
    escapes.filter(|escape| !good(escape)).map(|escape| escape.get(..3).unwrap_or(escape)).next()
}

/// Returns the cleaned path of a URL with valid escapes. Decodes these first, as Go's `url.Parse` does: `%2F` is a
/// slash, `%2e%2e` the parent.
pub(crate) fn of_url(path: &str) -> String {
    cleaned(&unescaped(path))
}

/// Returns the cleaned path of a service, in which `%` is a literal character.
pub(crate) fn of_service(path: &str) -> String {
    cleaned(path.as_bytes())
}

/// Joins steps by `/`, without a final one, resolves `.` and `..`, and escapes the bytes that Go escapes.
fn cleaned(path: &[u8]) -> String {
    let mut steps = Vec::new();
    for step in path.split(|byte| *byte == b'/') {
        match step {
            b"" | b"." => {}
            b".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    let mut written = String::from(if steps.is_empty() { "/" } else { "" });
    for step in steps {
        written.push('/');
        for &byte in step {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(&byte) {
                written.push(char::from(byte));
            } else {
                // Writing to a String does not fail.
                _ = write!(written, "%{byte:02X}");
            }
        }
    }
    written
}

fn unescaped(path: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[2..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_shown() {
        for (url, shown) in [
            ("grpc://127.0.0.1:9001", "grpc://127.0.0.1:9001"),
            ("grpc://localhost:9001/", "grpc://localhost:9001"),
            ("grpc://[::1]:9001", "grpc://[::1]:9001"),
            ("grpcs://hook.example.com", "grpcs://hook.example.com:443"),
            ("grpcs://[::1]", "grpcs://[::1]:443"),
            ("unix:///run/hook.sock", "unix:///run/hook.sock"),
        ] {
            assert_eq!(parse_url(url).map(|endpoint| endpoint.to_string()), Ok(shown.into()), "{url}");
        }
    }

    #[test]
    fn every_other_url_is_refused_with_a_reason() {
        for (url, reason) in [
            ("", "not a URL"),
            ("127.0.0.1:9001", "not a URL"),
            ("http://a:1", "not gRPC"),
            ("ftp://a:1", "scheme"),
            ("grpc://a", "no port"),
            ("grpc://a:", "no port"),
            ("grpc://a:0", "not a port"),
            ("grpc://a:+1", "not a port"),
            ("grpc://a:65536", "not a port"),
            ("grpc://:9001", "not a host"),
            ("grpc://a b:1", "not a host"),
            ("grpc://[::1:1", "brackets"),
            ("grpc://[::1]x", "not a port"),
            ("grpc://u@a:1", "'@'"),
            ("grpc://a:1/x", "'/'"),
            ("grpc://a:1?x", "'?'"),
            ("unix://run/x", "absolute"),
        ] {
            let problem = parse_url(url).expect_err(url);
            assert!(problem.what.contains(reason), "{url}: {problem}");
        }
        assert!(parse_url(&format!("unix:///{}", "x".repeat(107))).is_err());
    }

    #[test]
    fn what_is_read_is_what_is_asked() {
        for (url, place, path) in [
            ("https://h", "https://h:443", "/"),
            ("https://h.example.com./v/", "https://h.example.com.:443", "/v/"),
            ("HTTPS://h:8443/a/b", "https://h:8443", "/a/b"),
            ("https://[::1]:1/x?", "https://[::1]:1", "/x"),
            ("https://h?a=b", "https://h:443", "/?a=b"),
            ("https://h/é a%20", "https://h:443", "/%C3%A9%20a%20"),
            ("http://127.1.2.3", "http://127.1.2.3:80", "/"),
            ("http://localhost:1/x", "http://localhost:1", "/x"),
            ("http://[::1]:1", "http://[::1]:1", "/"),
            ("http+unix:///run/hook.sock", "http+unix:///run/hook.sock", "/"),
            ("http+unix:///run/hook.sock:/a:b", "http+unix:///run/hook.sock", "/a:b"),
        ] {
            let (endpoint, written) =
                parse_http(url, Dialect::Gatepost).unwrap_or_else(|problem| panic!("{url}: {problem}"));
            assert_eq!((endpoint.to_string().as_str(), written.as_str()), (place, path), "{url}");
        }
    }

    #[test]
    fn a_webhooks_path_is_cleaned() {
        for (url, path) in
            [("https://h/validate/", "/validate"), ("https://h//a/../b%2Fc?", "/b/c"), ("https://h", "/")]
        {
            assert_eq!(parse_http(url, Dialect::Kubernetes).map(|(_, path)| path), Ok(path.into()), "{url}");
        }
    }

    #[test]
    fn a_dot_behind_a_host_is_no_part_of_its_certificate_s_name() {
        for dialect in [Dialect::Gatepost, Dialect::Kubernetes] {
            let (endpoint, _) = parse_http("https://h.example.com.:8443/v", dialect).expect("a host");
            assert_eq!(endpoint.to_string(), "https://h.example.com.:8443", "it is looked up as written");
            assert_eq!(&*endpoint.tls.expect("TLS").server_name, "h.example.com");
            for wrong in ["https://.", "https://h..", "https://h..example.com"] {
                assert!(parse_http(wrong, dialect).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn every_other_http_url_is_refused_with_a_reason() {
        for (url, reason) in [
            ("h:1", "not a URL"),
            ("ftp://h", "scheme"),
            ("https://", "not a host"),
            ("https:///path", "not a host"),
            ("https://u:p@h", "user"),
            ("https://h:0", "not a port"),
            ("https://h/#x", "fragment"),
            ("https://h/%zz", "escape"),
            ("https://h/%é", "escape"),
            ("https://h/a\nb", "control"),
            ("http://example.com", "in the clear"),
            ("http://10.0.0.1:1", "in the clear"),
            ("http+unix://run/x", "absolute"),
        ] {
            let problem = parse_http(url, Dialect::Gatepost).expect_err(url);
            assert!(problem.what.contains(reason), "{url}: {problem}");
        }
        for (url, reason) in [("https://h?a=b", "query"), ("http://127.0.0.1", "scheme"), ("http+unix:///x", "scheme")]
        {
            let problem = parse_http(url, Dialect::Kubernetes).expect_err(url);
            assert!(problem.what.contains(reason), "{url}: {problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_asked_is_fit_for_the_first_line_of_a_request(rest in "(\\PC|[%/?#:@. \"\n\u{e9}a0]){0,24}") {
            for dialect in [Dialect::Gatepost, Dialect::Kubernetes] {
                for url in [rest.clone(), format!("https://h{rest}"), format!("http+unix:///{rest}")] {
                    let Ok((_, path)) = parse_http(&url, dialect) else { continue };
                    proptest::prop_assert!(path.starts_with('/'), "{url:?}: {path:?}");
                    proptest::prop_assert!(path.bytes().all(|b| b.is_ascii_graphic() && b != b'#'), "{url:?}: {path:?}");
                }
            }
        }
    }

    /// Asked of client-go v0.36.3: the request URI of `rest.UnversionedRESTClientFor` with this path of a URL.
    const ASKED: [(&str, &str); 26] = [
        ("", "/"),
        ("/", "/"),
        ("/validate", "/validate"),
        ("/validate/", "/validate"),
        ("//x", "/x"),
        ("/x//y///", "/x/y"),
        ("/./x/.", "/x"),
        ("/a/../b", "/b"),
        ("/../../b", "/b"),
        ("/a/..", "/"),
        ("/a%2Fb", "/a/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/%2F%2Fa", "/a"),
        ("/[x]", "/%5Bx%5D"),
        ("/'x'", "/%27x%27"),
        ("/\"x\"", "/%22x%22"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
        ("/%61", "/a"),
        ("/é", "/%C3%A9"),
        ("/a%3Fb%23c", "/a%3Fb%23c"),
        ("/a%25b", "/a%25b"),
        ("/a%0Ab", "/a%0Ab"),
        ("/$&+,:;=@-_.~", "/$&+,:;=@-_.~"),
        ("/!(*)", "/%21%28%2A%29"),
        ("/<>\\^`{|}", "/%3C%3E%5C%5E%60%7B%7C%7D"),
    ];

    #[test]
    fn a_url_s_path_is_asked_as_client_go_asks_it() {
        for (written, asked) in ASKED {
            assert_eq!(of_url(written), asked, "{written}");
            assert_eq!(of_url(asked), asked, "{written}: what is clean stays as it is");
        }
    }

    #[test]
    fn a_service_s_path_holds_no_escapes() {
        assert_eq!(of_service("/a%2Fb/"), "/a%252Fb");
        assert_eq!(of_service("validate"), "/validate");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_clean_is_a_rooted_path(path in "(\\PC|[%/.]|%2[ef]|\\.\\.){0,24}") {
            let asked = of_url(&path);
            proptest::prop_assert!(asked.starts_with('/') && (asked.len() == 1 || !asked.ends_with('/')), "{asked}");
            proptest::prop_assert!(!asked.split('/').any(|step| step == "." || step == ".."), "{asked}");
            proptest::prop_assert!(!asked.contains("//"), "{asked}");
        }
    }
}
