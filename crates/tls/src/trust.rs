//! Verifies the certificates of peers, the servers that we dial and the clients that call us, as Go does.

use std::{fmt, ptr, sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage, RequiredEkuNotFoundContext,
    VerifiedPath,
};

use crate::{
    TlsError,
    authorities::{Authorities, Authority, Link, Search},
    provider,
    x509::{self, CertificateDefect, CertificateFields, Purpose, dns_names},
};

/// Authorities, purpose and algorithms by which the certificates of peers are verified.
#[derive(Debug)]
pub(super) struct Trust {
    authorities: Arc<Authorities>,
    purpose: Purpose,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Trust {
    pub(super) fn new(authorities: Arc<Authorities>, purpose: Purpose) -> Self {
        Self { authorities, purpose, algorithms: provider().signature_verification_algorithms }
    }

    /// Verifies a peer with this certificate, which has sent the certificates `shown` with it.
    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let own = |defect| Distrust::own(defect, now);
        let facts = CertificateFields::of(certificate).ok_or(CertificateError::BadEncoding)?;
        let peer = EndEntityCert::try_from(certificate).map_err(rustls_error)?;
        facts.check_validity(now).map_err(own)?;
        facts.check_purpose(self.purpose).map_err(own)?;
        if self.authorities.contains(certificate) {
            return Ok(());
        }
        match facts.is_authority() {
            true => self.judge_authority(Link { der: certificate, facts: &facts }, shown, now),
            false => self.judge_ordinary(&peer, &facts, shown, now),
        }
    }

    fn judge_ordinary(
        &self,
        peer: &EndEntityCert<'_>,
        facts: &CertificateFields,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let fit: Vec<&Authority> =
            self.authorities.0.iter().filter(|authority| authority.facts.check_signer(now, true).is_ok()).collect();
        let anchors: Vec<TrustAnchor<'_>> = fit.iter().map(|authority| borrowed(&authority.anchor)).collect();
        // webpki checks only name constraints of anchors, and no keyUsage of intermediates.
        let is_allowed = |path: &VerifiedPath<'_>| {
            let root = anchors.iter().position(|anchor| ptr::addr_eq(anchor, path.anchor()));
            let root = root.map(|at| &fit[at].facts).ok_or(webpki::Error::UnknownIssuer)?;
            let mut between = 0;
            for certificate in path.intermediate_certificates() {
                between += 1;
                let facts = CertificateFields::of(&certificate.der()).ok_or(webpki::Error::BadDer)?;
                facts.check_signer(now, false).map_err(|_| webpki::Error::EndEntityUsedAsCa)?;
            }
            root.check_path_length(between).map_err(|_| webpki::Error::PathLenConstraintViolated)?;
            root.check_purpose(self.purpose).map_err(|_| Usage(self.purpose).not_among(Vec::new()))?;
            if root.is_of_same_entity(facts) { Err(webpki::Error::UnknownIssuer) } else { Ok(()) }
        };
        let usage = Usage(self.purpose);
        let found =
            peer.verify_for_usage(self.algorithms.all, &anchors, shown, now, usage, None, Some(&is_allowed)).map(drop);
        found.map_err(|error| match error {
            webpki::Error::UnknownIssuer => self.unknown_issuer(facts, shown, None, now),
            error => rustls_error(error),
        })
    }

    fn judge_authority(&self, peer: Link<'_>, shown: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let read: Vec<_> = shown.iter().filter_map(|der| Some((der, CertificateFields::of(der)?))).collect();
        let search = Search {
            roots: self.authorities.0.iter().map(|one| Link { der: &one.certificate, facts: &one.facts }).collect(),
            shown: read.iter().map(|(der, facts)| Link { der, facts }).collect(),
            algorithms: self.algorithms.all,
            purpose: self.purpose,
            now,
        };
        search.from(peer).map_err(|defect| self.unknown_issuer(peer.facts, shown, defect, now))
    }

    /// Returns the error for a peer without a trusted issuer. Its reason is the fault of an authority that has the
    /// issuer's name and must not sign, if there is one.
    fn unknown_issuer(
        &self,
        peer: &CertificateFields,
        shown: &[CertificateDer<'_>],
        defect: Option<CertificateDefect>,
        now: UnixTime,
    ) -> Error {
        let mut issuers: Vec<Vec<u8>> =
            shown.iter().filter_map(|der| Some(CertificateFields::of(der)?.issuer)).collect();
        issuers.insert(0, peer.issuer.clone());
        let named = |authority: &&Authority| issuers.contains(&authority.facts.subject);
        let why = |authority: &Authority| authority.facts.check_signer(now, true).err();
        let defect = self.authorities.0.iter().filter(named).find_map(why).or(defect);
        defect.map_or_else(|| rustls_error(webpki::Error::UnknownIssuer), Distrust::issuer)
    }
}

/// Checks that a trusted certificate is for this name.
pub(super) fn check_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let peer = EndEntityCert::try_from(certificate).map_err(rustls_error)?;
    match peer.verify_is_valid_for_subject_name(name) {
        Err(webpki::Error::CertNotValidForName(_)) if is_under_wildcard(certificate, name) => Ok(()),
        result => result.map_err(rustls_error),
    }
}

/// Returns true if a wildcard of the certificate covers a name of two labels. Go accepts `*.svc` for `hook.svc`, but
/// webpki requires two labels after a wildcard.
fn is_under_wildcard(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(name) = name else { return false };
    let name = name.as_ref();
    let Some((_, rest)) = name.strip_suffix('.').unwrap_or(name).split_once('.') else { return false };
    let covers = |pattern: &String| pattern.strip_prefix("*.").is_some_and(|below| below.eq_ignore_ascii_case(rest));
    !rest.contains('.') && dns_names(certificate).iter().any(covers)
}

/// Returns the anchor without a copy of its bytes.
fn borrowed<'a>(anchor: &'a TrustAnchor<'static>) -> TrustAnchor<'a> {
    TrustAnchor {
        subject: anchor.subject.as_ref().into(),
        subject_public_key_info: anchor.subject_public_key_info.as_ref().into(),
        name_constraints: anchor.name_constraints.as_ref().map(|constraints| constraints.as_ref().into()),
    }
}

/// Verifies servers: their certificate must be trusted, and be for the dialled name.
impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity, intermediates, now)?;
        check_name(end_entity, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns a verifier of clients. It accepts a certificate that is trusted by these authorities and, unless `names` is
/// empty, has one of these names. If certificates are optional, it also accepts clients without one.
///
/// # Errors
/// [`TlsError`] for unusable authorities.
pub(super) fn verifier(
    ca_pem: &[u8],
    names: &[String],
    optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let authorities = Arc::new(Authorities::of_file(ca_pem, "clients' certificate authority")?);
    let hints = authorities.names();
    let trust = Trust::new(authorities, Purpose::Client);
    Ok(Arc::new(ClientVerifier { trust, hints, names: names.to_vec(), optional }))
}

/// Verifier of clients. Accepts a trusted certificate with one of `names`, or with any name if `names` is empty.
#[derive(Debug)]
struct ClientVerifier {
    trust: Trust,
    hints: Vec<DistinguishedName>,
    names: Vec<String>,
    optional: bool,
}

impl ClientCertVerifier for ClientVerifier {
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
        // The peer gets the alert access_denied, which RFC 8446 defines for a valid certificate without access.
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

/// id-kp-serverAuth, 1.3.6.1.5.5.7.3.1.
const SERVER: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 1]);

/// id-kp-clientAuth, 1.3.6.1.5.5.7.3.2.
const CLIENT: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);

/// anyExtendedKeyUsage, 2.5.29.37.0.
const ANY: KeyPurposeId<'static> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);

/// Validator of extendedKeyUsages. Accepts this purpose, any purpose, or no extendedKeyUsage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage(pub(super) Purpose);

impl Usage {
    /// Returns the error for an extendedKeyUsage with the purposes `present`, but without this one.
    fn not_among(self, present: Vec<Vec<usize>>) -> webpki::Error {
        let required = match self.0 {
            Purpose::Server => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present })
    }
}

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let wanted = match self.0 {
            Purpose::Server => SERVER,
            Purpose::Client => CLIENT,
        };
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == wanted || purpose == ANY {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        if present.is_empty() { Ok(()) } else { Err(self.not_among(present)) }
    }
}

/// Fault of a peer's certificate, or of its issuer's.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{whose} {defect}")]
pub(super) struct Distrust {
    whose: &'static str,
    defect: CertificateDefect,
}

impl Distrust {
    /// Returns the error for a fault of the peer's own certificate.
    pub(super) fn own(defect: CertificateDefect, now: UnixTime) -> Error {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        match defect {
            CertificateDefect::NotYetValid(begin) => {
                CertificateError::NotValidYetContext { time: now, not_before: at(begin) }
            }
            CertificateDefect::Expired(end) => CertificateError::ExpiredContext { time: now, not_after: at(end) },
            defect => return Self::of("its certificate", defect),
        }
        .into()
    }

    /// Returns the error for a fault of the certificate of the peer's authority.
    pub(super) fn issuer(defect: CertificateDefect) -> Error {
        Self::of("the certificate of its authority", defect)
    }

    fn of(whose: &'static str, defect: CertificateDefect) -> Error {
        CertificateError::Other(OtherError(Arc::new(Self { whose, defect }))).into()
    }
}

impl fmt::Debug for Distrust {
    /// Same text as `Display`, because rustls formats the causes of its errors with `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Converts an error of webpki as rustls does.
pub(super) fn rustls_error(error: webpki::Error) -> Error {
    use webpki::Error as Why;
    match error {
        Why::BadDer | Why::BadDerTime | Why::TrailingData(_) => CertificateError::BadEncoding,
        Why::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        Why::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        Why::UnknownIssuer => CertificateError::UnknownIssuer,
        Why::CertNotValidForName(context) => {
            CertificateError::NotValidForNameContext { expected: context.expected, presented: context.presented }
        }
        Why::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Why::UnsupportedCriticalExtension => CertificateError::UnhandledCriticalExtension,
        Why::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        Why::UnsupportedSignatureAlgorithmContext(_) | Why::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            return Distrust::of("its certificate, or one above it,", CertificateDefect::Signature);
        }
        other => CertificateError::Other(OtherError(Arc::new(other))),
    }
    .into()
}
