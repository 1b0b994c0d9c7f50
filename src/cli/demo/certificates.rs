//! Fresh certificates: an authority that lives as long as the demo, the hooks' certificate and the sidecar's.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair};

/// A certificate and its key, as PEM text.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Key pairs for mutual TLS.
pub(super) struct Certificates {
    /// The authority's certificate, as PEM text.
    pub(super) authority: String,
    /// Key pair of the hooks; valid for 127.0.0.1.
    pub(super) hooks: Pair,
    /// Key pair of the sidecar.
    pub(super) sidecar: Pair,
}

impl Certificates {
    /// Makes all of them.
    pub(super) fn fresh() -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self {
            authority: authority.pem(),
            hooks: pair(&authority, "127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth)?,
            sidecar: pair(&authority, "gatepost.example.com", ExtendedKeyUsagePurpose::ClientAuth)?,
        })
    }
}

fn pair(authority: &CertifiedIssuer<'_, KeyPair>, name: &str, purpose: ExtendedKeyUsagePurpose) -> Result<Pair, Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.extended_key_usages = vec![purpose];
    let certificate = params.signed_by(&key, authority)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}
