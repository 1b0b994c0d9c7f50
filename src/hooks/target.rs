//! Target: host to connect to, and its TLS.

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::ServerName};

use crate::model::{Endpoint, Step, Unreachable, hook::Address};

/// Dial target: address and protection. Where TLS is wanted, there is no target without it.
#[derive(Debug)]
pub(super) enum Target {
    /// A unix socket's path.
    Unix(Arc<str>),
    /// A host and port.
    Tcp { host: Arc<str>, port: u16, tls: Option<Tls> },
}

/// TLS configuration of a host.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Target {
    /// Of that endpoint, with what there is for its TLS.
    ///
    /// # Errors
    /// TLS is wanted, and cannot be had.
    pub(super) fn of(endpoint: &Endpoint, config: Option<Arc<ClientConfig>>) -> Result<Self, Unreachable> {
        let refused = |why: String| Err(Unreachable::at(Step::Tls, format!("{endpoint}: {why}")));
        match (&endpoint.address, &endpoint.tls, config) {
            (Address::Unix(path), None, _) => Ok(Self::Unix(path.as_ref().into())),
            (Address::Unix(_), Some(_), _) => refused("TLS is wanted over a unix socket, where none is spoken".into()),
            (Address::Tcp { host, port }, None, _) => {
                Ok(Self::Tcp { host: host.as_ref().into(), port: *port, tls: None })
            }
            (Address::Tcp { .. }, Some(_), None) => refused("TLS is wanted, and nothing is known of how".into()),
            (Address::Tcp { host, port }, Some(names), Some(config)) => {
                match ServerName::try_from(names.server_name.to_string()) {
                    Ok(name) => {
                        Ok(Self::Tcp { host: host.as_ref().into(), port: *port, tls: Some(Tls { config, name }) })
                    }
                    Err(_) => refused(format!("{:?} cannot be a server's name", names.server_name)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Transport, hook::EndpointTls};

    #[test]
    fn where_tls_is_wanted_nothing_else_is_spoken() {
        let tls = Some(EndpointTls { server_name: "hook".into(), ca_pem: None, client_pem: None });
        let tcp = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
        for address in [tcp.clone(), Address::Unix("/hook".into())] {
            let endpoint = Endpoint { address, tls: tls.clone(), transport: Transport::Http };
            assert_eq!(Target::of(&endpoint, None).expect_err("refused").step, Step::Tls, "{endpoint}");
        }
        let endpoint = Endpoint { address: tcp, tls: None, transport: Transport::Http };
        assert!(matches!(Target::of(&endpoint, None), Ok(Target::Tcp { tls: None, .. })));
    }
}
