//! Reads the names, the validity and the extensions of certificates. The only file that uses x509-parser.

use std::time::{Duration, SystemTime};

use gatepost_api::bundle;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::{
    asn1_rs::Any,
    certificate::X509Certificate,
    extensions::{GeneralName, NameConstraints, ParsedExtension, X509Extension},
    prelude::FromDer,
    time::ASN1Time,
    x509::{AttributeTypeAndValue, X509Version},
};

/// Returns true if a certificate has one of these names as a common name of its subject, or as a DNS or URI subject
/// alternative name. Compares them exactly, without wildcards.
pub(super) fn is_named(certificate: &CertificateDer<'_>, wanted: &[String]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let wanted = |name: &str| wanted.iter().any(|wanted| wanted == name);
    certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok()).any(wanted)
        || alternative_names(&certificate).any(wanted)
}

/// Returns the name of a certificate's owner: its common name, otherwise its first DNS or URI subject alternative name,
/// otherwise its whole subject.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let common = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let named = common.or_else(|| alternative_names(&certificate).next());
    Some(named.map_or_else(|| certificate.subject().to_string(), str::to_owned))
}

/// Returns the DNS and URI subject alternative names of a certificate.
fn alternative_names<'a>(certificate: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.into_iter().flat_map(|names| &names.value.general_names);
    names.filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some(*name),
        _ => None,
    })
}

/// Returns the earliest end of the certificates in a PEM text; `None` if none can be read.
pub(super) fn first_end(pem_text: &[u8]) -> Option<SystemTime> {
    ends(pem_text).into_iter().min()
}

/// Returns the end of each certificate in a PEM text.
pub(super) fn ends(pem_text: &[u8]) -> Vec<SystemTime> {
    bundle::sections(pem_text).iter().filter_map(end).collect()
}

/// Returns begin and end of the validity of the first certificate in a PEM text; `None` if it cannot be read.
pub fn validity(pem_text: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let first = bundle::sections(pem_text).into_iter().next()?;
    let (_, certificate) = X509Certificate::from_der(&first).ok()?;
    let validity = certificate.validity();
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    time(certificate.validity().not_after)
}

fn time(time: ASN1Time) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds(time)))
}

/// Returns the seconds of Unix time. A time before 1970 counts as the beginning of 1970.
fn seconds(time: ASN1Time) -> u64 {
    u64::try_from(time.timestamp()).unwrap_or(0)
}

/// Extensions below 2.5.29 that Go's crypto/x509 supports. Any other critical extension makes a certificate invalid.
const UNDERSTOOD: [u64; 11] = [15, 17, 19, 30, 31, 32, 33, 35, 36, 37, 54];

/// Extensions on which trust depends. A certificate is unreadable if one of them cannot be parsed.
const DECISIVE: [u64; 5] = [15, 17, 19, 30, 37];

/// Intended use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Authentication of a server.
    Server,
    /// Authentication of a client.
    Client,
}

/// Reason why a certificate is not valid, or must not sign another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateDefect {
    /// It is valid from this second of Unix time on.
    #[error("is not valid yet: check the clocks, or wait")]
    NotYetValid(u64),
    /// It was valid up to this second of Unix time.
    #[error("has expired: renew it, and put the new one into the bundle")]
    Expired(u64),
    /// A critical extension is not supported.
    #[error("has a critical extension that is not understood: make one without it")]
    Critical,
    /// It is not an authority: no basicConstraints with CA:TRUE.
    #[error("is not an authority (basicConstraints without CA:TRUE): make one with CA:TRUE, and sign again")]
    NoAuthority,
    /// It has a keyUsage without keyCertSign.
    #[error("has a keyUsage without keyCertSign: make one with it, and sign again")]
    NoCertSign,
    /// Its extendedKeyUsage lacks the purpose.
    #[error("has an extendedKeyUsage that leaves this use out: make one with it, or without any")]
    Usage,
    /// Its pathLenConstraint allows fewer authorities below it.
    #[error("allows fewer authorities below it (pathlen): sign by one nearer to it")]
    PathLength,
    /// It is signed with an unsupported algorithm.
    #[error("is signed with an unsupported algorithm (SHA-1, or RSA below 2,048 bits): sign with SHA-256")]
    Signature,
    /// It has name constraints, which cannot be checked for a peer's certificate that is an authority itself.
    #[error("has name constraints, and the peer's certificate is an authority: sign one with CA:FALSE")]
    Constrained,
}

/// Fields of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFields {
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    pub(crate) key: SubjectPublicKeyInfoDer<'static>,
    /// Encoded subjectAltName.
    alternative: Option<Vec<u8>>,
    not_before: u64,
    not_after: u64,
    version_3: bool,
    /// Fields of basicConstraints.
    authority: Option<bool>,
    path_length: Option<u32>,
    cert_sign: bool,
    server: bool,
    client: bool,
    pub(crate) constrained: bool,
    critical: bool,
}

/// Signed part of a certificate, its signature algorithm, and the signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) message: &'a [u8],
    /// Content of the AlgorithmIdentifier.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
}

impl CertificateFields {
    /// Reads the fields of a certificate; `None` if Go could not read it either.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let certificate = parsed(der)?;
        let negative = certificate.raw_serial().first().is_some_and(|first| first & 0x80 != 0);
        if negative || certificate.signature_algorithm != certificate.signature {
            return None;
        }
        let validity = certificate.validity();
        let mut facts = Self {
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            key: certificate.public_key().raw.to_vec().into(),
            alternative: None,
            not_before: seconds(validity.not_before),
            not_after: seconds(validity.not_after),
            version_3: certificate.version() == X509Version::V3,
            authority: None,
            path_length: None,
            cert_sign: true,
            server: true,
            client: true,
            constrained: false,
            critical: false,
        };
        let mut seen = Vec::new();
        for extension in certificate.extensions() {
            if seen.contains(&&extension.oid) {
                return None;
            }
            seen.push(&extension.oid);
            facts.add(extension)?;
        }
        Some(facts)
    }

    fn add(&mut self, extension: &X509Extension<'_>) -> Option<()> {
        let arc = standard_arc(extension);
        match extension.parsed_extension() {
            ParsedExtension::ParseError { .. } if arc.is_some_and(|arc| DECISIVE.contains(&arc)) => return None,
            ParsedExtension::BasicConstraints(constraints) => {
                self.authority = Some(constraints.ca);
                self.path_length = constraints.path_len_constraint;
            }
            // Go treats a keyUsage without any bit as absent.
            ParsedExtension::KeyUsage(usage) => self.cert_sign = usage.flags == 0 || usage.key_cert_sign(),
            ParsedExtension::ExtendedKeyUsage(usage) => {
                self.server = usage.any || usage.server_auth;
                self.client = usage.any || usage.client_auth;
            }
            ParsedExtension::SubjectAlternativeName(_) => self.alternative = Some(extension.value.to_vec()),
            ParsedExtension::NameConstraints(constraints) => {
                self.constrained = true;
                self.critical |= extension.critical && !understood(constraints);
            }
            _ => {}
        }
        self.critical |= extension.critical && !arc.is_some_and(|arc| UNDERSTOOD.contains(&arc));
        Some(())
    }

    /// Checks that the certificate is valid at `now`, and that its critical extensions are supported.
    pub(crate) fn check_validity(&self, now: UnixTime) -> Result<(), CertificateDefect> {
        match now.as_secs() {
            _ if self.critical => Err(CertificateDefect::Critical),
            now if now < self.not_before => Err(CertificateDefect::NotYetValid(self.not_before)),
            now if now > self.not_after => Err(CertificateDefect::Expired(self.not_after)),
            _ => Ok(()),
        }
    }

    /// Checks that the certificate may be used for this purpose. Its issuers must allow the purpose, too.
    pub(crate) fn check_purpose(&self, purpose: Purpose) -> Result<(), CertificateDefect> {
        let serves = match purpose {
            Purpose::Server => self.server,
            Purpose::Client => self.client,
        };
        if serves { Ok(()) } else { Err(CertificateDefect::Usage) }
    }

    /// Returns true if its basicConstraints have CA:TRUE.
    pub(crate) fn is_authority(&self) -> bool {
        self.authority == Some(true)
    }

    /// Checks that the certificate may sign others at `now`. A root below version 3 cannot have basicConstraints, and
    /// does not need them.
    pub(crate) fn check_signer(&self, now: UnixTime, root: bool) -> Result<(), CertificateDefect> {
        self.check_validity(now)?;
        let of_before = root && !self.version_3;
        if !self.is_authority() && !of_before {
            return Err(CertificateDefect::NoAuthority);
        }
        if self.cert_sign { Ok(()) } else { Err(CertificateDefect::NoCertSign) }
    }

    /// Checks that its pathLenConstraint allows this number of authorities between it and the peer's certificate.
    pub(crate) fn check_path_length(&self, authorities: usize) -> Result<(), CertificateDefect> {
        let most = self.path_length.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if authorities > most { Err(CertificateDefect::PathLength) } else { Ok(()) }
    }

    /// Returns true if both have the same subject, key and names. A chain must not contain both, or it would be a loop.
    pub(crate) fn is_of_same_entity(&self, other: &Self) -> bool {
        self.subject == other.subject && self.key == other.key && self.alternative == other.alternative
    }
}

impl<'a> Signed<'a> {
    /// Reads the signed part of a certificate, and its signature.
    pub(crate) fn of(der: &'a [u8]) -> Option<Self> {
        let certificate = parsed(der)?;
        let message = certificate.tbs_certificate.as_ref();
        let (_, outer) = Any::from_der(der).ok()?;
        let behind = outer.data.get(message.len()..)?;
        let (_, algorithm) = Any::from_der(behind).ok()?;
        let message = outer.data.get(..message.len())?;
        // Signatures are whole bytes in every known algorithm.
        let signature = certificate.signature_value.data;
        let signature = outer.data.get(outer.data.len().checked_sub(signature.len())?..)?;
        Some(Self { message, algorithm: algorithm.data, signature })
    }
}

/// Returns the DNS names in the subjectAltName of a certificate.
pub(crate) fn dns_names(der: &[u8]) -> Vec<String> {
    let Some(certificate) = parsed(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).collect()
}

/// Parses a certificate; `None` if it is invalid or other bytes follow it.
fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Returns the last arc of an extension's identifier below 2.5.29; `None` for other identifiers.
fn standard_arc(extension: &X509Extension<'_>) -> Option<u64> {
    let arcs: Vec<u64> = extension.oid.iter()?.collect();
    match arcs[..] {
        [2, 5, 29, last] => Some(last),
        _ => None,
    }
}

/// Returns true if the constraints are only on kinds of names that Go checks.
fn understood(constraints: &NameConstraints<'_>) -> bool {
    let trees = [&constraints.permitted_subtrees, &constraints.excluded_subtrees];
    trees.into_iter().flatten().flatten().all(|tree| {
        matches!(
            tree.base,
            GeneralName::DNSName(_) | GeneralName::IPAddress(_) | GeneralName::RFC822Name(_) | GeneralName::URI(_)
        )
    })
}

/// Attribute of a subject that contains a user's uid.
// source: kubernetes/apiserver pkg/authentication/request/x509/x509.go, oidUID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// User in a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// Common name; if empty, the certificate names no user.
    pub name: String,
    /// Organizations.
    pub groups: Vec<String>,
    /// UID, if the subject has one.
    pub uid: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

/// Returns the user in a certificate; `None` if it cannot be read, or it has several uids.
pub(crate) fn user(der: &[u8]) -> Option<CertificateUser> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |value: &AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let uids: Vec<_> = subject.iter_attributes().filter(|one| one.attr_type().to_id_string() == UID).collect();
    let uid = match *uids {
        [] => None,
        [uid] => Some(text(uid)?),
        _ => return None,
    };
    // Go uses the last of several common names.
    let name = subject.iter_common_name().last().map_or_else(|| Some(String::new()), text)?;
    let groups = subject.iter_organization().map(text).collect::<Option<_>>()?;
    let digest = Sha256::digest(der);
    let fingerprint = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(CertificateUser { name, groups, uid, fingerprint })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(subject: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (attribute, value) in subject {
            params.distinguished_name.push(attribute.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_user_is_read_as_by_kube_apiserver() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let der = certificate(&[(DnType::CommonName, "ann"), (DnType::OrganizationName, "dev"), (uid, "u-7")]);
        let read = user(&der).unwrap();
        assert_eq!((&*read.name, &*read.groups, read.uid.as_deref()), ("ann", &["dev".to_owned()][..], Some("u-7")));
        assert_eq!(read.fingerprint.len(), 64);
        let nobody = user(&certificate(&[(DnType::OrganizationName, "dev")])).unwrap();
        assert_eq!((&*nobody.name, nobody.uid), ("", None));
        assert_eq!(user(b"none"), None);
    }
}
