//! Access: which cluster is meant, and as whom.

use std::{net::IpAddr, path::PathBuf};

use http::Uri;

use super::EtcdError;

/// Port of etcd unless one is given.
// source: etcd's registered client port, https://etcd.io/docs/v3.6/op-guide/configuration/, --listen-client-urls.
const PORT: u16 = 2379;

/// Endpoints of a cluster, trust in them, and credentials. Holds no secret: those stay in their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// `https://host:port` or `http://host:port`, at least one; all of one cluster.
    pub endpoints: Vec<String>,
    /// Files for TLS.
    pub tls: TlsFiles,
    /// The user, where etcd wants one by password. A client certificate's common name may be a user, too.
    pub login: Option<Login>,
    /// Take `http://` endpoints that other machines may listen to, or speak in the place of.
    pub plaintext: bool,
}

/// Files for TLS, in PEM, read again when they have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities that sign the servers' certificates; without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate (with those between it and its authority) and its private key.
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// The file that holds its password; a line break at its end does not count. Read at each login.
    pub password_file: PathBuf,
}

/// One endpoint, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdEndpoint {
    /// As it was written.
    pub(super) written: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl EtcdAccess {
    /// Can these settings be used? Reads no file.
    ///
    /// # Errors
    /// [`EtcdError::Access`].
    pub fn check(&self) -> Result<(), EtcdError> {
        self.places().map(drop)
    }

    pub(super) fn places(&self) -> Result<Vec<EtcdEndpoint>, EtcdError> {
        if self.endpoints.is_empty() {
            return Err(EtcdError::access("the endpoints", "there are none; name one like https://etcd.example:2379"));
        }
        self.endpoints.iter().map(|written| self.place(written)).collect()
    }

    fn place(&self, written: &str) -> Result<EtcdEndpoint, EtcdError> {
        let wrong = |cause: &str| EtcdError::access(&format!("the endpoint {:?}", without_user(written)), cause);
        let uri: Uri = written.parse().map_err(|_| wrong("is not a URL; write one like https://etcd.example:2379"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("does not begin with https:// or http://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(wrong("names a user; give it apart, with its password in a file"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("has a path; give host and port only, and the prefix as --etcd-prefix"));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("names no host"));
        }
        if !tls && !self.plaintext && !is_loopback(&host) {
            return Err(wrong(
                "is plaintext to another machine: anybody on the network path can put any configuration in force; \
                 use https://, or --etcd-plaintext",
            ));
        }
        Ok(EtcdEndpoint { written: written.to_owned(), host, port: uri.port_u16().unwrap_or(PORT), tls })
    }
}

impl EtcdEndpoint {
    /// Authority in the sense of HTTP/2.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A URL may hold a password; it is not repeated.
fn without_user(written: &str) -> String {
    match written.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => written.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(written: &str, plaintext: bool) -> Result<EtcdEndpoint, String> {
        let access = EtcdAccess { endpoints: vec![written.to_owned()], plaintext, ..EtcdAccess::default() };
        access.places().map(|mut places| places.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_are_taken_apart() {
        for (written, authority, tls) in [
            ("https://etcd.example", "etcd.example:2379", true),
            ("https://10.0.0.1:1/", "10.0.0.1:1", true),
            ("http://localhost:2", "localhost:2", false),
            ("http://127.0.0.9:2", "127.0.0.9:2", false),
            ("http://[::1]:2", "[::1]:2", false),
        ] {
            let place = place(written, false).unwrap();
            assert_eq!((&*place.authority(), place.tls, &*place.written), (authority, tls, written));
        }
    }

    #[test]
    fn what_no_endpoint_is_and_what_is_not_safe_is_refused() {
        for (written, words) in [
            ("etcd.example:2379", "does not begin with https://"),
            ("unix:///run/etcd", "is not a URL"),
            ("https://etcd.example/v3", "has a path"),
            ("https://me:hunter2@etcd.example", "names a user"),
            ("http://etcd.example", "is plaintext"),
            ("http://192.0.2.1", "is plaintext"),
            ("https://a b", "is not a URL"),
        ] {
            let message = place(written, false).unwrap_err();
            assert!(message.contains(words) && !message.contains("hunter2"), "{written}: {message}");
        }
        assert!(place("http://etcd.example", true).is_ok());
        assert!(EtcdAccess::default().check().is_err());
    }
}
