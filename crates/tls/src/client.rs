//! The client side of TLS: verification of hooks, and our own certificates for them.

use std::{cell::OnceCell, sync::Arc};

use gatepost_api::hook::{EndpointTls, Transport};
use rustls::{
    ClientConfig,
    client::{Resumption, danger::ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName};

use crate::{
    ALPN_H2, ALPN_HTTP1, TlsError,
    authorities::Authorities,
    certificates, private_key, provider,
    trust::Trust,
    x509::{self, CertificateUser, Purpose},
};

/// The system's certificate authorities, read when first needed and shared by all endpoints of a configuration.
#[derive(Debug, Default)]
pub struct SystemRoots(OnceCell<Result<Arc<Authorities>, TlsError>>);

impl SystemRoots {
    fn get(&self) -> Result<Arc<Authorities>, TlsError> {
        self.0.get_or_init(|| Authorities::of_system().map(Arc::new)).clone()
    }
}

/// Returns a verifier that accepts the servers' certificates that an apiserver with this `caBundle` accepts.
///
/// # Errors
/// Fault of a bundle without an authority.
pub fn server_verifier(ca_pem: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let authorities = Authorities::of_bundle(ca_pem, "certificate authority")?;
    Ok(Arc::new(Trust::new(Arc::new(authorities), Purpose::Server)))
}

/// Returns the client configuration for a hook: aws-lc-rs, TLS 1.3 (1.2 accepted), and the transport's ALPN protocols.
///
/// # Errors
/// [`TlsError`] for unusable material, such as a key that does not belong to its certificate.
pub fn client_config(
    tls: &EndpointTls,
    transport: Transport,
    system: &SystemRoots,
) -> Result<Arc<ClientConfig>, TlsError> {
    ServerName::try_from(&*tls.server_name).map_err(|_| TlsError::BadServerName(tls.server_name.to_string()))?;
    let verifier = match &tls.ca_pem {
        Some(ca_pem) => server_verifier(ca_pem)?,
        None => Arc::new(Trust::new(system.get()?, Purpose::Server)),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| TlsError::Refused(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client_pem {
        Some((chain_pem, key_pem)) => {
            let chain = certificates(chain_pem, "client certificate")?;
            let key = private_key(key_pem, "client key")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::BadPair { what: "client certificate", cause: error.to_string() })?
        }
        None => builder.with_no_client_auth(),
    };
    // A resumed session sends no certificate, and so could outlive it. Go's client does not resume sessions either.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = match transport {
        Transport::Grpc => vec![ALPN_H2.to_vec()],
        Transport::Http => vec![ALPN_H2.to_vec(), ALPN_HTTP1.to_vec()],
    };
    Ok(Arc::new(config))
}

/// Returns the configuration without HTTP/2, for connections to be upgraded to another protocol from HTTP/1.1.
pub fn without_http2(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
    Arc::new(config)
}

/// Certificates that a client has sent in its handshake, its own first.
#[derive(Clone, Debug)]
pub struct ClientChain(Vec<CertificateDer<'static>>);

impl ClientChain {
    /// Returns the chain of a connection; `None` if the client has sent no certificate.
    pub fn of(connection: &rustls::ServerConnection) -> Option<Self> {
        let chain = connection.peer_certificates()?;
        let owned = |certificate: &CertificateDer<'_>| certificate.clone().into_owned();
        (!chain.is_empty()).then(|| Self(chain.iter().map(owned).collect()))
    }

    /// Returns the user in the client's own certificate, as Kubernetes reads it.
    pub fn user(&self) -> Option<CertificateUser> {
        x509::user(self.0.first()?)
    }

    /// Returns the client's own certificate and the others.
    pub(super) fn parts(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.0.split_first()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn endpoint(ca: &str, client: Option<(&str, &str)>) -> EndpointTls {
        let bytes = |pem: &str| Arc::from(pem.as_bytes());
        EndpointTls {
            server_name: "hook.example".into(),
            ca_pem: Some(bytes(ca)),
            client_pem: client.map(|(chain, key)| (bytes(chain), bytes(key))),
        }
    }

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn leaf(issuer: &CertifiedIssuer<'static, KeyPair>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["client".to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn good_material_makes_a_client_that_offers_what_it_can_speak() {
        let authority = authority();
        let (chain, key) = leaf(&authority);
        let endpoint = endpoint(&authority.pem(), Some((&chain, &key)));
        let config = |transport| client_config(&endpoint, transport, &SystemRoots::default()).unwrap();
        assert_eq!(config(Transport::Grpc).alpn_protocols, [b"h2"]);
        assert_eq!(config(Transport::Http).alpn_protocols, [&b"h2"[..], b"http/1.1"]);
        assert!(config(Transport::Http).client_auth_cert_resolver.has_certs());
    }

    #[test]
    fn each_unusable_part_is_named() {
        let authority = authority();
        let ca = authority.pem();
        let (chain, key) = leaf(&authority);
        let (_, foreign) = leaf(&authority);
        let torn = &ca[..ca.len() / 2];
        let refused =
            |endpoint: &EndpointTls| client_config(endpoint, Transport::Grpc, &SystemRoots::default()).unwrap_err();
        let message = |ca: &str, client| refused(&endpoint(ca, client)).to_string();

        let cases = [
            (message("", None), "certificate authority has no \"-----BEGIN CERTIFICATE-----\""),
            (message(torn, None), "certificate authority is not PEM: a section has no END line"),
            (message(&key, None), "certificate authority has no"),
            (message(&ca, Some((&key, &key))), "client certificate has no"),
            (message(&ca, Some((&chain, &chain))), "client key has no \"-----BEGIN PRIVATE KEY-----\""),
            (message(&ca, Some((&chain, &foreign))), "client certificate and its private key do not belong together"),
        ];
        for (message, wanted) in cases {
            assert!(message.contains(wanted), "{message:?} should say {wanted:?}");
        }
        let nameless = EndpointTls { server_name: "not a name".into(), ..endpoint(&ca, None) };
        assert_eq!(refused(&nameless), TlsError::BadServerName("not a name".to_owned()));
    }
}
