//! A read proxy between clients and an apiserver that answers as a test says.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops where its own setup is wrong"
)]

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use gatepost::{runtime::ProxyAdmin, telemetry::Metrics};
use gatepost_kube_support::KubeAccess;
use gatepost_read_proxy::{Cluster, ProxiedResources, Proxy, ProxySettings, RequestOrigin, listen};
use gatepost_tls::{ClientChain, FileCheck, ServerFiles, ServerTls};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::{http1, http2},
    server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, client::TlsStream};

use crate::tls::{Authority, BOTH, Pair, client, connect, files, put, put_pair};

/// The longest anything may take here.
pub const LONG: Duration = Duration::from_secs(20);
pub const PENDING: &str = "init.gatepost.dev/pending";
pub const STATE: &str = "init.gatepost.dev/state";

pub type Content = UnsyncBoxBody<Bytes, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Response<Content>> + Send>>;
type Script = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;
/// A connection to the apiserver.
pub type ServerStream = tokio_rustls::server::TlsStream<TcpStream>;

/// A request as it came to the apiserver.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// Common name of the certificate that its connection has shown.
    pub certificate: Option<String>,
}

impl Asked {
    pub fn target(&self) -> &str {
        self.uri.path_and_query().unwrap().as_str()
    }

    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// A proxy, its apiserver, and those who may call it.
pub struct World {
    pub address: SocketAddr,
    pub proxy: Arc<Proxy>,
    server: Authority,
    clients: Authority,
    asked: Arc<Mutex<Vec<Asked>>>,
    tls: Arc<ServerTls>,
    folder: PathBuf,
    stop: watch::Sender<bool>,
    pub serving: JoinHandle<()>,
}

pub fn json_content(value: &Value) -> Content {
    content(value.to_string())
}

pub fn content(bytes: impl Into<Bytes>) -> Content {
    Full::new(bytes.into()).boxed_unsync()
}

/// Content that comes chunk by chunk, until the sender is dropped.
pub fn chunks(chunks: mpsc::UnboundedReceiver<Bytes>) -> Content {
    let next = |mut chunks: mpsc::UnboundedReceiver<Bytes>| async move {
        let chunk = chunks.recv().await?;
        Some((Ok(Frame::data(chunk)), chunks))
    };
    StreamBody::new(futures_util::stream::unfold(chunks, next)).boxed_unsync()
}

pub fn reply(status: u16, value: &Value) -> Response<Content> {
    let answer = Response::builder().status(status).header("content-type", "application/json");
    answer.body(json_content(value)).unwrap()
}

pub fn not_scripted(request: &Request<Incoming>) -> Response<Content> {
    let message = format!("not scripted: {} {}", request.method(), request.uri());
    reply(418, &json!({"kind": "Status", "message": message}))
}

/// A ConfigMap, marked as unfinished where `pending` says so.
pub fn config_map(name: &str, version: u64, pending: Option<&[&str]>) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}});
    if let Some(pending) = pending {
        object["metadata"]["labels"] = json!({PENDING: "1f2e"});
        let state = json!({"state": "Pending", "pending": pending});
        object["metadata"]["annotations"] = json!({STATE: state.to_string()});
    }
    object
}

impl World {
    /// With an apiserver that answers like this.
    pub async fn new<F>(script: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Content>> + Send + 'static,
    {
        Self::with(script, &["h2", "http/1.1"], |_| {}).await
    }

    /// The same; the apiserver speaks these protocols, and the proxy has these settings.
    pub async fn with<F>(
        script: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        protocols: &[&str],
        change: impl FnOnce(&mut ProxySettings),
    ) -> Self
    where
        F: Future<Output = Response<Content>> + Send + 'static,
    {
        Self::draining(script, protocols, change, Duration::ZERO).await
    }

    /// The same, with so much time for what is left when it is to end.
    pub async fn draining<F>(
        script: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        protocols: &[&str],
        change: impl FnOnce(&mut ProxySettings),
        drain: Duration,
    ) -> Self
    where
        F: Future<Output = Response<Content>> + Send + 'static,
    {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Script = Arc::new(move |request: Request<Incoming>| -> Answering { Box::pin(script(request)) });
        let seen = Arc::clone(&asked);
        let serve = move |stream| answer(stream, Arc::clone(&script), Arc::clone(&seen));
        Self { asked, ..Self::before(protocols, serve, change, drain).await }
    }

    /// With an apiserver that is only bytes.
    pub async fn over<F>(protocols: &[&str], serve: impl Fn(ServerStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::before(protocols, serve, |_| {}, Duration::ZERO).await
    }

    async fn before<F>(
        protocols: &[&str],
        serve: impl Fn(ServerStream) -> F + Send + Sync + 'static,
        change: impl FnOnce(&mut ProxySettings),
        drain: Duration,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (server, clients) = (Authority::new("cluster"), Authority::new("clients"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        put_pair(path, &server.server());
        let client_ca = Some(put(path, "clients.crt", &clients.pem()));
        let files = ServerFiles { client_ca, certificate_optional: true, ..files(path) };
        let tls = Arc::new(ServerTls::load(files).unwrap());
        let front_proxy = clients.pair("front-proxy", &[]);
        let certificate = (put(path, "proxy.crt", &front_proxy.chain), put(path, "proxy.key", &front_proxy.key));

        let upstream = apiserver(&tls, protocols, serve).await;
        let access = access(path, upstream, &server);
        let origin = RequestOrigin { access: access.clone(), url: None, front_proxy: Some(certificate) };
        let (plain, front_proxy) = origin.upstreams().await.unwrap();
        let mut settings = ProxySettings {
            resources: ProxiedResources::parse(["configmaps", "widgets.example.com"]).unwrap(),
            see_all: Vec::new(),
            not_found_for: vec!["kubelet/".to_owned()],
            hold_timeout: LONG,
            max_holds: 16,
            max_connections: 64,
        };
        change(&mut settings);
        let proxy = Proxy::new(settings, Cluster::new(access).await.unwrap(), plain, front_proxy);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let (path, serving_tls, served) = (path.to_owned(), Arc::clone(&tls), Arc::clone(&proxy));
        let serving = tokio::spawn(async move {
            // The account's file is read again and again.
            let _folder = folder;
            listen::serve(served, listener, serving_tls, stopping, drain).await;
        });
        let asked = Arc::default();
        Self { address, proxy, server, clients, asked, tls, folder: path, stop, serving }
    }

    /// Another authority vouches for users' certificates from now on.
    pub fn replace_clients(&self) {
        put(&self.folder, "clients.crt", &Authority::new("other clients").pem());
        assert_eq!(self.tls.reload(std::time::SystemTime::now()), FileCheck::Replaced);
    }

    /// The first one does so again.
    pub fn restore_clients(&self) {
        put(&self.folder, "clients.crt", &self.clients.pem());
        assert_eq!(self.tls.reload(std::time::SystemTime::now()), FileCheck::Replaced);
    }

    /// The proxy is to end.
    pub fn stop(&self) {
        self.stop.send(true).expect("it is there");
    }

    /// Address of its pages for operators.
    pub async fn admin(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admin = ProxyAdmin::new(Arc::clone(&self.proxy), Arc::clone(&self.tls), Arc::new(Metrics::new(1)));
        tokio::spawn(admin.serve(listener, false));
        address
    }

    /// Requests that came to the apiserver from clients: not the proxy's own.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.header("authorization") != ["Bearer of-the-proxy"]).cloned().collect()
    }

    /// Requests of the proxy itself.
    pub fn own(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.header("authorization") == ["Bearer of-the-proxy"]).cloned().collect()
    }

    pub fn pair(&self, name: &str) -> Pair {
        self.clients.pair(name, &[])
    }

    pub async fn http2(&self, pair: Option<&Pair>) -> http2::SendRequest<Full<Bytes>> {
        let stream = connect(self.address, &client(&self.server, pair, &["h2"], BOTH)).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A connection for HTTP/1.1 in bytes.
    pub async fn raw_http1(&self, pair: Option<&Pair>) -> TlsStream<TcpStream> {
        connect(self.address, &client(&self.server, pair, &["http/1.1"], BOTH)).await.unwrap()
    }

    pub async fn http1(&self, pair: Option<&Pair>) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.raw_http1(pair).await;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    /// The answer to a request without a body, by someone without a certificate.
    pub async fn call(&self, request: Request<Full<Bytes>>) -> (StatusCode, HeaderMap, Bytes) {
        let answer = self.http2(None).await.send_request(request);
        let answer = tokio::time::timeout(LONG, answer).await.expect("in time").expect("an answer");
        let (parts, body) = answer.into_parts();
        (parts.status, parts.headers, body.collect().await.expect("to its end").to_bytes())
    }

    /// The status and the JSON of a GET with a token of this name.
    pub async fn get(&self, token: &str, target: &str) -> (u16, Value) {
        let (status, _, body) = self.call(ask("GET", target, token).body(Full::default()).unwrap()).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
    }

    /// The same of a POST.
    pub async fn post(&self, target: &str, object: &Value) -> (u16, HeaderMap, Value) {
        let request = ask("POST", target, "ann").header("content-type", "application/json");
        let request = request.body(Full::from(object.to_string())).unwrap();
        let (status, headers, body) = self.call(request).await;
        (status.as_u16(), headers, serde_json::from_slice(&body).unwrap_or_default())
    }
}

/// A page for operators.
pub async fn page(admin: SocketAddr, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(admin).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "proxy").body(Full::<Bytes>::default()).unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
}

/// Waits until a line of the metrics is there.
pub async fn until_metric(admin: SocketAddr, line: &str) {
    let looking = async {
        while !page(admin, "/metrics").await.1.lines().any(|found| found == line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::time::timeout(LONG, looking).await;
    assert!(ended.is_ok(), "{line} in\n{}", page(admin, "/metrics").await.1);
}

/// A request with a token of this name; an empty one is none.
pub fn ask(method: &str, target: &str, token: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(format!("https://localhost{target}"));
    if token.is_empty() { request } else { request.header("authorization", format!("Bearer {token}")) }
}

/// Answers to token and access reviews: a token is its owner's name, and whoever is called `init` may initialize.
pub async fn review(request: Request<Incoming>) -> Response<Content> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    review["status"] = match path.rsplit('/').next() {
        Some("tokenreviews") => {
            let name = review["spec"]["token"].clone();
            json!({"authenticated": true, "user": {"username": name, "groups": ["system:authenticated"]}})
        }
        _ => {
            let spec = &review["spec"];
            json!({"allowed": spec["user"] == "init" && spec["resourceAttributes"]["verb"] == "initialize"})
        }
    };
    reply(201, &review)
}

pub fn is_review(request: &Request<Incoming>) -> bool {
    request.uri().path().ends_with("reviews")
}

fn access(folder: &std::path::Path, upstream: SocketAddr, server: &Authority) -> KubeAccess {
    let ca = put(folder, "upstream.crt", &server.pem());
    let cluster = json!({"server": format!("https://localhost:{}", upstream.port()), "certificate-authority": ca});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "of-the-proxy"}}]});
    KubeAccess::Kubeconfig { path: Some(put(folder, "kubeconfig", &kubeconfig.to_string())), context: None }
}

async fn apiserver<F>(
    tls: &ServerTls,
    protocols: &[&str],
    serve: impl Fn(ServerStream) -> F + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = (*tls.front()).clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let (acceptor, serve) = (TlsAcceptor::from(Arc::new(config)), Arc::new(serve));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
            tokio::spawn(async move { serve(acceptor.accept(stream).await.unwrap()).await });
        }
    });
    address
}

/// Answers the requests of a connection as the script says.
async fn answer(stream: ServerStream, script: Script, asked: Arc<Mutex<Vec<Asked>>>) {
    let certificate = ClientChain::of(stream.get_ref().1).and_then(|chain| chain.user()).map(|user| user.name);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        asked.lock().unwrap().push(Asked {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            certificate: certificate.clone(),
        });
        let answering = script(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let io = TokioIo::new(stream);
    // A client that hangs up in the middle is part of some tests.
    let _ = match is_http2 {
        true => {
            let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_header_list_size(1 << 20).serve_connection(io, service).await
        }
        false => server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await,
    };
}
