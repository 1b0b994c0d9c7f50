//! Gatepost's own Service in the cluster that calls it.

use std::fmt;

use gatepost_api::registration::is_dns_label;
use serde_json::{Value, json};

/// Default port of a Service in a registration. source: k8s.io/api/admissionregistration/v1, ServiceReference.
const PORT: u16 = 443;

/// Default name of our registration.
pub const REGISTRATION: &str = "gatepost";

/// Gatepost's own Service: `NAMESPACE/NAME`, or `NAMESPACE/NAME:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Port of the Service, not of its Pods.
    pub port: u16,
}

impl std::str::FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write NAMESPACE/NAME or NAMESPACE/NAME:PORT, as in gatepost/gatepost".to_owned();
        let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?),
            None => (rest, PORT),
        };
        match is_dns_label(namespace) && is_dns_label(name) {
            true => Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), port }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, port } = self;
        match *port {
            PORT => write!(f, "{namespace}/{name}"),
            port => write!(f, "{namespace}/{name}:{port}"),
        }
    }
}

impl Service {
    /// Returns the reference for a `clientConfig`, with this path.
    pub fn reference(&self, path: &str) -> Value {
        json!({"namespace": self.namespace, "name": self.name, "port": self.port, "path": path})
    }

    /// Returns true if a `clientConfig` names this Service, on any port.
    pub fn is_named_by(&self, client_config: &Value) -> bool {
        let of = &client_config["service"];
        of["namespace"] == *self.namespace && of["name"] == *self.name
    }

    /// Returns the name that an apiserver expects in the certificate.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_read_as_it_is_written() {
        for (text, port) in [("gatepost/gatepost", 443), ("a/b:8443", 8443), ("a/b:443", 443)] {
            let service: Service = text.parse().unwrap();
            assert_eq!(service.port, port);
            assert_eq!(service.to_string(), text.trim_end_matches(":443"));
        }
        for text in ["", "a", "a/", "/b", "a/b/c", "a/b:0", "a/b:x", "a/b:", "a/b:65536", "A/b", "a/b.c", "a b/c"] {
            assert!(text.parse::<Service>().is_err(), "{text}");
        }
    }

    #[test]
    fn service_is_recognised_in_a_client_config() {
        let service: Service = "ns/name".parse().unwrap();
        assert!(service.is_named_by(&json!({"service": service.reference("/validate")})));
        assert!(service.is_named_by(&json!({"service": {"namespace": "ns", "name": "name", "port": 8443}})));
        for other in [json!({"service": {"namespace": "ns", "name": "n"}}), json!({"url": "https://ns/name"}), json!(0)]
        {
            assert!(!service.is_named_by(&other), "{other}");
        }
        assert_eq!(service.server_name(), "name.ns.svc");
    }
}
