//! Registrations: the `caBundle` of every webhook that names our Service.
//!
//! A JSON patch writes this field alone, and only on the state that was read. Server-side apply is not suitable: its
//! manager keeps an applied list entry in the list, so a newly printed registration without that entry would be
//! rejected as incomplete.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{StreamExt, stream};
use gatepost_api::{
    HookType,
    bundle::sections,
    hook::{EndpointTls, Transport},
};
use gatepost_kube_support::{KubeClient, KubeError};
use gatepost_tls::{SystemRoots, client_config, expiry};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::{
    CertificatesError, MANAGER,
    store::{Store, Version},
    stored::Pair,
};
use crate::command::Service;

/// Maximum number of authorities of others that are kept in a bundle.
const MAX_OTHERS: usize = 8;

/// Result of an update of the registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrustUpdate {
    /// Number of webhooks whose bundle was written.
    pub(super) written: usize,
    /// Whether a bundle contains an authority that is not ours.
    pub(super) others: bool,
    /// Names of registrations of which no webhook names our Service.
    pub(super) missing: Vec<String>,
}

/// Treatment of authorities in a bundle that are not ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum ForeignAuthorities<'a> {
    /// Keep them.
    Keep,
    /// Remove them if the store is still at the version that was read: another keeper may have stored one of them for
    /// the next pair.
    Remove(&'a Store, &'a Version),
}

/// Makes the registrations of these names trust `ours`.
pub(super) async fn trust(
    client: &KubeClient,
    names: &[String],
    service: &Service,
    ours: &str,
    others: ForeignAuthorities<'_>,
    now: SystemTime,
) -> Result<TrustUpdate, CertificatesError> {
    let mut all = TrustUpdate { missing: names.to_vec(), ..TrustUpdate::default() };
    for hook_type in [HookType::Validating, HookType::Mutating] {
        let kind = hook_type.resource();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        for name in names {
            let Some(object) = client.find(&path, name).await? else { continue };
            let keep = matches!(others, ForeignAuthorities::Keep);
            let (webhooks, has_others, patch) = patched(&object, service, ours, keep, now);
            // The first operation is a test.
            let written = patch.len() - 1;
            if written > 0 {
                // Checked after the registration was read: a keeper stores an authority before it adds it to a bundle.
                if let ForeignAuthorities::Remove(store, version) = others
                    && !store.is_at(client, version).await?
                {
                    return Err(CertificatesError::Conflict);
                }
                let path = format!("{path}/{name}?fieldManager={MANAGER}&fieldValidation=Strict");
                client.patch(&path, "application/json-patch+json", &Value::from(patch)).await?;
                tracing::info!(registration = name, kind, webhooks = written, "wrote the caBundle");
            }
            if webhooks > 0 {
                all.missing.retain(|missing| missing != name);
            }
            all.written += written;
            all.others |= has_others;
        }
    }
    Ok(all)
}

/// Returns the number of webhooks that name our Service, whether a bundle contains an authority that is not ours, and the
/// patch of the registration: a test of the state that was read, and a write for each bundle to change.
fn patched(object: &Value, service: &Service, ours: &str, keep: bool, now: SystemTime) -> (usize, bool, Vec<Value>) {
    let mut patch = vec![json!({"op": "test", "path": "/metadata/resourceVersion",
        "value": object["metadata"]["resourceVersion"]})];
    let (mut webhooks, mut has_others) = (0, false);
    for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let client_config = &webhook["clientConfig"];
        if !service.is_named_by(client_config) {
            continue;
        }
        webhooks += 1;
        let there = client_config["caBundle"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let (wanted, others) = bundle(ours, &there, keep, now);
        has_others |= others;
        if let Some(wanted) = wanted {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            patch.push(json!({"op": "add", "path": path, "value": STANDARD.encode(wanted)}));
        }
    }
    (webhooks, has_others, patch)
}

/// Returns the bundle that replaces `there`, `None` if no change is needed; and whether `there` contains authorities of
/// others that have not expired.
fn bundle(ours: &str, there: &[u8], keep: bool, now: SystemTime) -> (Option<String>, bool) {
    let (own, there) = (sections(ours.as_bytes()), sections(there));
    let mut others = Vec::new();
    for other in there.iter().filter(|one| !own.contains(one)) {
        let pem = pem(other);
        if expiry::validity(pem.as_bytes()).is_some_and(|(_, end)| now < end) && others.len() < MAX_OTHERS {
            others.push(pem);
        }
    }
    let any = !others.is_empty();
    let kept: String = others.into_iter().filter(|_| keep).collect();
    let wanted = format!("{ours}{kept}");
    // Our authorities keep the order of the stored bundle, so that applying the bundle's text changes nothing. The
    // position of others does not matter: two keepers of one registration must not write it in turns.
    let in_order = there.iter().filter(|one| own.contains(one)).eq(&own);
    let same = in_order && sections(wanted.as_bytes()).len() == there.len();
    ((!same).then_some(wanted), any)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // Base64 is ASCII.
    text.extend(encoded.as_bytes().chunks(64).flat_map(|line| line.iter().chain(b"\n")).map(|byte| char::from(*byte)));
    text + "-----END CERTIFICATE-----\n"
}

/// Timeout of the TLS handshake with one endpoint.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of concurrent handshakes.
const MAX_CONCURRENT_HANDSHAKES: usize = 16;
/// Maximum number of endpoints to check.
const MAX_ENDPOINTS: usize = 256;
/// Name of the port that callers use, if the Service has several.
const PORT_NAME: &str = "https";

/// Returns true if each endpoint of the Service shows a certificate that the authority of `pair` has signed. Returns
/// false if an endpoint's certificate is unknown, or if there is no endpoint.
pub(super) async fn served_everywhere(client: &KubeClient, service: &Service, pair: &Pair) -> Result<bool, KubeError> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", service.namespace);
    let slices =
        client.list_labelled(&path, &format!("kubernetes.io/service-name={}", service.name), usize::MAX).await?;
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
            timeout(HANDSHAKE_TIMEOUT, shaking).await.is_ok_and(|shaken| shaken.is_ok())
        }
    };
    let shown = stream::iter(endpoints).map(shows).buffer_unordered(MAX_CONCURRENT_HANDSHAKES);
    Ok(shown.all(|shown| async move { shown }).await)
}

/// Returns addresses and ports of all endpoints, even unready ones, which may serve; `None` if unclear.
fn endpoints(slices: &[Value]) -> Option<Vec<(String, u16)>> {
    let mut all = Vec::new();
    for slice in slices {
        let is_tcp = |port: &&Value| port["protocol"].is_null() || port["protocol"] == "TCP";
        let ports: Vec<_> = slice["ports"].as_array().into_iter().flatten().filter(is_tcp).collect();
        let port = match &*ports {
            [] => continue,
            [only] => *only,
            several => *several.iter().find(|port| port["name"] == PORT_NAME)?,
        };
        let port = u16::try_from(port["port"].as_u64()?).ok()?;
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let addresses = endpoint["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
            all.extend(addresses.map(|address| (address.to_owned(), port)));
        }
    }
    (1..=MAX_ENDPOINTS).contains(&all.len()).then_some(all)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Mutex},
        time::Duration,
    };

    use gatepost_kube_support::KubeAccess;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::{
        io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
        net::TcpListener,
    };

    use super::{super::stored::issue, *};

    const HOUR: Duration = Duration::from_secs(3600);

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn authority() -> String {
        issue(&["a.b.svc".to_owned()], HOUR, start()).unwrap().authority
    }

    #[test]
    fn ca_bundle_is_written_only_to_webhooks_of_our_service() {
        let (ours, service) = (authority(), "ns/gatepost".parse::<Service>().unwrap());
        let webhook = |service: &str, bundle: Value| json!({"clientConfig": {"service": {"namespace": "ns", "name": service}, "caBundle": bundle}});
        let good = json!(STANDARD.encode(&ours));
        let webhooks = [
            webhook("gatepost", good.clone()),
            webhook("gatepost", Value::Null),
            webhook("other", Value::Null),
            json!({"clientConfig": {"url": "https://127.0.0.1"}}),
        ];
        let object = json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks});
        let (webhooks, others, patch) = patched(&object, &service, &ours, true, start());
        assert_eq!((webhooks, others, patch.len()), (2, false, 2));
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!(patch, [test, json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": good})]);
        let (webhooks, others, patch) = patched(&json!({}), &service, &ours, true, start());
        assert_eq!((webhooks, others, patch.len()), (0, false, 1));
    }

    #[test]
    fn ca_bundle_keeps_authorities_of_others_until_told_to_drop_them() {
        let (ours, other) = (authority(), authority());
        let there = format!("{other}{ours}");
        assert_eq!(bundle(&ours, there.as_bytes(), true, start()), (None, true), "wherever it stands");
        assert_eq!(bundle(&ours, there.as_bytes(), false, start()), (Some(ours.clone()), true));
        assert_eq!(bundle(&ours, other.as_bytes(), true, start()), (Some(format!("{ours}{other}")), true));
        let late = start() + HOUR * 2;
        assert_eq!(bundle(&ours, there.as_bytes(), true, late), (Some(ours.clone()), false), "one that has ended goes");
        assert_eq!(bundle(&ours, b"rubbish", true, start()), (Some(ours), false));
    }

    #[test]
    fn ca_bundle_has_our_authorities_in_their_stored_order() {
        let [current, former, other] = [authority(), authority(), authority()];
        let ours = format!("{current}{former}");
        let bundle = |there: String| bundle(&ours, there.as_bytes(), true, start()).0;
        assert_eq!(bundle(ours.clone()), None);
        assert_eq!(bundle(format!("{former}{current}")), Some(ours.clone()), "as before the pair was served");
        assert_eq!(bundle(format!("{current}{other}{former}")), None);
        assert_eq!(bundle(format!("{current}{current}")), Some(ours.clone()));
    }

    /// An apiserver with our Secret at that revision, and a registration with that bundle. Requests that it has had.
    async fn apiserver(revision: &'static str, bundle: String) -> (KubeClient, Arc<Mutex<Vec<String>>>, TempDir) {
        let (listener, folder) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), tempfile::tempdir().unwrap());
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        let path = folder.path().join("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut lines = BufReader::new(stream).lines();
                let line = lines.next_line().await.unwrap().unwrap();
                let mut length = 0;
                while let Ok(Some(line)) = lines.next_line().await
                    && !line.is_empty()
                {
                    length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
                }
                let (code, body) = match &*line {
                    line if line.starts_with("PATCH ") => (200, json!({})),
                    line if line.contains("/validatingwebhookconfigurations/gatepost ") => {
                        let service = json!({"namespace": "ns", "name": "gatepost"});
                        let config = json!({"service": service, "caBundle": STANDARD.encode(&bundle)});
                        (200, json!({"metadata": {"resourceVersion": "1"}, "webhooks": [{"clientConfig": config}]}))
                    }
                    line if line.contains("/secrets/tls ") => (200, json!({"metadata": {"resourceVersion": revision}})),
                    _ => (404, json!({})),
                };
                record.lock().unwrap().push(line.split('?').next().unwrap().to_owned());
                let mut stream = lines.into_inner();
                stream.read_exact(&mut vec![0; length]).await.unwrap();
                let answer =
                    format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
        (KubeClient::open(&access).await.unwrap(), asked, folder)
    }

    #[tokio::test]
    async fn ca_bundle_keeps_an_authority_that_another_keeper_has_stored() {
        let (ours, names) = (authority(), ["gatepost".to_owned(), "other".to_owned()]);
        let service = "ns/gatepost".parse::<Service>().unwrap();
        let store = Store::Secret { namespace: "ns".to_owned(), name: "tls".to_owned() };
        let version = Version::Revision("7".to_owned());
        for (revision, goes) in [("7", true), ("8", false)] {
            let (client, asked, _folder) = apiserver(revision, format!("{ours}{}", authority())).await;
            let trust = |others| trust(&client, &names, &service, &ours, others, start());
            let missing = vec!["other".to_owned()];
            assert_eq!(
                trust(ForeignAuthorities::Keep).await.unwrap(),
                TrustUpdate { written: 0, others: true, missing }
            );
            let gone = trust(ForeignAuthorities::Remove(&store, &version)).await;
            assert_eq!(gone.as_ref().is_err_and(CertificatesError::is_conflict), !goes, "{gone:?}");
            let patches = asked.lock().unwrap().iter().filter(|line| line.starts_with("PATCH ")).count();
            assert_eq!(patches, usize::from(goes));
        }
    }

    #[test]
    fn endpoints_are_the_addresses_of_all_slices() {
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
        assert_eq!(endpoints(&[slice(one, &["192.0.2.1"; MAX_ENDPOINTS + 1])]), None);
    }
}
