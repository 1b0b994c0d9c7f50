//! Ends of certificates, and warnings before them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use gatepost_api::{Hook, bundle};

use super::x509;
pub use super::x509::validity;

/// Remaining validity of a certificate from which on it is reported.
pub const EXPIRY_WARNING_THRESHOLD: Duration = Duration::from_secs(14 * 24 * 3600);
/// Interval between warnings about one certificate.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// End of a certificate's validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Name of the certificate: `server`, `client-ca`, or `hook:` and the hook's name.
    pub certificate: String,
    /// Earliest end if there are several certificates: a chain ends with its first link, and an expired authority
    /// should be removed from its bundle.
    pub end: SystemTime,
}

impl Expiry {
    /// Returns the time left at `now` in seconds; negative after the end.
    pub fn left(&self, now: SystemTime) -> f64 {
        self.end.duration_since(now).map_or_else(|over| -over.duration().as_secs_f64(), |left| left.as_secs_f64())
    }
}

/// Reason why a certificate is not valid at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// The certificate is valid from this time on.
    #[error("is not valid before {}", humantime::format_rfc3339_seconds(*.0))]
    NotYetValid(SystemTime),
    /// The certificate was valid until this time.
    #[error("has expired at {}", humantime::format_rfc3339_seconds(*.0))]
    Expired(SystemTime),
}

impl CertificateFault {
    /// Returns the fault at `now` of a certificate that is valid from `begin` to `end`.
    pub(super) fn at(now: SystemTime, (begin, end): (SystemTime, SystemTime)) -> Option<Self> {
        match now {
            _ if now < begin => Some(Self::NotYetValid(begin)),
            _ if now > end => Some(Self::Expired(end)),
            _ => None,
        }
    }
}

/// Returns the earliest end of the certificates in a hook's configuration: our client certificate and its authorities.
pub fn of_hook(hook: &Hook) -> Option<Expiry> {
    let tls = hook.endpoint.tls.as_ref()?;
    let texts = [tls.ca_pem.as_deref(), tls.client_pem.as_ref().map(|(chain, _)| &**chain)];
    let end = texts.into_iter().flatten().filter_map(x509::first_end).min()?;
    Some(Expiry { certificate: format!("hook:{}", hook.name), end })
}

/// Returns the ends of the authorities in a hook's configuration; empty if the system's authorities are trusted.
pub fn of_authorities(hook: &Hook) -> Vec<SystemTime> {
    let ca_pem = hook.endpoint.tls.as_ref().and_then(|tls| tls.ca_pem.as_deref());
    ca_pem.map(x509::ends).unwrap_or_default()
}

/// Returns the end of our client certificate for a hook.
pub fn of_client_certificate(hook: &Hook) -> Option<SystemTime> {
    let (chain, _) = hook.endpoint.tls.as_ref()?.client_pem.as_ref()?;
    x509::first_end(chain)
}

/// Returns the DNS names of the first certificate in a PEM text.
pub fn dns_names(pem_text: &[u8]) -> Vec<String> {
    bundle::sections(pem_text).first().map(|first| x509::dns_names(first)).unwrap_or_default()
}

/// Remembers when each certificate was reported last.
#[derive(Debug, Default)]
pub struct Reminder(BTreeMap<String, SystemTime>);

impl Reminder {
    /// Returns the certificates that end soon or have ended, and were not reported in the last day.
    pub fn due<'a>(&mut self, expiries: &'a [Expiry], now: SystemTime) -> Vec<&'a Expiry> {
        let soon = |expiry: &Expiry| expiry.left(now) < EXPIRY_WARNING_THRESHOLD.as_secs_f64();
        // Forgets replaced certificates, so that the next warning about their successors is not delayed.
        self.0.retain(|name, _| expiries.iter().any(|expiry| expiry.certificate == *name && soon(expiry)));
        let mut due = Vec::new();
        for expiry in expiries.iter().filter(|expiry| soon(expiry)) {
            let reminded = self.0.get(&expiry.certificate);
            let since = reminded.and_then(|reminded| now.duration_since(*reminded).ok());
            if since.is_none_or(|since| since >= WARNING_INTERVAL) {
                self.0.insert(expiry.certificate.clone(), now);
                due.push(expiry);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_at_fault_before_its_begin_and_after_its_end() {
        let at = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
        let fault = |hours| CertificateFault::at(at(hours), (at(5), at(6)));
        assert_eq!([fault(5), fault(6)], [None, None]);
        let texts = [fault(4), fault(7)].map(|fault| fault.map(|fault| fault.to_string()).unwrap_or_default());
        assert_eq!(texts, ["is not valid before 1970-01-01T05:00:00Z", "has expired at 1970-01-01T06:00:00Z"]);
    }

    #[test]
    fn each_certificate_is_spoken_of_once_a_day_from_two_weeks_before_its_end() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let expiry = |name: &str, left| Expiry { certificate: name.to_owned(), end: start + left };
        let expiries = [expiry("server", hours(15 * 24)), expiry("hook:a", hours(30 * 24))];
        let mut reminder = Reminder::default();
        let mut due = |expiries: &[Expiry], at| -> Vec<String> {
            reminder.due(expiries, start + at).iter().map(|expiry| expiry.certificate.clone()).collect()
        };
        assert!(due(&expiries, hours(0)).is_empty());
        assert_eq!(due(&expiries, hours(25)), ["server"]);
        assert!(due(&expiries, hours(48)).is_empty(), "logged today");
        assert_eq!(due(&expiries, hours(49)), ["server"]);
        assert_eq!(due(&expiries, hours(20 * 24)), ["server", "hook:a"], "an ended one, too");
        let renewed = [expiry("server", hours(90 * 24))];
        assert!(due(&renewed, hours(22 * 24)).is_empty());
        assert_eq!(due(&expiries, hours(22 * 24 + 1)), ["server", "hook:a"], "the old one is back");
        assert_eq!(expiries[0].left(start + hours(16 * 24)), -24.0 * 3600.0);
    }
}
