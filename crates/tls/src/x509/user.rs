//! CertificateUser: owner of a client certificate, as Kubernetes reads it.

use sha2::{Digest, Sha256};
use x509_parser::{certificate::X509Certificate, prelude::FromDer, x509::AttributeTypeAndValue};

/// Attribute of a subject that holds a user's uid.
// source: kubernetes/apiserver pkg/authentication/request/x509/x509.go, oidUID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Owner of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// Common name; may be empty, and then it names nobody.
    pub name: String,
    /// Organizations.
    pub groups: Vec<String>,
    /// uid, where the subject has one.
    pub uid: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

/// Owner of a certificate; `None` where it cannot be read, or its uid is not clear.
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
    // Of several common names Go takes the last.
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
