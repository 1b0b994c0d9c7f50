//! Certificate authorities, key pairs on disk, and clients that show them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, reason = "test support")]

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use gatepost_tls::{MinTlsVersion, ServerFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self::until(name, 4000)
    }

    /// One that ends on the first of January of that year.
    pub fn until(name: &str, year: i32) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(year, 1, 1);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A pair with this common name and these alternative names: a URI where there is a scheme, else DNS.
    pub fn pair(&self, common: &str, alternative: &[&str]) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        let san = |name: &&str| match name.contains("://") {
            true => SanType::URI((*name).try_into().unwrap()),
            false => SanType::DnsName((*name).try_into().unwrap()),
        };
        params.subject_alt_names = alternative.iter().map(san).collect();
        self.sign(params)
    }

    /// A server's pair that ends on the first of January of that year.
    pub fn ending(&self, year: i32) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        self.sign(params)
    }

    /// A server's pair.
    pub fn server(&self) -> Pair {
        self.pair("localhost", &["localhost"])
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair { chain: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    /// One that is its own authority, as `openssl req -x509` makes it.
    pub fn own(common: &str) -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.distinguished_name.push(DnType::CommonName, common);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { chain: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap()
    }
}

/// Files of a server's key pair in that folder.
pub fn files(folder: &Path) -> ServerFiles {
    ServerFiles {
        cert: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        client_ca: None,
        client_names: Vec::new(),
        certificate_optional: false,
        oldest: MinTlsVersion::Tls13,
    }
}

/// Writes a file as careful people do: elsewhere first, then renamed.
pub fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (new, path) = (folder.join(".new"), folder.join(name));
    fs::write(&new, text).unwrap();
    fs::rename(new, &path).unwrap();
    path
}

/// Writes a server's pair.
pub fn put_pair(folder: &Path, pair: &Pair) {
    put(folder, "tls.crt", &pair.chain);
    put(folder, "tls.key", &pair.key);
}

/// A client that trusts this authority, shows this pair, and speaks these protocols.
pub fn client(
    authority: &Authority,
    pair: Option<&Pair>,
    protocols: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Connects and shakes hands. In TLS 1.3 this succeeds before the server has judged the client.
pub async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::clone(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// The certificate the server showed.
pub fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}
