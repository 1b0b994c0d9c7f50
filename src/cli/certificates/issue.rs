//! Issuing: a serving certificate, and an authority that signs it and nothing else.
//!
//! The authority's key is dropped once it has signed: what is stored or stolen later can sign nothing, and a renewal has
//! an authority of its own.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::stored::Pair;

/// Tolerance for late clocks of other machines.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// A new pair for these names, valid for so long from then on, and its authority.
pub(super) fn issue(names: &[String], lifetime: Duration, now: SystemTime) -> Result<Pair, Error> {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = |since: Duration| date_time_ymd(1970, 1, 1) + since;
    // Two thirds of its life are counted from its beginning: one that lives for minutes must not begin long ago.
    let begin = at(since_1970.saturating_sub(SKEW.min(lifetime / 10)));
    let end = at(since_1970.saturating_add(lifetime));

    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // Go finds an authority by its name: two in one bundle need two names.
    params.distinguished_name.push(DnType::CommonName, format!("Gatepost webhook CA {}", since_1970.as_nanos()));
    (params.not_before, params.not_after) = (begin, end);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "gatepost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = (begin, end);
    let certificate = params.signed_by(&key, &authority)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), authority: authority.pem() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{expiry, server_config};

    #[test]
    fn a_new_pair_is_for_its_names_and_its_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let names = ["gatepost.gatepost.svc".to_owned(), "192.0.2.7".to_owned()];
        let hour = Duration::from_secs(3600);
        let pair = issue(&names, hour * 24, now).unwrap();
        assert_eq!(expiry::dns_names(pair.certificate.as_bytes()), [names[0].clone()]);
        for pem in [&pair.certificate, &pair.authority] {
            assert_eq!(expiry::validity(pem.as_bytes()), Some((now - SKEW, now + hour * 24)));
        }
        server_config(pair.certificate.as_bytes(), pair.key.as_bytes(), None).unwrap();
        let other = issue(&names, hour, now + Duration::from_nanos(1)).unwrap();
        assert_ne!(pair.authority, other.authority);
        assert!(server_config(pair.certificate.as_bytes(), other.key.as_bytes(), None).is_err());
        assert!(issue(&["not a name\u{e9}".to_owned()], hour, now).is_err());
    }
}
