//! Cluster: a running etcd and kube-apiserver, found in the folder that `tests/e2e/kube/cluster.sh` keeps.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::Fallible;

/// Address of the apiserver, and credentials for it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) tls: Arc<ClientConfig>,
    /// The apiserver's process
    pub(crate) pid: u32,
}

impl Cluster {
    /// Reads `url`, `token`, `ca.crt` and `kube-apiserver.pid`.
    pub(crate) fn read(folder: &Path) -> Fallible<Self> {
        let text = |name: &str| -> Fallible<String> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).map_err(|error| format!("no cluster: {}: {error}", path.display()))?;
            Ok(text.trim().to_owned())
        };
        let url = text("url")?;
        let address = url.strip_prefix("https://").ok_or_else(|| format!("{url:?} is no https URL"))?.parse()?;
        let (token, pid) = (text("token")?, text("kube-apiserver.pid")?.parse()?);
        Self::at(address, &folder.join("ca.crt"), token, pid)
    }

    /// The one at that address, with a certificate of that authority.
    pub(crate) fn at(address: SocketAddr, authority: &Path, token: String, pid: u32) -> Fallible<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address, token, tls: Arc::new(tls), pid })
    }
}
