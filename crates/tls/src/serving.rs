//! Serving: the server side of TLS that is in force, and its replacement when the files change.
//!
//! The files are compared by what they hold: a mounted Secret is swapped by moving a symlink, which no watch on the
//! files themselves reports. They are not written at one moment, so a certificate may be read with the key of another;
//! such a pair is rejected as any broken one is, the good one stays, and the next look finds both. A certificate that is
//! not valid at present is rejected for as long as the one in force is.

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
    ALPN_H2, ClientChain, TlsError,
    expiry::{CertificateFault, Expiry},
    pem, provider, trust as clients, x509,
};

const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The server side of TLS of the front and of the admin pages.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    now: ArcSwap<InForce>,
    /// Fault because of which the newest files are not in force.
    rejected: Mutex<Option<TlsError>>,
}

/// Result of one reading of the files.
#[derive(Debug)]
struct InForce {
    material: Material,
    /// Counts the readings that were put in force.
    number: u64,
    /// Begin and end of the server certificate's validity, where they can be read.
    validity: Option<(SystemTime, SystemTime)>,
    /// Verifier of clients' certificates, where they are asked for.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    front: Arc<ServerConfig>,
    admin: Arc<ServerConfig>,
}

/// Result of a look at the files.
#[derive(Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// They hold what is in force.
    Same,
    /// They hold something new, which is in force for new connections from now on.
    Replaced,
    /// They cannot be used; what was in force stays.
    Rejected {
        /// Fault of the files.
        error: TlsError,
        /// False when the last look came to the same.
        news: bool,
    },
}

impl ServerTls {
    /// Reads the files and puts them in force.
    ///
    /// # Errors
    /// [`TlsError`] for unusable files.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let now = ArcSwap::from_pointee(InForce::new(files.read()?, 1, &files)?);
        Ok(Self { files, now, rejected: Mutex::new(None) })
    }

    /// Configuration for callers' new connections: HTTP/2 and HTTP/1.1 by ALPN.
    pub fn front(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.load().front)
    }

    /// Configuration for operators' new connections: the same pair, HTTP/1.1, no client certificate.
    pub fn admin(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.load().admin)
    }

    /// True where a client that shows these certificates now is let in.
    pub fn accepts(&self, chain: &ClientChain) -> bool {
        let now = self.now.load();
        let Some((clients, (own, others))) = now.clients.as_ref().zip(chain.parts()) else { return false };
        clients.verify_client_cert(own, others, UnixTime::now()).is_ok()
    }

    /// Number of the files in force: another one with every replacement.
    pub fn number(&self) -> u64 {
        self.now.load().number
    }

    /// Fault of the server certificate in force at that time: no client that verifies it gets in.
    pub fn certificate_fault(&self, at: SystemTime) -> Option<CertificateFault> {
        self.now.load().certificate_fault(at)
    }

    /// Reads the files once more and, where they hold something new that is sound at that time, puts that in force.
    /// Blocks.
    pub fn look(&self, at: SystemTime) -> FileCheck {
        let made = self.files.read().and_then(|material| {
            let now = self.now.load();
            if material == now.material {
                return Ok(None);
            }
            let next = InForce::new(material, now.number + 1, &self.files)?;
            match next.certificate_fault(at) {
                Some(fault) if now.certificate_fault(at).is_none() => Err(TlsError::OutOfDate(fault)),
                _ => Ok(Some(next)),
            }
        });
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(made) => {
                *rejected = None;
                made.map_or(FileCheck::Same, |made| {
                    self.now.store(Arc::new(made));
                    FileCheck::Replaced
                })
            }
            Err(error) => {
                let news = rejected.replace(error.clone()).as_ref() != Some(&error);
                FileCheck::Rejected { error, news }
            }
        }
    }

    /// Ends of the certificates in force.
    pub fn expiries(&self) -> Vec<Expiry> {
        let material = &self.now.load().material;
        let texts = [("server", Some(&material.chain)), ("client-ca", material.client_ca.as_ref())];
        let expiry = |(name, text): (&str, Option<&Vec<u8>>)| {
            Some(Expiry { certificate: name.to_owned(), end: x509::first_end(text?)? })
        };
        texts.into_iter().filter_map(expiry).collect()
    }
}

impl InForce {
    fn new(material: Material, number: u64, files: &ServerFiles) -> Result<Self, TlsError> {
        let Material { chain, key, client_ca } = &material;
        let optional = files.certificate_optional;
        let clients = client_ca.as_deref().map(|ca_pem| Clients { ca_pem, names: &files.client_names, optional });
        let front = config(chain, key, clients, files.oldest, &[ALPN_H2, ALPN_HTTP1])?;
        let admin = config(chain, key, None, files.oldest, &[ALPN_HTTP1])?;
        let verifier = |Clients { ca_pem, names, optional }| clients::verifier(ca_pem, names, optional);
        let clients = clients.map(verifier).transpose()?;
        let validity = x509::validity(chain);
        Ok(Self { material, number, validity, clients, front, admin })
    }

    fn certificate_fault(&self, at: SystemTime) -> Option<CertificateFault> {
        CertificateFault::at(at, self.validity?)
    }
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oldest {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3, the newest.
    #[default]
    Tls13,
}

/// The clients that are let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients<'a> {
    /// Authorities that must have signed their certificates.
    pub(super) ca_pem: &'a [u8],
    /// Names, one of which they must have; none is any.
    pub(super) names: &'a [String],
    /// Clients without a certificate are let in as well.
    pub(super) optional: bool,
}

/// The server side of TLS of a hook: HTTP/2 by ALPN, aws-lc-rs, TLS 1.3 (1.2 accepted). With `client_ca_pem` only clients
/// whose certificate one of these authorities has signed get in.
///
/// # Errors
/// [`TlsError`] for unusable material.
pub fn server_config(
    chain_pem: &[u8],
    key_pem: &[u8],
    client_ca_pem: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let clients = client_ca_pem.map(|ca_pem| Clients { ca_pem, names: &[], optional: false });
    config(chain_pem, key_pem, clients, Oldest::Tls12, &[ALPN_H2])
}

/// The server side of TLS, speaking these protocols by ALPN. The key is checked against its certificate.
///
/// # Errors
/// [`TlsError`] for unusable material.
pub(super) fn config(
    chain_pem: &[u8],
    key_pem: &[u8],
    clients: Option<Clients<'_>>,
    oldest: Oldest,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[_] = match oldest {
        Oldest::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        Oldest::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    let builder = match &clients {
        Some(Clients { ca_pem, names, optional }) => {
            builder.with_client_cert_verifier(clients::verifier(ca_pem, names, *optional)?)
        }
        None => builder.with_no_client_auth(),
    };
    let chain = pem::certificates(chain_pem, "server certificate")?;
    let key = pem::private_key(key_pem, "server key")?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::BadPair { what: "server certificate", cause: error.to_string() })?;
    if clients.is_some() {
        // A resumed session shows no certificate, and so would outlive one.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// No certificate, key or bundle of authorities is this large.
const LIMIT: u64 = 16 << 20;

/// Files of the front's key pair and its clients' authority, and the demands on clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate and those between it and its authority, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates, PEM; without it clients show none.
    pub client_ca: Option<PathBuf>,
    /// Names, one of which a client's certificate must have; none is any.
    pub client_names: Vec<String>,
    /// Clients without a certificate are let in as well.
    pub certificate_optional: bool,
    /// The oldest version of TLS that is spoken.
    pub oldest: Oldest,
}

/// Contents of the files.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl fmt::Debug for Material {
    /// Not a byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl ServerFiles {
    /// Reads all of them.
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

/// Contents of the file at `path`.
///
/// # Errors
/// `Unreadable`.
pub fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path, LIMIT)
        .map_err(|cause| TlsError::Unreadable { path: path.display().to_string(), cause: cause.to_string() })
}
