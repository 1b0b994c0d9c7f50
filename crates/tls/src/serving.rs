//! The server side of TLS: the configuration in use, and its replacement when the files change.
//!
//! The files are compared by content, because a mounted Secret is replaced by moving a symlink, which a watch on the
//! files does not report. They are not written at one moment, so a certificate may be read with the key of another.
//! Such a pair is rejected like any invalid one, the former pair stays in use, and the next check reads both new files.
//! A certificate that is not valid now is rejected as long as the one in use is valid.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use gatepost_base::files;
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, danger::ClientCertVerifier},
};
use rustls_pki_types::UnixTime;

use crate::{
    ALPN_H2, ALPN_HTTP1, ClientChain, TlsError, certificates,
    expiry::{CertificateFault, Expiry},
    private_key, provider, trust, x509,
};

/// The server side of TLS of the front and of the admin pages.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    active: ArcSwap<ActiveTls>,
    /// Error because of which the newest files are not in use.
    rejected: Mutex<Option<TlsError>>,
}

/// Configurations from one read of the files.
#[derive(Debug)]
struct ActiveTls {
    material: Material,
    /// Number of the configurations: 1 at first, then incremented by every replacement.
    number: u64,
    /// Begin and end of the server certificate's validity, if readable.
    validity: Option<(SystemTime, SystemTime)>,
    /// Verifier of clients' certificates, if they are requested.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    front: Arc<ServerConfig>,
    admin: Arc<ServerConfig>,
}

/// Result of checking the files.
#[derive(Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// The contents are those in use.
    Same,
    /// The contents are new, and in use for new connections from now on.
    Replaced,
    /// The contents are unusable. The former ones stay in use.
    Rejected {
        /// Fault of the files.
        error: TlsError,
        /// False if the last check had the same result.
        news: bool,
    },
}

impl ServerTls {
    /// Reads the files and creates the configurations.
    ///
    /// # Errors
    /// [`TlsError`] for unusable files.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let active = ArcSwap::from_pointee(ActiveTls::new(files.read()?, 1, &files)?);
        Ok(Self { files, active, rejected: Mutex::new(None) })
    }

    /// Returns the configuration for new connections of callers: HTTP/2 and HTTP/1.1 by ALPN.
    pub fn front(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.active.load().front)
    }

    /// Returns the configuration for new connections of operators: the same key pair, HTTP/1.1, no client certificate.
    pub fn admin(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.active.load().admin)
    }

    /// Returns true if a client with these certificates is accepted now.
    pub fn accepts(&self, chain: &ClientChain) -> bool {
        let active = self.active.load();
        let Some((clients, (own, others))) = active.clients.as_ref().zip(chain.parts()) else { return false };
        clients.verify_client_cert(own, others, UnixTime::now()).is_ok()
    }

    /// Returns the number of the configurations in use, which every replacement changes.
    pub fn number(&self) -> u64 {
        self.active.load().number
    }

    /// Returns the fault at time `at` of the server certificate in use, which clients that verify it reject.
    pub fn certificate_fault(&self, at: SystemTime) -> Option<CertificateFault> {
        self.active.load().certificate_fault(at)
    }

    /// Reads the files again and uses them for new connections if they are new and usable at time `at`. Blocks.
    pub fn reload(&self, at: SystemTime) -> FileCheck {
        let made = self.files.read().and_then(|material| {
            let active = self.active.load();
            if material == active.material {
                return Ok(None);
            }
            let next = ActiveTls::new(material, active.number + 1, &self.files)?;
            match next.certificate_fault(at) {
                Some(fault) if active.certificate_fault(at).is_none() => Err(TlsError::OutOfDate(fault)),
                _ => Ok(Some(next)),
            }
        });
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(made) => {
                *rejected = None;
                made.map_or(FileCheck::Same, |made| {
                    self.active.store(Arc::new(made));
                    FileCheck::Replaced
                })
            }
            Err(error) => {
                let news = rejected.replace(error.clone()).as_ref() != Some(&error);
                FileCheck::Rejected { error, news }
            }
        }
    }

    /// Returns the ends of the certificates in use.
    pub fn expiries(&self) -> Vec<Expiry> {
        let material = &self.active.load().material;
        let texts = [("server", Some(&material.chain)), ("client-ca", material.client_ca.as_ref())];
        let expiry = |(name, text): (&str, Option<&Vec<u8>>)| {
            Some(Expiry { certificate: name.to_owned(), end: x509::first_end(text?)? })
        };
        texts.into_iter().filter_map(expiry).collect()
    }
}

impl ActiveTls {
    fn new(material: Material, number: u64, files: &ServerFiles) -> Result<Self, TlsError> {
        let Material { chain, key, client_ca } = &material;
        let verifier = |ca_pem| trust::verifier(ca_pem, &files.client_names, files.certificate_optional);
        let clients = client_ca.as_deref().map(verifier).transpose()?;
        let front = config(chain, key, clients.clone(), files.oldest, &[ALPN_H2, ALPN_HTTP1])?;
        let admin = config(chain, key, None, files.oldest, &[ALPN_HTTP1])?;
        let validity = x509::validity(chain);
        Ok(Self { material, number, validity, clients, front, admin })
    }

    fn certificate_fault(&self, at: SystemTime) -> Option<CertificateFault> {
        CertificateFault::at(at, self.validity?)
    }
}

/// Minimum version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinTlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3, the newest version.
    #[default]
    Tls13,
}

/// Returns the server configuration of a hook: HTTP/2 by ALPN, aws-lc-rs, TLS 1.3 (1.2 accepted). With `client_ca_pem`,
/// only clients whose certificate one of these authorities has signed are accepted.
///
/// # Errors
/// [`TlsError`] for unusable material.
pub fn server_config(
    chain_pem: &[u8],
    key_pem: &[u8],
    client_ca_pem: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let clients = client_ca_pem.map(|ca_pem| trust::verifier(ca_pem, &[], false)).transpose()?;
    config(chain_pem, key_pem, clients, MinTlsVersion::Tls12, &[ALPN_H2])
}

/// Returns a server configuration with these ALPN protocols. Checks the key against its certificate.
///
/// # Errors
/// [`TlsError`] for unusable material.
fn config(
    chain_pem: &[u8],
    key_pem: &[u8],
    clients: Option<Arc<dyn ClientCertVerifier>>,
    oldest: MinTlsVersion,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[_] = match oldest {
        MinTlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        MinTlsVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    let has_clients = clients.is_some();
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let chain = certificates(chain_pem, "server certificate")?;
    let key = private_key(key_pem, "server key")?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::BadPair { what: "server certificate", cause: error.to_string() })?;
    if has_clients {
        // A resumed session sends no certificate, and so could outlive the certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Maximum size of a file in bytes. No certificate, key or bundle of authorities is this large.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Files of the front's key pair and of its clients' authorities, and the requirements on clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Server certificate and its intermediates, PEM.
    pub cert: PathBuf,
    /// Private key of the certificate, PEM.
    pub key: PathBuf,
    /// Authorities that sign clients' certificates, PEM; if `None`, clients are asked for no certificate.
    pub client_ca: Option<PathBuf>,
    /// Names of which a client's certificate must have one; any name if empty.
    pub client_names: Vec<String>,
    /// True if clients without a certificate are accepted, too.
    pub certificate_optional: bool,
    /// Minimum version of TLS.
    pub oldest: MinTlsVersion,
}

/// Contents of the files.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl fmt::Debug for Material {
    /// Prints none of the contents, which include the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl ServerFiles {
    /// Reads all files.
    ///
    /// # Errors
    /// `Unreadable`.
    pub(super) fn read(&self) -> Result<Material, TlsError> {
        Ok(Material {
            chain: read_file(&self.cert)?,
            key: read_file(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read_file).transpose()?,
        })
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// `Unreadable`.
pub fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path, MAX_FILE_BYTES)
        .map_err(|cause| TlsError::Unreadable { path: path.display().to_string(), cause: cause.to_string() })
}
