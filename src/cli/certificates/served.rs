//! Served: the certificates that the endpoints of our Service show.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::stored::Pair;
use crate::{
    cli::service::Service,
    kube::{KubeClient, KubeError},
    model::hook::{EndpointTls, Transport},
    tls::{SystemRoots, client_config},
};

/// Time limit of one endpoint.
const WITHIN: Duration = Duration::from_secs(2);
/// Endpoints asked at once.
const AT_ONCE: usize = 16;
/// The most endpoints that are asked.
const MOST: usize = 256;
/// The port of a Service with several that callers use.
const NAME_OF_PORT: &str = "https";

/// Verdict on all endpoints of the Service: does each show a certificate that the authority of this pair has signed? False
/// if that is unknown of one, or there is none.
pub(super) async fn everywhere(client: &KubeClient, service: &Service, pair: &Pair) -> Result<bool, KubeError> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", service.namespace);
    let slices = client.list_labelled(&path, &format!("kubernetes.io/service-name={}", service.name)).await?;
    let Some(endpoints) = endpoints(&slices.items) else { return Ok(false) };
    let tls = EndpointTls {
        server_name: service.server_name().into(),
        ca_pem: Some(Arc::from(pair.authority.as_bytes())),
        client_pem: None,
    };
    let (Ok(config), Ok(name)) =
        (client_config(&tls, Transport::Http, &SystemRoots::default()), ServerName::try_from(service.server_name()))
    else {
        return Ok(false);
    };
    let shows = |(address, port): (String, u16)| {
        let (connector, name) = (TlsConnector::from(Arc::clone(&config)), name.clone());
        async move {
            let shaking = async { connector.connect(name, TcpStream::connect((address.as_str(), port)).await?).await };
            timeout(WITHIN, shaking).await.is_ok_and(|shaken| shaken.is_ok())
        }
    };
    let shown = stream::iter(endpoints).map(shows).buffer_unordered(AT_ONCE);
    Ok(shown.all(|shown| async move { shown }).await)
}

/// Addresses and ports of all endpoints, ready or not: whoever starts or drains may serve, too.
fn endpoints(slices: &[Value]) -> Option<Vec<(String, u16)>> {
    let mut all = Vec::new();
    for slice in slices {
        let is_tcp = |port: &&Value| port["protocol"].is_null() || port["protocol"] == "TCP";
        let ports: Vec<_> = slice["ports"].as_array().into_iter().flatten().filter(is_tcp).collect();
        let port = match &*ports {
            [] => continue,
            [only] => *only,
            several => *several.iter().find(|port| port["name"] == NAME_OF_PORT)?,
        };
        let port = u16::try_from(port["port"].as_u64()?).ok()?;
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let addresses = endpoint["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
            all.extend(addresses.map(|address| (address.to_owned(), port)));
        }
    }
    (1..=MOST).contains(&all.len()).then_some(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_address_of_every_slice_is_an_endpoint() {
        let slice = |ports: Value, addresses: &[&str]| {
            let endpoints: Vec<_> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
            json!({"ports": ports, "endpoints": endpoints})
        };
        let one = json!([{"name": "", "port": 9440}]);
        let two = json!([{"name": "metrics", "port": 9441}, {"name": "https", "port": 9440}]);
        let found = endpoints(&[slice(one.clone(), &["192.0.2.1", "192.0.2.2"]), slice(two, &["2001:db8::1"])]);
        let udp =
            json!([{"name": "h3", "port": 9442, "protocol": "UDP"}, {"name": "web", "port": 9440, "protocol": "TCP"}]);
        assert_eq!(endpoints(&[slice(udp, &["192.0.2.1"])]), Some(vec![("192.0.2.1".to_owned(), 9440)]));
        let wanted = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|address| (address.to_owned(), 9440));
        assert_eq!(found, Some(wanted.to_vec()));
        assert_eq!(endpoints(&[]), None, "nobody serves, or nobody is known");
        assert_eq!(endpoints(&[slice(json!([]), &["192.0.2.1"])]), None);
        let unnamed = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
        assert_eq!(endpoints(&[slice(unnamed, &["192.0.2.1"])]), None);
        assert_eq!(endpoints(&[slice(one, &["192.0.2.1"; MOST + 1])]), None);
    }
}
