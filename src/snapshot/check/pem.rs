//! Certificates and keys: are they there, are they readable, and do they belong together?

use rustls::{RootCertStore, crypto::aws_lc_rs::default_provider, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

use crate::model::bundle;

/// The certificates in these bytes, at least one; or why there are none to use.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| broken(&error))?;
        if RootCertStore::empty().add(certificate.clone()).is_err() {
            return Err(format!("is broken: its CERTIFICATE section {} holds no X.509 certificate", found.len() + 1));
        }
        found.push(certificate);
    }
    if found.is_empty() { Err("holds no CERTIFICATE section in PEM".into()) } else { Ok(found) }
}

/// Is there an authority in these bytes, whatever else is? If not: why.
pub(crate) fn authority(pem: &[u8]) -> Result<(), String> {
    let is_certificate = |der: CertificateDer<'static>| RootCertStore::empty().add(der).is_ok();
    if bundle::sections(pem).into_iter().any(is_certificate) { Ok(()) } else { certificates(pem).map(drop) }
}

/// The private key in these bytes; or why there is none to use.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) if default_provider().key_provider.load_private_key(key.clone_key()).is_err() => {
            Err("holds a private key that cannot be read, or of a kind that is not known".into())
        }
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) => Err("holds no PRIVATE KEY section in PEM".into()),
        Err(error) => Err(broken(&error)),
    }
}

/// Is this the key of the first of these certificates?
pub(crate) fn belong_together(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> bool {
    CertifiedKey::from_der(chain, key, &default_provider()).is_ok()
}

/// The kind of damage, without a byte of the content.
fn broken(error: &Error) -> String {
    match error {
        Error::MissingSectionEnd { .. } => "is broken PEM: a section has no END line".into(),
        Error::IllegalSectionStart { .. } => "is broken PEM: a BEGIN line is malformed".into(),
        Error::Base64Decode(_) => "is broken PEM: a section is not base64".into(),
        _ => "is broken PEM".into(),
    }
}
