//! The URLs of gRPC hooks: `grpc://`, `grpcs://`, `unix://`; and what all URLs have in common.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    model::{
        Endpoint, Transport,
        hook::{Address, EndpointTls},
    },
    snapshot::document::problem::quoted,
};

/// Reason why a URL cannot name a hook, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, {why}; {fix}")]
pub struct UrlProblem {
    /// Fault of the URL.
    pub what: String,
    /// Reason, as in a [`Problem`](crate::snapshot::Problem).
    pub why: &'static str,
    /// Advice on the fault.
    pub fix: String,
}

/// Reason where no address can be made of what is written.
pub(crate) const UNREACHABLE: &str = "so the hook could not be called";

pub(crate) fn problem<T>(what: impl Into<String>, why: &'static str, fix: impl Into<String>) -> Result<T, UrlProblem> {
    Err(UrlProblem { what: what.into(), why, fix: fix.into() })
}

/// Reads a hook's URL: `grpc://host:port` (plaintext), `grpcs://host[:port]` (TLS, port 443 unless said, verified
/// against the system's authorities and the host's name) or `unix:///absolute/path` (plaintext).
///
/// # Errors
/// Any other scheme; a missing or malformed host or port; a user, path, query or fragment, which gRPC has no use for.
pub fn parse_url(url: &str) -> Result<Endpoint, UrlProblem> {
    parse(url, "write grpc://host:port, grpcs://host:port or unix:///path")
}

/// The same where a hook may also be asked over HTTP.
///
/// # Errors
/// As [`parse_url`]; the fix names all schemes.
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
    Ok(Endpoint { address: socket(path)?, tls: None, transport: Transport::Grpc })
}

/// A unix socket's path.
pub(crate) fn socket(path: &str) -> Result<Address, UrlProblem> {
    /// `sun_path` of a socket address on Linux, less its terminator.
    const LONGEST: usize = 107;
    if !path.starts_with('/') {
        return problem(
            "the socket's path is not absolute",
            "so it would depend on where Gatepost was started",
            "write three slashes: unix:///run/hook.sock",
        );
    }
    if path.len() > LONGEST || path.contains('\0') {
        return problem(
            format!("the socket's path is longer than {LONGEST} bytes, or holds a zero"),
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

/// An endpoint whose certificate, where there is one, must carry the host's name.
pub(crate) fn place(host: &str, port: u16, tls: bool, transport: Transport) -> Endpoint {
    let tls = tls.then(|| EndpointTls { server_name: certified(host).into(), ca_pem: None, client_pem: None });
    Endpoint { address: Address::Tcp { host: host.into(), port }, tls, transport }
}

/// Host and port.
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

/// Name in the certificate of a host. A dot behind a name makes it an absolute one, and is only for whoever looks it
/// up.
pub(crate) fn certified(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// A DNS name (either case, `_` tolerated, absolute or not) or an IP address without brackets.
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
}
