//! Distrust: reasons against a peer's certificate, as rustls' errors, in words that say what to do.

use std::{fmt, sync::Arc, time::Duration};

use rustls::{CertificateError, Error, OtherError};
use rustls_pki_types::UnixTime;

use super::x509::Unfit;

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
