//! Clients: whose certificate gets a caller in.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{TlsError, pem, provider, x509};

/// Lets in whoever shows a certificate signed by one of these authorities and, unless `names` is empty, having one of
/// these names.
///
/// # Errors
/// Whatever of the authorities is unusable.
pub(super) fn verifier(ca_pem: &[u8], names: &[String]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = pem::authorities(ca_pem, "clients' certificate authority")?;
    let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    Ok(if names.is_empty() { signed } else { Arc::new(Named { signed, names: names.to_vec() }) })
}

/// Signed, and of one of these names.
#[derive(Debug)]
struct Named {
    signed: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        if x509::is_named(end_entity, &self.names) {
            return Ok(verified);
        }
        // The peer is told by the alert access_denied, RFC 8446's own word for "a valid certificate, but not let in".
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
