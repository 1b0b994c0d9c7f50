//! Endpoints of the cluster, credentials, and the TLS configuration made from the current files.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gatepost_api::hook::{EndpointTls, Transport};
use gatepost_base::files::{BlockingReads, ReadFailure};
use gatepost_tls::{self as tls, SystemRoots, TlsError, client_config};
use http::Uri;
use rustls::ClientConfig;

use crate::EtcdError;

/// Default port of etcd.
// source: etcd's registered client port, https://etcd.io/docs/v3.6/op-guide/configuration/, --listen-client-urls.
const PORT: u16 = 2379;

/// Endpoints of a cluster, and the paths of the trusted authorities and credentials. Contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// At least one `https://host:port` or `http://host:port`, all of one cluster.
    pub endpoints: Vec<String>,
    /// Paths of the TLS files.
    pub tls: TlsFiles,
    /// User and password file, if etcd requires a login. A client certificate's common name can name a user, too.
    pub login: Option<Login>,
    /// Allow `http://` endpoints on other machines, where others can read or impersonate the traffic.
    pub plaintext: bool,
}

/// Paths of PEM files for TLS. Changed files are reloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that sign the servers' certificates; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate (with its intermediates) and its private key.
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub user: String,
    /// File with the password, read at each login. A line break at its end is ignored.
    pub password_file: PathBuf,
}

/// A parsed endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdEndpoint {
    /// URL as configured.
    pub(super) written: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl EtcdAccess {
    /// Checks the settings. Reads no file.
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
    /// Returns the authority in the sense of HTTP/2.
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

/// Returns the URL without its userinfo, which may contain a password.
fn without_user(written: &str) -> String {
    match written.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => written.to_owned(),
    }
}

/// Minimum interval between reloads of the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// TLS configuration of each endpoint; `None` for a plaintext one.
type Configs = Arc<[Option<Arc<ClientConfig>>]>;

/// TLS configuration of each endpoint; the number grows with every change.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) configs: Configs,
}

/// TLS files and the configuration made from them. Changed files apply once they are valid.
#[derive(Debug)]
pub(super) struct Trust {
    files: TlsFiles,
    places: Vec<Arc<EtcdEndpoint>>,
    /// Runs the reloads, of which some may hang.
    reads: BlockingReads,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    material: Material,
    version: Version,
    reloaded_at: Instant,
    /// Whether a reload is running.
    is_reloading: bool,
    /// Error of the last reload, logged once.
    error: Option<TlsError>,
}

/// Contents of the files: authorities, certificate and key.
#[derive(PartialEq, Eq)]
struct Material {
    ca: Option<Pem>,
    pair: Option<(Pem, Pem)>,
}

type Pem = Arc<[u8]>;

impl std::fmt::Debug for Material {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads the files and builds the configuration of each endpoint.
    pub(super) fn load(files: TlsFiles, places: Vec<Arc<EtcdEndpoint>>) -> Result<Self, EtcdError> {
        let material = Material::read(&files).map_err(EtcdError::Tls)?;
        let configs = material.configs(&places).map_err(EtcdError::Tls)?;
        let version = Version { number: 0, configs };
        let state = State { material, version, reloaded_at: Instant::now(), is_reloading: false, error: None };
        Ok(Self { files, places, reads: BlockingReads::default(), state: Mutex::new(state) })
    }

    /// Returns the current TLS configuration. Starts a reload if one is due. Changed files apply to later calls, so
    /// that no call waits for a file.
    pub(super) fn current(self: &Arc<Self>) -> Version {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_files = self.files != TlsFiles::default();
        if has_files && !state.is_reloading && state.reloaded_at.elapsed() >= RELOAD_INTERVAL {
            state.is_reloading = true;
            let trust = Arc::clone(self);
            tokio::spawn(trust.reload());
        }
        state.version.clone()
    }

    /// Returns the contents of the files and their configuration; `None` if the contents have not changed. Blocks.
    fn read_changed(&self) -> Result<Option<(Material, Configs)>, TlsError> {
        let read = Material::read(&self.files)?;
        if self.state.lock().unwrap_or_else(PoisonError::into_inner).material == read {
            return Ok(None);
        }
        let configs = read.configs(&self.places)?;
        Ok(Some((read, configs)))
    }

    async fn reload(self: Arc<Self>) {
        let files = Arc::clone(&self);
        let unread =
            |why: ReadFailure| TlsError::Unreadable { path: "the TLS files".to_owned(), cause: why.to_string() };
        let found =
            self.reads.run(RELOAD_TIMEOUT, move || files.read_changed()).await.unwrap_or_else(|why| Err(unread(why)));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_reloading = false;
        state.reloaded_at = Instant::now();
        match found {
            Ok(changed) => {
                state.error = None;
                if let Some((material, configs)) = changed {
                    tracing::info!("the TLS files for etcd have changed; reconnecting");
                    state.material = material;
                    state.version = Version { number: state.version.number + 1, configs };
                }
            }
            Err(error) => {
                if state.error.as_ref() != Some(&error) {
                    let fix = error.fix();
                    tracing::warn!(%error, fix, "the TLS files for etcd are not valid; the last good ones stay in \
                                                 use");
                }
                state.error = Some(error);
            }
        }
    }
}

impl Material {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let pair = |(cert, key): &(_, _)| Ok((read(cert)?, read(key)?));
        Ok(Self { ca: files.ca.as_deref().map(read).transpose()?, pair: files.pair.as_ref().map(pair).transpose()? })
    }

    fn configs(&self, places: &[Arc<EtcdEndpoint>]) -> Result<Configs, TlsError> {
        let system = SystemRoots::default();
        let config = |place: &Arc<EtcdEndpoint>| {
            let tls = EndpointTls {
                server_name: place.host.as_str().into(),
                ca_pem: self.ca.clone(),
                client_pem: self.pair.clone(),
            };
            place.tls.then(|| client_config(&tls, Transport::Grpc, &system)).transpose()
        };
        places.iter().map(config).collect()
    }
}

fn read(path: impl AsRef<Path>) -> Result<Pem, TlsError> {
    tls::read_file(path.as_ref()).map(Arc::from)
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
