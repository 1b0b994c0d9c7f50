//! Facts of a certificate: its names, its end, the extensions that trust in it depends on. The only place that knows
//! x509-parser.

mod facts;
mod user;

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

pub use self::user::CertificateUser;
pub(super) use self::{
    facts::{Facts, Purpose, Signed, Unfit, dns_names},
    user::user,
};
use gatepost_api::bundle;

/// Does a certificate have this name: as a common name of its subject, or as a DNS or URI subject alternative name?
/// Letter by letter: no wildcard stands for another name here.
pub(super) fn is_named(certificate: &CertificateDer<'_>, wanted: &[String]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let wanted = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok()).any(wanted);
    let alternative = certificate.subject_alternative_name().ok().flatten();
    common
        || alternative.is_some_and(|names| {
            names.value.general_names.iter().any(|name| match name {
                GeneralName::DNSName(name) | GeneralName::URI(name) => wanted(name),
                _ => false,
            })
        })
}

/// Name of a certificate's owner: its common name, else its first DNS or URI subject
/// alternative name, else its whole subject.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    if let Some(common) = subject.iter_common_name().find_map(|name| name.as_str().ok()) {
        return Some(common.to_owned());
    }
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let named = alternative.and_then(|names| {
        names.value.general_names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        })
    });
    Some(named.unwrap_or_else(|| subject.to_string()))
}

/// First end among the certificates in a PEM text; `None` where there is none that can be read.
pub(super) fn first_end(pem_text: &[u8]) -> Option<SystemTime> {
    ends(pem_text).into_iter().min()
}

/// End of each certificate in a PEM text.
pub(super) fn ends(pem_text: &[u8]) -> Vec<SystemTime> {
    bundle::sections(pem_text).iter().filter_map(end).collect()
}

/// Validity of the first certificate in a PEM text: begin and end.
pub(super) fn validity(pem_text: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let first = bundle::sections(pem_text).into_iter().next()?;
    let (_, certificate) = X509Certificate::from_der(&first).ok()?;
    let validity = certificate.validity();
    let time =
        |seconds: i64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    Some((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    // A certificate that ended before 1970 has ended at its beginning.
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
