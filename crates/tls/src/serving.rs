//! Serving: the server side of TLS that is in force, and its replacement when the files change.
//!
//! The files are compared by what they hold: a mounted Secret is swapped by moving a symlink, which no watch on the
//! files themselves reports. They are not written at one moment, so a certificate may be read with the key of another;
//! such a pair is rejected as any broken one is, the good one stays, and the next look finds both. A certificate that is
//! not valid at present is rejected for as long as the one in force is.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use rustls::{ServerConfig, server::danger::ClientCertVerifier};
use rustls_pki_types::UnixTime;

use super::{
    ALPN_H2, ClientChain, TlsError, clients,
    expiry::{CertificateFault, Expiry},
    files::{Material, ServerFiles},
    server::{self, Clients},
    x509,
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
        let front = server::config(chain, key, clients, files.oldest, &[ALPN_H2, ALPN_HTTP1])?;
        let admin = server::config(chain, key, None, files.oldest, &[ALPN_HTTP1])?;
        let verifier = |Clients { ca_pem, names, optional }| clients::verifier(ca_pem, names, optional);
        let clients = clients.map(verifier).transpose()?;
        let validity = x509::validity(chain);
        Ok(Self { material, number, validity, clients, front, admin })
    }

    fn certificate_fault(&self, at: SystemTime) -> Option<CertificateFault> {
        CertificateFault::at(at, self.validity?)
    }
}
