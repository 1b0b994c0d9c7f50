//! URLs, parsed as by Go's `net/url`.

use std::{collections::HashMap, net::Ipv6Addr};

/// Maximum number of parameters in a query, as in Go.
const MAX_QUERY_PARAMETERS: usize = 10_000;

/// A URL, or the path of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: Box<str>,
    /// Host with its port, and with brackets around an IPv6 address.
    pub(super) host: Box<str>,
    pub(super) escaped_path: Box<str>,
    query: Box<str>,
    /// The URL as Go formats it.
    text: Box<str>,
}

/// Component of a URL, which determines its escapes. As `encoding` of Go's `net/url`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Component {
    Path,
    Host,
    Zone,
    UserPassword,
    QueryValue,
    Fragment,
}

/// Scheme, authority, path and query of a text without a fragment.
struct Parts<'t> {
    scheme: String,
    opaque: Option<&'t str>,
    /// User and host.
    authority: Option<(Option<&'t str>, Vec<u8>)>,
    omits_host: bool,
    path: &'t str,
    query: &'t str,
    forces_query: bool,
}

impl Url {
    /// Returns true if the text is a URL with a scheme, or an absolute path. Source: `url.ParseRequestURI`.
    pub(super) fn is_url(text: &str) -> bool {
        parts(text, true).is_some()
    }

    /// Parses a URL. Source: `stringToUrl` in `k8s.io/apiserver/pkg/cel/library/urls.go`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        parts(text, true)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let parts = parts(before, false)?;
        let fragment = escaped(fragment, Component::Fragment)?;
        let path = escaped(parts.path, Component::Path)?;
        let host = parts.authority.as_ref().map_or(&b""[..], |(_, host)| host.as_slice());
        let mut text = String::new();
        if !parts.scheme.is_empty() {
            text.push_str(&parts.scheme);
            text.push(':');
        }
        let user = parts.authority.as_ref().and_then(|(user, _)| *user);
        match parts.opaque {
            Some(opaque) => text.push_str(opaque),
            None => {
                let has_authority = !host.is_empty() || user.is_some();
                let is_left_out = parts.omits_host && !has_authority;
                if (!parts.scheme.is_empty() || has_authority) && !is_left_out {
                    if has_authority || !path.is_empty() {
                        text.push_str("//");
                    }
                    if let Some(user) = user {
                        text.push_str(&written_user(user)?);
                        text.push('@');
                    }
                    text.push_str(&escape(host, Component::Host));
                }
                if text.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
                    text.push_str("./");
                }
                text.push_str(&path);
            }
        }
        if parts.forces_query || !parts.query.is_empty() {
            text.push('?');
            text.push_str(parts.query);
        }
        if !fragment.is_empty() {
            text.push('#');
            text.push_str(&fragment);
        }
        Some(Self {
            scheme: parts.scheme.into(),
            host: String::from_utf8_lossy(host).into(),
            escaped_path: if parts.opaque.is_some() { "".into() } else { path.into() },
            query: parts.query.into(),
            text: text.into(),
        })
    }

    /// Returns the host without port and brackets.
    pub(super) fn hostname(&self) -> &str {
        let (host, _) = self.host_and_port();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(super) fn port(&self) -> &str {
        self.host_and_port().1
    }

    fn host_and_port(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(colon) if is_optional_port(&self.host[colon..]) => (&self.host[..colon], &self.host[colon + 1..]),
            _ => (&self.host, ""),
        }
    }

    /// Returns the parameters of the query, each key once with all its values. Omits invalid parameters.
    pub(super) fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        let mut places = HashMap::<String, usize>::new();
        if self.query.split('&').count() > MAX_QUERY_PARAMETERS {
            return parameters;
        }
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let unescaped = |text| Some(lossy(unescape(text, Component::QueryValue)?));
            let (Some(key), Some(value)) = (unescaped(key), unescaped(value)) else { continue };
            match places.get(&key) {
                Some(place) => parameters[*place].1.push(value),
                None => {
                    places.insert(key.clone(), parameters.len());
                    parameters.push((key, vec![value]));
                }
            }
        }
        parameters
    }

    /// Returns the URL as Go formats it. URLs are equal if their texts are.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Splits a URL. Source: `parse` in Go's `net/url`.
fn parts(text: &str, of_request: bool) -> Option<Parts<'_>> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) || text.is_empty() && of_request {
        return None;
    }
    let mut parts = Parts {
        scheme: String::new(),
        opaque: None,
        authority: None,
        omits_host: false,
        path: "*",
        query: "",
        forces_query: false,
    };
    if text == "*" {
        return Some(parts);
    }
    let (scheme, mut rest) = scheme(text)?;
    parts.scheme = scheme.to_ascii_lowercase();
    match rest.strip_suffix('?') {
        Some(before) if !before.contains('?') => (parts.forces_query, rest) = (true, before),
        _ => (rest, parts.query) = rest.split_once('?').unwrap_or((rest, "")),
    }
    if !rest.starts_with('/') {
        if !parts.scheme.is_empty() {
            return Some(Parts { opaque: Some(rest), path: "", ..parts });
        }
        if of_request || rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return None;
        }
    }
    let may_have_authority = !parts.scheme.is_empty() || !of_request && !rest.starts_with("///");
    match rest.strip_prefix("//").filter(|_| may_have_authority) {
        Some(behind) => {
            let end = behind.find('/').unwrap_or(behind.len());
            parts.authority = Some(authority(&parts.scheme, &behind[..end])?);
            rest = &behind[end..];
        }
        None => parts.omits_host = !parts.scheme.is_empty() && rest.starts_with('/'),
    }
    unescape(rest, Component::Path)?;
    Some(Parts { path: rest, ..parts })
}

/// Returns the scheme, which may be empty, and the rest.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

/// Returns the user, as written, and the host.
fn authority<'t>(scheme: &str, text: &'t str) -> Option<(Option<&'t str>, Vec<u8>)> {
    let Some((user, host)) = text.rsplit_once('@') else { return Some((None, host(scheme, text)?)) };
    let host = self::host(scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return None;
    }
    unescape(user, Component::UserPassword)?;
    Some((Some(user), host))
}

/// Checks and unescapes a host. Source: `parseHost` in Go's `net/url`.
fn host(scheme: &str, text: &str) -> Option<Vec<u8>> {
    match text.rfind('[') {
        Some(0) => {
            let end = text.rfind(']')?;
            let port = &text[end + 1..];
            if !is_optional_port(port) {
                return None;
            }
            let name = text.get(1..end)?;
            let (address, zone) = name.find("%25").map_or((name, ""), |at| name.split_at(at));
            let mut unescaped = unescape(address, Component::Host)?;
            unescaped.extend(unescape(zone, Component::Zone)?);
            let address = std::str::from_utf8(&unescaped).ok()?;
            let (address, zone) =
                address.split_once('%').map_or((address, None), |(before, zone)| (before, Some(zone)));
            if zone.is_some_and(str::is_empty) || address.parse::<Ipv6Addr>().is_err() {
                return None;
            }
            Some([&b"["[..], &unescaped, b"]", port.as_bytes()].concat())
        }
        Some(_) => None,
        None => {
            if let Some(first) = text.find(':') {
                // Several colons were allowed once, and still are in other schemes.
                let colon = if matches!(scheme, "http" | "https") { first } else { text.rfind(':')? };
                if !is_optional_port(&text[colon..]) {
                    return None;
                }
            }
            unescape(text, Component::Host)
        }
    }
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Formats a user as Go does.
fn written_user(user: &str) -> Option<String> {
    let written = |text| Some(escape(&unescape(text, Component::UserPassword)?, Component::UserPassword));
    Some(match user.split_once(':') {
        Some((name, password)) => format!("{}:{}", written(name)?, written(password)?),
        None => written(user)?,
    })
}

/// Escapes a path or fragment as Go does; `None` if it is invalid.
fn escaped(text: &str, component: Component) -> Option<String> {
    let unescaped = unescape(text, component)?;
    let may_stay = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !is_escaped(byte, component);
    if text.bytes().all(may_stay) { Some(text.to_owned()) } else { Some(escape(&unescaped, component)) }
}

fn unescape(text: &str, component: Component) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
                let (high, low) = (digit(at)? as u8, digit(at + 1)? as u8);
                let value = high << 4 | low;
                let is_wrong = match component {
                    Component::Host => high < 8 && value != b'%',
                    Component::Zone => value != b'%' && value != b' ' && is_escaped(value, Component::Host),
                    _ => false,
                };
                if is_wrong {
                    return None;
                }
                plain.push(value);
                at += 2;
            }
            b'+' if component == Component::QueryValue => plain.push(b' '),
            byte if matches!(component, Component::Host | Component::Zone)
                && byte < 0x80
                && is_escaped(byte, component) =>
            {
                return None;
            }
            byte => plain.push(byte),
        }
    }
    Some(plain)
}

fn escape(bytes: &[u8], component: Component) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_escaped(*byte, component) {
            text.push_str(&format!("%{byte:02X}"));
        } else {
            text.push(char::from(*byte));
        }
    }
    text
}

/// Returns true if Go escapes the byte. Source: `shouldEscape` in Go's `net/url`.
fn is_escaped(byte: u8, component: Component) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let plain: &[u8] = match component {
        Component::Path => b"$&+,/:;=@",
        Component::Host | Component::Zone => b"!$&'()*+,;=:[]<>\"",
        Component::UserPassword => b"$&+,;=",
        Component::QueryValue => b"",
        Component::Fragment => b"$&+,/:;=?@!()*",
    };
    !plain.contains(&byte)
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_urls_are_rejected() {
        for text in
            ["", "%", "http://[", "http://[::1", "http://[%25]", "//", "a:", ":", "http://%", "http://a:b:c/", "?", "#"]
        {
            let _ = Url::parse(text);
        }
        assert!(Url::parse("http://[::1%25en0]:80/").is_some() && Url::parse("http://[127.0.0.1]/").is_none());
        assert!(!Url::is_url("a/b") && Url::is_url("/a/b") && Url::is_url("mailto:a"));
    }

    #[test]
    fn url_text_is_that_of_go() {
        for (text, wanted) in [
            ("https://a.b/c d?q=1#f", "https://a.b/c%20d?q=1#f"),
            ("HTTP://u:p%40@a.b:80", "http://u:p%40@a.b:80"),
            ("/a?", "/a?"),
            ("file:///x", "file:///x"),
            ("file:/x", "file:/x"),
            ("mailto:a@b", "mailto:a@b"),
        ] {
            assert_eq!(Url::parse(text).unwrap().text(), wanted, "{text}");
        }
    }
}
