//! Trusted certificates, and the search for a chain from a peer's certificate to one of them.

use std::collections::BTreeSet;

use gatepost_api::bundle;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::RawPublicKeyEntity;

use crate::{
    TlsError, certificates,
    x509::{CertificateDefect, CertificateFields, Purpose, Signed},
};

/// A trusted certificate.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) facts: CertificateFields,
    /// The certificate as a trust anchor of webpki.
    pub(super) anchor: TrustAnchor<'static>,
}

/// The trusted certificates, in the order of their source; at least one.
#[derive(Debug)]
pub(super) struct Authorities(pub(super) Vec<Authority>);

impl Authorities {
    /// Reads the authorities of a `caBundle` as an apiserver does: skips unparsable sections, and requires one
    /// authority.
    ///
    /// # Errors
    /// Fault of a bundle without an authority.
    pub(super) fn of_bundle(pem: &[u8], what: &'static str) -> Result<Self, TlsError> {
        let found: Vec<_> = bundle::sections(pem).iter().filter_map(Authority::of).collect();
        match found.is_empty() {
            false => Ok(Self(found)),
            true => Err(certificates(pem, what).err().unwrap_or_else(|| unusable(what, 1))),
        }
    }

    /// Reads the authorities of one of our own files, each of which must be valid.
    ///
    /// # Errors
    /// `NotPem`, `Empty`, `BadAuthority`.
    pub(super) fn of_file(pem: &[u8], what: &'static str) -> Result<Self, TlsError> {
        let certificates = certificates(pem, what)?;
        let numbered = certificates.iter().zip(1..);
        let read = numbered.map(|(one, number)| Authority::of(one).ok_or_else(|| unusable(what, number)));
        read.collect::<Result<_, _>>().map(Self)
    }

    /// Reads the authorities of the system.
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

    /// Returns true if this certificate is one of the trusted ones.
    pub(super) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.iter().any(|authority| *authority.certificate == **certificate)
    }

    /// Returns the names for the handshake, by which a client with several certificates chooses one.
    pub(super) fn names(&self) -> Vec<DistinguishedName> {
        // A client finds a trusted certificate that is not an authority by its issuer.
        let issuer = |facts: &CertificateFields| (!facts.is_authority()).then(|| facts.issuer.clone());
        let both = |one: &Authority| [Some(one.facts.subject.clone()), issuer(&one.facts)];
        let names: BTreeSet<Vec<u8>> = self.0.iter().flat_map(both).flatten().collect();
        names.into_iter().map(DistinguishedName::from).collect()
    }
}

impl Authority {
    /// Creates an authority; `None` if the certificate cannot be read.
    fn of(certificate: &CertificateDer<'static>) -> Option<Self> {
        let facts = CertificateFields::of(certificate)?;
        let mut store = RootCertStore::empty();
        store.add(certificate.clone()).ok()?;
        Some(Self { certificate: certificate.clone(), facts, anchor: store.roots.pop()? })
    }
}

fn unusable(what: &'static str, number: usize) -> TlsError {
    TlsError::BadAuthority { what, number, cause: "it is not an X.509 certificate".to_owned() }
}

/// Maximum number of signatures checked for one peer. They take at most 5 ms, and no bundle has so many authorities
/// with one name.
const MAX_SIGNATURES: usize = 16;

/// A certificate of a chain.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) der: &'a [u8],
    pub(super) facts: &'a CertificateFields,
}

/// Certificates from which a chain may be built.
pub(super) struct Search<'a> {
    pub(super) roots: Vec<Link<'a>>,
    /// Certificates that the peer has sent besides its own.
    pub(super) shown: Vec<Link<'a>>,
    pub(super) algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    pub(super) purpose: Purpose,
    pub(super) now: UnixTime,
}

/// State of a search.
struct Progress {
    /// Number of signatures that may still be checked.
    signatures: usize,
    /// Reason why the first rejected candidate must not sign.
    defect: Option<CertificateDefect>,
}

impl Search<'_> {
    /// Searches a chain from a peer's certificate to a trusted one. Fails with the reason why the first candidate was
    /// rejected, if there was a candidate.
    pub(super) fn from(&self, peer: Link<'_>) -> Result<(), Option<CertificateDefect>> {
        let mut progress = Progress { signatures: MAX_SIGNATURES, defect: None };
        if self.reaches_root(&[peer], &mut progress) { Ok(()) } else { Err(progress.defect) }
    }

    /// Returns true if a chain that begins with `path` ends at a root.
    fn reaches_root(&self, path: &[Link<'_>], progress: &mut Progress) -> bool {
        let Some(last) = path.last() else { return false };
        let candidates = self.roots.iter().map(|link| (link, true)).chain(self.shown.iter().map(|link| (link, false)));
        for (candidate, root) in candidates {
            let facts = candidate.facts;
            if facts.subject != last.facts.issuer || path.iter().any(|link| link.facts.is_of_same_entity(facts)) {
                continue;
            }
            if let Err(defect) = self.check_issuer(facts, path.len() - 1, root) {
                progress.defect.get_or_insert(defect);
                continue;
            }
            let Some(left) = progress.signatures.checked_sub(1) else { return false };
            progress.signatures = left;
            if self.has_signed(facts, last.der)
                && (root || self.reaches_root(&[path, &[*candidate]].concat(), progress))
            {
                return true;
            }
        }
        false
    }

    fn check_issuer(&self, facts: &CertificateFields, below: usize, root: bool) -> Result<(), CertificateDefect> {
        facts.check_signer(self.now, root)?;
        facts.check_path_length(below)?;
        facts.check_purpose(self.purpose)?;
        if facts.constrained { Err(CertificateDefect::Constrained) } else { Ok(()) }
    }

    fn has_signed(&self, issuer: &CertificateFields, der: &[u8]) -> bool {
        let (Ok(key), Some(signed)) = (RawPublicKeyEntity::try_from(&issuer.key), Signed::of(der)) else {
            return false;
        };
        let fitting = self.algorithms.iter().filter(|one| one.signature_alg_id().as_ref() == signed.algorithm);
        fitting.into_iter().any(|one| key.verify_signature(*one, signed.message, signed.signature).is_ok())
    }
}
