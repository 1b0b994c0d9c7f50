//! The URLs of hooks that are asked over HTTP: `https://`, `http://` on this machine, `http+unix://`.

use std::{fmt::Write as _, net::IpAddr};

use super::{
    clean_path,
    url::{UNREACHABLE, UrlProblem, authority, place, problem, socket},
};
use crate::{
    model::{Endpoint, Transport},
    snapshot::document::{dialect::Dialect, problem::quoted},
};

/// Endpoint of a hook, and the path at which it is asked.
pub(crate) type HttpPlace = (Endpoint, String);

/// Reads `https://host[:port][/path]`; in our own form also `http://` to this machine's own addresses,
/// `http+unix:///socket[:/path]`, and a query.
pub(crate) fn parse(url: &str, dialect: Dialect) -> Result<HttpPlace, UrlProblem> {
    let example = match dialect {
        Dialect::Gatepost => "write https://host:port/path, http://127.0.0.1:port/path or http+unix:///socket:/path",
        Dialect::Kubernetes => "write https://host:port/path",
    };
    let Some((scheme, rest)) = url.split_once("://") else {
        return problem(format!("{} is not a URL", quoted(url)), UNREACHABLE, example);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "https" => tcp(rest, dialect, true),
        "http" if dialect == Dialect::Gatepost => tcp(rest, dialect, false),
        "http+unix" if dialect == Dialect::Gatepost => unix(rest),
        _ => {
            let why = match dialect {
                Dialect::Gatepost => UNREACHABLE,
                Dialect::Kubernetes => "since kube-apiserver calls webhooks over TLS alone",
            };
            problem(format!("the scheme {} is not allowed here", quoted(scheme)), why, example)
        }
    }
}

fn tcp(rest: &str, dialect: Dialect, tls: bool) -> Result<HttpPlace, UrlProblem> {
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

fn unix(rest: &str) -> Result<HttpPlace, UrlProblem> {
    let (written, after) = rest.split_at(rest.find(":/").unwrap_or(rest.len()));
    let endpoint = Endpoint { address: socket(written)?, tls: None, transport: Transport::Http };
    Ok((endpoint, path(after.strip_prefix(':').unwrap_or(after), Dialect::Gatepost)?))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Path behind the host, fit for a request's first line: begins with `/`, non-ASCII characters are escaped. A webhook's
/// is cleaned as kube-apiserver cleans it; in our own form it is asked as it is written, a slash at the end included.
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
        return Ok(clean_path::of_url(path));
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

/// The first `%` without two hexadecimal digits.
fn broken_escape(text: &str) -> Option<&str> {
    let escapes = text.match_indices('%').map(|(at, _)| &text[at..]);
    let good = |escape: &str| escape.len() > 2 && escape.bytes().skip(1).take(2).all(|b| b.is_ascii_hexdigit());
    escapes.filter(|escape| !good(escape)).map(|escape| escape.get(..3).unwrap_or(escape)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

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
                parse(url, Dialect::Gatepost).unwrap_or_else(|problem| panic!("{url}: {problem}"));
            assert_eq!((endpoint.to_string().as_str(), written.as_str()), (place, path), "{url}");
        }
    }

    #[test]
    fn a_webhooks_path_is_cleaned() {
        for (url, path) in
            [("https://h/validate/", "/validate"), ("https://h//a/../b%2Fc?", "/b/c"), ("https://h", "/")]
        {
            assert_eq!(parse(url, Dialect::Kubernetes).map(|(_, path)| path), Ok(path.into()), "{url}");
        }
    }

    #[test]
    fn a_dot_behind_a_host_is_no_part_of_its_certificate_s_name() {
        for dialect in [Dialect::Gatepost, Dialect::Kubernetes] {
            let (endpoint, _) = parse("https://h.example.com.:8443/v", dialect).expect("a host");
            assert_eq!(endpoint.to_string(), "https://h.example.com.:8443", "it is looked up as written");
            assert_eq!(&*endpoint.tls.expect("TLS").server_name, "h.example.com");
            for wrong in ["https://.", "https://h..", "https://h..example.com"] {
                assert!(parse(wrong, dialect).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn every_other_url_is_refused_with_a_reason() {
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
            let problem = parse(url, Dialect::Gatepost).expect_err(url);
            assert!(problem.what.contains(reason), "{url}: {problem}");
        }
        for (url, reason) in [("https://h?a=b", "query"), ("http://127.0.0.1", "scheme"), ("http+unix:///x", "scheme")]
        {
            let problem = parse(url, Dialect::Kubernetes).expect_err(url);
            assert!(problem.what.contains(reason), "{url}: {problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_asked_is_fit_for_the_first_line_of_a_request(rest in "(\\PC|[%/?#:@. \"\n\u{e9}a0]){0,24}") {
            for dialect in [Dialect::Gatepost, Dialect::Kubernetes] {
                for url in [rest.clone(), format!("https://h{rest}"), format!("http+unix:///{rest}")] {
                    let Ok((_, path)) = parse(&url, dialect) else { continue };
                    proptest::prop_assert!(path.starts_with('/'), "{url:?}: {path:?}");
                    proptest::prop_assert!(path.bytes().all(|b| b.is_ascii_graphic() && b != b'#'), "{url:?}: {path:?}");
                }
            }
        }
    }
}
