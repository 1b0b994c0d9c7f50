//! Parses certificates and keys in PEM text.

use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

use super::TlsError;

/// Returns the certificates in a PEM text, at least one.
///
/// # Errors
/// `NotPem`, `Empty`.
pub(super) fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|cause| not_pem(what, &cause))?;
    if found.is_empty() {
        return Err(TlsError::Empty { what, label: "CERTIFICATE" });
    }
    Ok(found)
}

/// Returns the first private key in a PEM text. Errors never quote it.
///
/// # Errors
/// `NotPem`, `Empty`.
pub(super) fn private_key(pem: &[u8], what: &'static str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|cause| match cause {
        Error::NoItemsFound => TlsError::Empty { what, label: "PRIVATE KEY" },
        Error::Base64Decode(_) => TlsError::NotPem { what, cause: "damaged base64".to_owned() },
        _ => TlsError::NotPem { what, cause: "damaged section".to_owned() },
    })
}

fn not_pem(what: &'static str, cause: &Error) -> TlsError {
    let cause = match cause {
        Error::MissingSectionEnd { .. } => "a section has no END line",
        Error::IllegalSectionStart { .. } => "a BEGIN line is damaged",
        Error::Base64Decode(_) => "damaged base64",
        _ => "damaged section",
    };
    TlsError::NotPem { what, cause: cause.to_owned() }
}
