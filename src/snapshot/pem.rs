//! Certificates and keys: are they there, and are they PEM?

use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

/// Why these bytes hold no usable certificates, if they do not.
pub(super) fn no_certificates(pem: &[u8]) -> Option<String> {
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        match certificate {
            Ok(_) => found += 1,
            Err(error) => return Some(broken(&error)),
        }
    }
    (found == 0).then(|| "holds no CERTIFICATE section in PEM".into())
}

/// Why these bytes hold no private key, if they do not.
pub(super) fn no_private_key(pem: &[u8]) -> Option<String> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(_) => None,
        Err(Error::NoItemsFound) => Some("holds no PRIVATE KEY section in PEM".into()),
        Err(error) => Some(broken(&error)),
    }
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
