//! Target: our address for an apiserver, and the authority of our certificate.

use std::{fs, net::IpAddr, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateDer, pem::PemObject};

/// The paths where reviews are taken.
const PATHS: [&str; 2] = ["/validate", "/mutate"];

/// A URL an apiserver takes for a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Without a path.
    pub(super) url: String,
    /// Is it this machine, as seen by the apiserver?
    pub(super) loopback: bool,
}

impl std::str::FromStr for Target {
    type Err = String;

    /// Checks what the apiserver would, and that the path is ours. Source: `docs/reference/webhook-semantics.md` §14.
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("https://")
            .ok_or("an apiserver calls webhooks over https only; write https://HOST:PORT")?;
        if rest.contains(['?', '#', '@']) || rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("it must not have a user, query, fragment or space; write https://HOST:PORT".to_owned());
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if !["", "/"].contains(&path) && !PATHS.contains(&path) {
            return Err(format!("Gatepost answers at {} only; leave the path out", PATHS.join(" and ")));
        }
        let parsed: http::uri::Authority = authority.parse().map_err(|_| "it has no host; write https://HOST:PORT")?;
        let port = authority.strip_prefix(parsed.host()).and_then(|rest| rest.strip_prefix(':').or(Some("443")));
        let port = port.and_then(|port| port.parse().ok()).unwrap_or(0u16);
        if parsed.host().is_empty() || port == 0 {
            return Err("it has no host, or a port that is none; write https://HOST:PORT".to_owned());
        }
        let host = parsed.host().trim_start_matches('[').trim_end_matches(']');
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        Ok(Self { url: format!("https://{authority}"), loopback })
    }
}

/// The certificates in a PEM file, in the form a caBundle has.
pub(super) fn ca_bundle(path: &Path) -> Result<String, String> {
    let failed = |what: &str| format!("{}: {what}", path.display());
    let pem = fs::read(path).map_err(|error| failed(&format!("cannot be read: {error}")))?;
    if String::from_utf8_lossy(&pem).contains("PRIVATE KEY-----") {
        return Err(failed("holds a private key, which must not be published; give the authority's certificate alone"));
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(some) if !some.is_empty() => Ok(STANDARD.encode(pem)),
        _ => Err(failed("holds no certificate in PEM; give the authority that signed the certificate of `serve`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_left_out_and_loopback_known() {
        for (text, url, loopback) in [
            ("https://127.0.0.1:9440", "https://127.0.0.1:9440", true),
            ("https://localhost:9440/", "https://localhost:9440", true),
            ("https://[::1]:9440/validate", "https://[::1]:9440", true),
            ("https://gate.example.com/mutate", "https://gate.example.com", false),
            ("https://10.0.0.1:1", "https://10.0.0.1:1", false),
        ] {
            assert_eq!(text.parse(), Ok(Target { url: url.to_owned(), loopback }));
        }
    }

    #[test]
    fn what_an_apiserver_would_refuse_is_refused() {
        for text in [
            "",
            "127.0.0.1:9440",
            "http://127.0.0.1:9440",
            "https://",
            "https://:9440",
            "https://a:0",
            "https://a:",
            "https://a:b",
            "https://u@a",
            "https://a?x",
            "https://a#x",
            "https://a/other",
            "https://a b",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bundle_is_certificates_and_nothing_else() {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = folder.path().join("ca.pem");
            fs::write(&path, text).unwrap();
            ca_bundle(&path)
        };
        assert_eq!(STANDARD.decode(file(&pair.cert.pem()).unwrap()).unwrap(), pair.cert.pem().as_bytes());
        let key = pair.signing_key.serialize_pem();
        let output = file(&(pair.cert.pem() + &key)).unwrap_err();
        assert!(output.contains("private key") && !output.contains(key.lines().nth(1).unwrap()));
        assert!(file("").is_err() && ca_bundle(&folder.path().join("absent")).is_err());
    }
}
