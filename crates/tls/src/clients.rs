//! Clients: verification of callers' certificates.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{
    TlsError,
    authorities::Authorities,
    provider,
    trust::Trust,
    x509::{self, Purpose},
};

/// Lets in whoever shows a certificate that one of these authorities vouches for and, unless `names` is empty, that has
/// one of these names; where certificates are optional, also whoever shows none.
///
/// # Errors
/// [`TlsError`] for unusable authorities.
pub(super) fn verifier(
    ca_pem: &[u8],
    names: &[String],
    optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let authorities = Arc::new(Authorities::of_file(ca_pem, "clients' certificate authority")?);
    let (hints, algorithms) = (authorities.names(), provider().signature_verification_algorithms);
    let trust = Trust { authorities, purpose: Purpose::Client, algorithms };
    Ok(Arc::new(Clients { trust, hints, names: names.to_vec(), optional }))
}

/// Vouched for, and of one of these names; none is any.
#[derive(Debug)]
struct Clients {
    trust: Trust,
    hints: Vec<DistinguishedName>,
    names: Vec<String>,
    optional: bool,
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        !self.optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.trust.judge(end_entity, intermediates, now)?;
        if self.names.is_empty() || x509::is_named(end_entity, &self.names) {
            return Ok(ClientCertVerified::assertion());
        }
        // The peer gets the alert access_denied, RFC 8446's own word for "a valid certificate, but not let in".
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.trust.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.trust.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.algorithms.supported_schemes()
    }
}
