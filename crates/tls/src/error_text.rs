//! Error text: the words of a TLS error, without what differs each second.

use std::io;

use rustls::{CertificateError, Error, OtherError};

/// Reason of a failed handshake. Faults that we have found in a certificate have texts of our own.
pub fn reason(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => {
            format!("invalid peer certificate: {why}")
        }
        _ => normalize_error(&error.to_string()).to_owned(),
    }
}

/// The words of an error of TLS, without the time at which a certificate was looked at: the same cause is the same text
/// a second later, and logged once.
pub fn normalize_error(error: &str) -> &str {
    error.split_once(": verification time").map_or(error, |(cause, _)| cause)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::{CertificateError, Error, pki_types::UnixTime};

    use super::*;

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
