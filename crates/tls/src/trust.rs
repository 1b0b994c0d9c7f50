//! Verification of peers: servers that we dial and clients that call us, as Go judges their certificates.

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
    x509::{self, Facts, Purpose, Unfit, dns_names},
};

/// Which peers are believed.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) authorities: Arc<Authorities>,
    pub(super) purpose: Purpose,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Trust {
    /// Is a peer believed that shows this certificate, and these beside it?
    pub(super) fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let own = |unfit| Distrust::own(unfit, now);
        let facts = Facts::of(certificate).ok_or_else(Distrust::unreadable)?;
        let peer = EndEntityCert::try_from(certificate).map_err(refused)?;
        facts.in_force(now).map_err(own)?;
        facts.serves(self.purpose).map_err(own)?;
        if self.authorities.hold(certificate) {
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
        facts: &Facts,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let fit: Vec<&Authority> =
            self.authorities.iter().filter(|authority| authority.facts.may_sign(now, true).is_ok()).collect();
        let anchors: Vec<TrustAnchor<'_>> = fit.iter().map(|authority| borrowed(&authority.anchor)).collect();
        // Of what is in an anchor webpki looks at name constraints only, and of what is between at no keyUsage.
        let is_allowed = |path: &VerifiedPath<'_>| {
            let root = anchors.iter().position(|anchor| ptr::addr_eq(anchor, path.anchor()));
            let root = root.map(|at| &fit[at].facts).ok_or(webpki::Error::UnknownIssuer)?;
            let mut between = 0;
            for certificate in path.intermediate_certificates() {
                between += 1;
                let facts = Facts::of(&certificate.der()).ok_or(webpki::Error::BadDer)?;
                facts.may_sign(now, false).map_err(|_| webpki::Error::EndEntityUsedAsCa)?;
            }
            root.may_be_above(between).map_err(|_| webpki::Error::PathLenConstraintViolated)?;
            root.serves(self.purpose).map_err(|_| Usage(self.purpose).missing())?;
            if root.is_of_same_entity(facts) { Err(webpki::Error::UnknownIssuer) } else { Ok(()) }
        };
        let usage = Usage(self.purpose);
        let found =
            peer.verify_for_usage(self.algorithms.all, &anchors, shown, now, usage, None, Some(&is_allowed)).map(drop);
        found.map_err(|error| match error {
            webpki::Error::UnknownIssuer => self.unknown_issuer(facts, shown, None, now),
            error => refused(error),
        })
    }

    fn judge_authority(&self, peer: Link<'_>, shown: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let read: Vec<_> = shown.iter().filter_map(|der| Some((der, Facts::of(der)?))).collect();
        let search = Search {
            roots: self.authorities.iter().map(|one| Link { der: &one.certificate, facts: &one.facts }).collect(),
            shown: read.iter().map(|(der, facts)| Link { der, facts }).collect(),
            algorithms: self.algorithms.all,
            purpose: self.purpose,
            now,
        };
        search.from(peer).map_err(|unfit| self.unknown_issuer(peer.facts, shown, unfit, now))
    }

    /// Error for a peer without a trusted issuer, with the reason where an authority has the issuer's name and may not
    /// sign.
    fn unknown_issuer(&self, peer: &Facts, shown: &[CertificateDer<'_>], unfit: Option<Unfit>, now: UnixTime) -> Error {
        let mut issuers: Vec<Vec<u8>> = shown.iter().filter_map(|der| Some(Facts::of(der)?.issuer)).collect();
        issuers.insert(0, peer.issuer.clone());
        let named = |authority: &&Authority| issuers.contains(&authority.facts.subject);
        let why = |authority: &Authority| authority.facts.may_sign(now, true).err();
        let unfit = self.authorities.iter().filter(named).find_map(why).or(unfit);
        unfit.map_or_else(|| refused(webpki::Error::UnknownIssuer), Distrust::issuer)
    }
}

/// Is a certificate that is believed one for this name?
pub(super) fn is_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let peer = EndEntityCert::try_from(certificate).map_err(refused)?;
    match peer.verify_is_valid_for_subject_name(name) {
        Err(webpki::Error::CertNotValidForName(_)) if is_under_wildcard(certificate, name) => Ok(()),
        result => result.map_err(refused),
    }
}

/// webpki wants two labels behind a wildcard; Go takes `*.svc` for `hook.svc`.
fn is_under_wildcard(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(name) = name else { return false };
    let name = name.as_ref();
    let Some((_, rest)) = name.strip_suffix('.').unwrap_or(name).split_once('.') else { return false };
    let covers = |pattern: &String| pattern.strip_prefix("*.").is_some_and(|below| below.eq_ignore_ascii_case(rest));
    !rest.contains('.') && dns_names(certificate).iter().any(covers)
}

/// The same anchor, without a copy of its bytes.
fn borrowed<'a>(anchor: &'a TrustAnchor<'static>) -> TrustAnchor<'a> {
    TrustAnchor {
        subject: anchor.subject.as_ref().into(),
        subject_public_key_info: anchor.subject_public_key_info.as_ref().into(),
        name_constraints: anchor.name_constraints.as_ref().map(|constraints| constraints.as_ref().into()),
    }
}

/// Believes a server whose certificate one of these authorities vouches for, and that is for the name it was dialled
/// by.
#[derive(Debug)]
pub(super) struct Servers(Trust);

impl Servers {
    /// Verifier for certificates that one of these authorities has signed.
    pub(super) fn of(authorities: Arc<Authorities>) -> Self {
        let algorithms = provider().signature_verification_algorithms;
        Self(Trust { authorities, purpose: Purpose::Server, algorithms })
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.judge(end_entity, intermediates, now)?;
        is_for(end_entity, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.algorithms.supported_schemes()
    }
}

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

/// id-kp-serverAuth, 1.3.6.1.5.5.7.3.1.
const SERVER: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 1]);

/// id-kp-clientAuth, 1.3.6.1.5.5.7.3.2.
const CLIENT: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);

/// anyExtendedKeyUsage, 2.5.29.37.0.
const ANY: KeyPurposeId<'static> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);

/// For this purpose, for any, or with nothing said of purposes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage(pub(super) Purpose);

impl Usage {
    /// Error where the purpose is not among those that are named.
    pub(super) fn missing(self) -> webpki::Error {
        self.not_among(Vec::new())
    }

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
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Distrust {
    whose: &'static str,
    unfit: Unfit,
}

impl Distrust {
    /// The peer's certificate is none.
    pub(super) fn unreadable() -> Error {
        CertificateError::BadEncoding.into()
    }

    /// The peer's own certificate is unfit.
    pub(super) fn own(unfit: Unfit, now: UnixTime) -> Error {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        match unfit {
            Unfit::NotYetValid(begin) => CertificateError::NotValidYetContext { time: now, not_before: at(begin) },
            Unfit::Expired(end) => CertificateError::ExpiredContext { time: now, not_after: at(end) },
            unfit => return Self::of("its certificate", unfit),
        }
        .into()
    }

    /// The certificate of whoever vouches for it is.
    pub(super) fn issuer(unfit: Unfit) -> Error {
        Self::of("the certificate of its authority", unfit)
    }

    fn of(whose: &'static str, unfit: Unfit) -> Error {
        CertificateError::Other(OtherError(Arc::new(Self { whose, unfit }))).into()
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, fix) = match self.unfit {
            Unfit::NotYetValid(_) => ("is not valid yet", "check the clocks, or wait"),
            Unfit::Expired(_) => ("has expired", "renew it, and put the new one into the bundle"),
            Unfit::Critical => ("has a critical extension that is not understood", "make one without it"),
            Unfit::NoAuthority => {
                ("is not an authority (basicConstraints without CA:TRUE)", "make one with CA:TRUE, and sign again")
            }
            Unfit::NoCertSign => ("has a keyUsage without keyCertSign", "make one with it, and sign again"),
            Unfit::Signature => {
                ("is signed with an unsupported algorithm (SHA-1, or RSA below 2,048 bits)", "sign with SHA-256")
            }
            Unfit::Usage => ("has an extendedKeyUsage that leaves this use out", "make one with it, or without any"),
            Unfit::PathLength => ("allows fewer authorities below it (pathlen)", "sign by one nearer to it"),
            Unfit::Constrained => {
                ("has name constraints, and the peer's certificate is an authority", "sign one with CA:FALSE")
            }
        };
        write!(f, "{} {what}: {fix}", self.whose)
    }
}

impl fmt::Debug for Distrust {
    /// rustls shows what is within its errors so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Distrust {}

/// webpki's reason, as rustls puts it.
pub(super) fn refused(error: webpki::Error) -> Error {
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
            return Distrust::of("its certificate, or one above it,", Unfit::Signature);
        }
        other => CertificateError::Other(OtherError(Arc::new(other))),
    }
    .into()
}
