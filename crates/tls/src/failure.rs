//! Failed handshakes of callers: the side at fault, the reason, and advice.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, OtherError};

/// Side at fault for a caller's failed handshake, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The caller has sent no certificate, although one is required.
    NoCertificate,
    /// The caller's certificate is not accepted.
    Certificate,
    /// The caller does not accept our certificate.
    OurCertificate,
    /// Anything else: no common version or protocol, garbage, a broken connection.
    Other,
}

/// Failed handshake of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFailure {
    /// Side at fault.
    pub fault: HandshakeFault,
    /// Message of the TLS error.
    pub reason: String,
    /// Advice for the operator.
    pub fix: &'static str,
}

impl HandshakeFault {
    /// Number of faults.
    pub const COUNT: usize = Self::Other as usize + 1;
}

impl HandshakeFailure {
    /// Creates the failure for the error of a handshake.
    pub fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let (fault, fix) = inner.map_or((HandshakeFault::Other, "see the reason: the connection broke"), fault_and_fix);
        Self { fault, reason: reason(error), fix }
    }
}

fn fault_and_fix(error: &Error) -> (HandshakeFault, &'static str) {
    use CertificateError as Wrong;
    match error {
        Error::NoCertificatesPresented => (
            HandshakeFault::NoCertificate,
            "let the kubeconfig of the apiserver's AdmissionConfiguration have a user named as host:port of our URL \
             (127.0.0.1:9440) with a client certificate; or serve without --client-ca",
        ),
        Error::InvalidCertificate(why) => (
            HandshakeFault::Certificate,
            match why {
                Wrong::UnknownIssuer => "let --client-ca hold the authority that signed the caller's certificate",
                Wrong::Expired | Wrong::ExpiredContext { .. } => "renew the caller's certificate",
                Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "compare the clocks of caller and Gatepost",
                Wrong::ApplicationVerificationFailure => {
                    "the certificate has none of the names in --client-name: add its name there, or give the caller \
                     another certificate"
                }
                _ => "give the caller a certificate for clients that an authority in --client-ca has signed",
            },
        ),
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError,
        ) => (
            HandshakeFault::OurCertificate,
            "the caller does not accept our certificate: let it have the host of our URL (127.0.0.1 as an IP address) \
             and be in force, and register with --ca-file of the authority that signed it",
        ),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            (HandshakeFault::Other, "the caller has no version of TLS or no cipher in common with us: see --tls-min")
        }
        Error::NoApplicationProtocol => {
            (HandshakeFault::Other, "let the caller offer h2 or http/1.1 by ALPN, or nothing")
        }
        _ => (HandshakeFault::Other, "see the reason: the caller does not speak TLS that gatepost supports"),
    }
}

/// Returns the reason of a failed handshake. Faults that this crate finds in a certificate have texts of their own.
pub fn reason(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => {
            format!("invalid peer certificate: {why}")
        }
        _ => normalize_error(&error.to_string()).to_owned(),
    }
}

/// Returns the message of a TLS error without the time of the verification, so that the same cause always has the same
/// text and is logged once.
pub fn normalize_error(error: &str) -> &str {
    error.split_once(": verification time").map_or(error, |(cause, _)| cause)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::{CertificateError, Error, pki_types::UnixTime};

    use super::*;

    #[test]
    fn a_failed_handshake_is_reported_with_whose_fault_it_is() {
        let failure = |error: Error| HandshakeFailure::of(&io::Error::new(io::ErrorKind::InvalidData, error));
        let certificate = |why: CertificateError| failure(why.into());
        let alert = |alert| failure(Error::AlertReceived(alert));
        for (failure, fault, fix) in [
            (failure(Error::NoCertificatesPresented), HandshakeFault::NoCertificate, "127.0.0.1:9440"),
            (certificate(CertificateError::UnknownIssuer), HandshakeFault::Certificate, "--client-ca"),
            (certificate(CertificateError::Expired), HandshakeFault::Certificate, "renew"),
            (
                certificate(CertificateError::ApplicationVerificationFailure),
                HandshakeFault::Certificate,
                "--client-name",
            ),
            (alert(AlertDescription::UnknownCA), HandshakeFault::OurCertificate, "--ca-file"),
            (alert(AlertDescription::BadCertificate), HandshakeFault::OurCertificate, "--ca-file"),
            (alert(AlertDescription::ProtocolVersion), HandshakeFault::Other, "--tls-min"),
            (failure(Error::NoApplicationProtocol), HandshakeFault::Other, "ALPN"),
        ] {
            assert_eq!(failure.fault, fault, "{failure:?}");
            assert!(failure.fix.contains(fix) && !failure.reason.is_empty(), "{failure:?}");
        }
        let broken = HandshakeFailure::of(&io::Error::from(io::ErrorKind::UnexpectedEof));
        assert_eq!(broken.fault, HandshakeFault::Other);
    }

    #[test]
    fn a_certificate_that_has_ended_is_the_same_cause_a_second_later() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let ended = |now| CertificateError::ExpiredContext { time: at(now), not_after: at(100) };
        let early = |now| CertificateError::NotValidYetContext { time: at(now), not_before: at(9000) };
        let message = |error| normalize_error(&Error::InvalidCertificate(error).to_string()).to_owned();
        assert_eq!(message(ended(200)), message(ended(201)));
        assert_eq!(message(early(200)), message(early(201)));
        assert_eq!(message(ended(200)), "invalid peer certificate: certificate expired");
        assert_eq!(normalize_error("tls handshake eof"), "tls handshake eof");
    }
}
