//! Readers of reports: from the admin addresses of replicas, from etcd, and from the objects of a cluster.

use std::{
    collections::HashSet,
    fmt,
    path::Path,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use gatepost_api::{Transport, hook::EndpointTls};
use gatepost_etcd_client::{EtcdClient, EtcdError};
use gatepost_kube_support::KubeClient;
use gatepost_tls::{self as tls, SystemRoots};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    ReplicaReport, ReplicasSeen, ReportError,
    objects::{CONFIGURATIONS, error_chain},
    status,
};

/// Maximum length of a page, in bytes.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Address of a replica's admin pages: `host:port`, `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl {
    tls: bool,
    host: String,
    port: u16,
}

impl AdminUrl {
    /// Returns the default admin address of this machine's sidecar.
    pub fn local() -> Self {
        Self { tls: false, host: "127.0.0.1".to_owned(), port: 9441 }
    }
}

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("{scheme} is not spoken there: write http:// or https://")),
        };
        let authority = rest.strip_suffix("/configz").unwrap_or(rest).trim_end_matches('/');
        let address = authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match address {
            Some((host, port)) if !host.is_empty() && !host.contains(['/', '@']) => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Ok(Self { tls, host, port })
            }
            _ => Err("write host:port, http://host:port or https://host:port".to_owned()),
        }
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// Part of `/configz` with the replica's report and the configuration in force.
#[derive(Deserialize)]
struct Page<C> {
    replica: ReplicaReport,
    /// Configuration in the format of any version.
    #[serde(default)]
    configuration: C,
}

impl AdminUrl {
    /// Reads the replica's report, with the timeout `within`. `ca` has the authorities (PEM) that may have signed its
    /// certificate; `None` means the system's.
    ///
    /// # Errors
    /// Message with the cause.
    pub async fn report(&self, ca: Option<&Arc<[u8]>>, within: Duration) -> Result<ReplicaReport, String> {
        Ok(self.page::<Page<IgnoredAny>>(ca, within).await?.replica)
    }

    /// Reads the report, and the names of all initializers (built-in ones included) and policies in force there.
    ///
    /// # Errors
    /// Message with the cause.
    pub async fn report_and_names(
        &self,
        ca: Option<&Arc<[u8]>>,
        within: Duration,
    ) -> Result<(ReplicaReport, Vec<String>), String> {
        let Page { replica, configuration } = self.page(ca, within).await?;
        Ok((replica, names(&configuration)))
    }

    async fn page<P: DeserializeOwned>(&self, ca: Option<&Arc<[u8]>>, within: Duration) -> Result<P, String> {
        let late = |_| format!("it took longer than {}", humantime::format_duration(within));
        timeout(within, self.ask(ca)).await.map_err(late)?
    }

    async fn ask<P: DeserializeOwned>(&self, ca: Option<&Arc<[u8]>>) -> Result<P, String> {
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| error.to_string())?;
        if !self.tls {
            return self.get(stream).await;
        }
        let wanted = EndpointTls { server_name: (&*self.host).into(), ca_pem: ca.cloned(), client_pem: None };
        let config = tls::client_config(&wanted, Transport::Http, &SystemRoots::default())
            .map_err(|error| format!("{error}; {}", error.fix()))?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        self.get(stream.map_err(|error| format!("TLS: {error}; is it the right --ca?"))?).await
    }

    async fn get<P, Io>(&self, io: Io) -> Result<P, String>
    where
        P: DeserializeOwned,
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|error| error.to_string())?;
        let request = Request::get("/configz")
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let exchange = async move {
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            if answer.status() != StatusCode::OK {
                return Err(format!("it answers {}: is that gatepost's admin address?", answer.status()));
            }
            let body = Limited::new(answer.into_body(), MAX_PAGE_BYTES).collect().await;
            Ok(body.map_err(|error| error.to_string())?.to_bytes())
        };
        // Drive the connection until the exchange has ended. The exchange reports connection errors.
        let (page, _) = tokio::join!(exchange, connection);
        serde_json::from_slice(&page?)
            .map_err(|error| format!("its /configz cannot be understood: {error}; is it another version?"))
    }
}

/// Returns the names of the initializers and policies in a configuration from `/configz`.
fn names(configuration: &Value) -> Vec<String> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let entries = list(configuration, "resourceInitializers");
    let all = entries.iter().flat_map(|entry| list(entry, "initializers")).chain(list(configuration, "policies"));
    all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

/// Reads the reports of all `places` concurrently. A replica counts once, even if two addresses lead to it.
pub async fn read_all(places: &[AdminUrl], ca: Option<&Arc<[u8]>>, within: Duration) -> ReplicasSeen {
    let mut distinct: Vec<&AdminUrl> = Vec::new();
    places.iter().for_each(|place| {
        if !distinct.contains(&place) {
            distinct.push(place);
        }
    });
    let asked = distinct.into_iter().map(|place| async move { (place, place.report(ca, within).await) });
    let mut seen = ReplicasSeen::default();
    for (place, answer) in futures_util::future::join_all(asked).await {
        match answer {
            Ok(report) => seen.reports.push(report),
            Err(why) => seen.unreadable.push(ReportError { place: place.to_string(), why }),
        }
    }
    let mut instances = HashSet::new();
    // Replicas of an older version report no instance.
    seen.reports.retain(|report| report.instance.is_empty() || instances.insert(report.instance.clone()));
    seen.reports.sort_by(|a, b| a.replica.cmp(&b.replica));
    seen
}

/// Reads a file of certificate authorities.
///
/// # Errors
/// Message with the path and the cause.
pub fn authorities(file: &Path) -> Result<Arc<[u8]>, String> {
    std::fs::read(file).map(Into::into).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Reads the report of every replica with a key. A dead replica keeps its key for [`TTL`](crate::TTL).
///
/// # Errors
/// [`EtcdError`] of the read.
pub async fn read_etcd(client: &EtcdClient, prefix: &str) -> Result<ReplicasSeen, EtcdError> {
    let mut seen = ReplicasSeen::default();
    for pair in client.get_prefix(prefix).await?.pairs {
        match serde_json::from_slice(&pair.value) {
            Ok(report) => seen.reports.push(report),
            Err(error) => seen.unreadable.push(ReportError {
                place: String::from_utf8_lossy(&pair.key).into_owned(),
                why: format!("its value is not a report of a replica: {error}"),
            }),
        }
    }
    seen.reports.sort_by(|one: &ReplicaReport, other| one.replica.cmp(&other.replica));
    Ok(seen)
}

/// Reads the report of every replica that has recently renewed its entries in configuration objects.
///
/// # Errors
/// Message with the cause and, if there is no object, the fix.
pub async fn read_objects(client: &KubeClient, now: SystemTime) -> Result<ReplicasSeen, String> {
    let objects = client.list(CONFIGURATIONS).await.map_err(|error| error_chain(&error))?.items;
    match objects.is_empty() {
        true => Err(
            "the cluster has no AdmissionControlConfiguration, in whose status replicas report: create one, which may \
                 be without hooks; or ask the replicas, with --admin URL"
                .to_owned(),
        ),
        false => Ok(status::seen(&objects, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addresses_are_parsed_with_or_without_scheme_and_path() {
        let read = |text: &str| AdminUrl::from_str(text).map(|url| url.to_string());
        for (text, url) in [
            ("127.0.0.1:9441", "http://127.0.0.1:9441"),
            ("http://a:1/configz", "http://a:1"),
            ("https://[::1]:9441/", "https://[::1]:9441"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(url));
        }
        for wrong in ["", "a", ":1", "a:x", "grpc://a:1", "http://u:p@a:1", "http://a:1/metrics"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
