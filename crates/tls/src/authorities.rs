//! Authorities: the certificates that are trusted, each with what it may vouch for.

use std::{collections::BTreeSet, ops::Deref};

use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, TrustAnchor};

use super::{TlsError, pem, x509::Facts};
use gatepost_api::bundle;

/// A certificate that is trusted.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) facts: Facts,
    /// Trust anchor of webpki.
    pub(super) anchor: TrustAnchor<'static>,
}

/// The certificates that are trusted, in their order; at least one.
#[derive(Debug)]
pub(super) struct Authorities(Vec<Authority>);

impl Authorities {
    /// Authorities of a `caBundle`, as an apiserver reads it: unparsable sections are passed over, and one must be
    /// left.
    ///
    /// # Errors
    /// Fault of a bundle without any.
    pub(super) fn of_bundle(pem: &[u8], what: &'static str) -> Result<Self, TlsError> {
        let found: Vec<_> = bundle::sections(pem).iter().filter_map(Authority::of).collect();
        match found.is_empty() {
            false => Ok(Self(found)),
            true => Err(pem::certificates(pem, what).err().unwrap_or_else(|| unusable(what, 1))),
        }
    }

    /// Authorities of a file of ours, in which nothing may be broken.
    ///
    /// # Errors
    /// `NotPem`, `Empty`, `BadAuthority`.
    pub(super) fn of_file(pem: &[u8], what: &'static str) -> Result<Self, TlsError> {
        let certificates = pem::certificates(pem, what)?;
        let numbered = certificates.iter().zip(1..);
        numbered.map(|(one, number)| Authority::of(one).ok_or_else(|| unusable(what, number))).collect()
    }

    /// Authorities of the system.
    ///
    /// # Errors
    /// `NoSystemRoots`.
    pub(super) fn of_system() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let authorities: Vec<_> = found.certs.iter().filter_map(Authority::of).collect();
        if authorities.is_empty() {
            let causes: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            let cause = if causes.is_empty() { "none are installed".to_owned() } else { causes.join("; ") };
            return Err(TlsError::NoSystemRoots(cause));
        }
        Ok(Self(authorities))
    }

    /// Is this very certificate among them?
    pub(super) fn hold(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.iter().any(|authority| *authority.certificate == **certificate)
    }

    /// Names of the authorities for the handshake: a client that has several certificates chooses by them.
    pub(super) fn names(&self) -> Vec<DistinguishedName> {
        // One that is trusted by itself is recognised by its issuer.
        let issuer = |facts: &Facts| (!facts.is_authority()).then(|| facts.issuer.clone());
        let both = |one: &Authority| [Some(one.facts.subject.clone()), issuer(&one.facts)];
        let names: BTreeSet<Vec<u8>> = self.0.iter().flat_map(both).flatten().collect();
        names.into_iter().map(DistinguishedName::from).collect()
    }
}

impl Deref for Authorities {
    type Target = [Authority];

    fn deref(&self) -> &[Authority] {
        &self.0
    }
}

impl FromIterator<Authority> for Authorities {
    fn from_iter<I: IntoIterator<Item = Authority>>(authorities: I) -> Self {
        Self(authorities.into_iter().collect())
    }
}

impl Authority {
    /// `None` where the certificate cannot be read.
    fn of(certificate: &CertificateDer<'static>) -> Option<Self> {
        let facts = Facts::of(certificate)?;
        let mut store = RootCertStore::empty();
        store.add(certificate.clone()).ok()?;
        Some(Self { certificate: certificate.clone(), facts, anchor: store.roots.pop()? })
    }
}

fn unusable(what: &'static str, number: usize) -> TlsError {
    TlsError::BadAuthority { what, number, cause: "it is not an X.509 certificate".to_owned() }
}
