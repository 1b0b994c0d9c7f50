//! Fresh certificates for one run: an authority, a hook's key pair, a sidecar's key pair.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::Fallible;

/// Writes ca.pem, server.pem, server.key, client.pem and client.key into `folder`.
pub(crate) fn write(folder: &Path) -> Fallible<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?;
    fs::write(folder.join("ca.pem"), authority.pem())?;
    let issuer = Issuer::new(params, key);
    leaf(folder, "server", ExtendedKeyUsagePurpose::ServerAuth, &issuer)?;
    leaf(folder, "client", ExtendedKeyUsagePurpose::ClientAuth, &issuer)
}

fn leaf(folder: &Path, name: &str, purpose: ExtendedKeyUsagePurpose, issuer: &Issuer<'_, KeyPair>) -> Fallible<()> {
    let key = KeyPair::generate()?;
    // The last is for Services of the cluster that `apiserver --form service` runs against.
    let names = ["localhost", "127.0.0.1", "*.side-by-side.svc"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.extended_key_usages = vec![purpose];
    let certificate = params.signed_by(&key, issuer)?;
    fs::write(folder.join(format!("{name}.pem")), certificate.pem())?;
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?;
    Ok(())
}
