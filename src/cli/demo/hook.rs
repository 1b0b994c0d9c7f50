//! A hook: a real gRPC server on a thread of its own, which ends with all its connections when it is killed.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use hyper::body::Incoming;
use serde_json::Value;
use tokio::{runtime::Builder, sync::oneshot};
use tonic::{Request, Response, Status};
use tower_service::Service as _;

use super::policies::{Policy, PolicyAnswer};
use crate::wire::pb::k8s::io::{
    api::admission::v1::{AdmissionResponse, AdmissionReview},
    apimachinery::pkg::apis::meta::v1 as meta,
};
use crate::{
    cli::hook_listener::HookListener,
    tls::ServerConfig,
    wire::pb::gatepost::v1::admission_server::{Admission, AdmissionServer},
};

/// HTTP status of a hook's no, and its word.
const FORBIDDEN: (i32, &str) = (403, "Forbidden");

/// Address of a hook.
#[derive(Clone)]
pub(super) enum HookAddress {
    /// Plaintext; port 0 takes a free one.
    Plain(SocketAddr),
    /// TLS, to clients with a certificate.
    Tls(SocketAddr, Arc<ServerConfig>),
    /// A unix socket.
    Unix(PathBuf),
}

/// A hook that serves. Dropping it kills it.
pub(super) struct Hook {
    /// Address of the hook, with the port it got.
    pub(super) place: HookAddress,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Hook {
    /// Every connection ends with the runtime, in the middle of whatever it was doing.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A hook that panicked has said so.
            let _ = thread.join();
        }
        if let HookAddress::Unix(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Hook {
    /// Listens, and serves that policy; with `None` it takes every question and never answers.
    pub(super) fn start(place: HookAddress, policy: Option<Policy>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (place, listener) = {
            let _entered = runtime.enter();
            listen(place)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let service = AdmissionServer::new(Answers(policy));
            let answer = move |request: http::Request<Incoming>| {
                let mut service = service.clone();
                async move { service.call(request).await }
            };
            // Killed by its handle's end: nobody sends anything.
            let stop = async {
                let _ = stopped.await;
            };
            runtime.block_on(listener.serve(answer, stop));
        };
        let thread = thread::Builder::new().name("demo-hook".to_owned()).spawn(run)?;
        Ok(Self { place, stop: Some(stop), thread: Some(thread) })
    }

    /// As a configuration names it.
    pub(super) fn url(&self) -> String {
        match &self.place {
            HookAddress::Plain(address) => format!("grpc://{address}"),
            HookAddress::Tls(address, _) => format!("grpcs://{address}"),
            HookAddress::Unix(path) => format!("unix://{}", path.display()),
        }
    }
}

fn listen(place: HookAddress) -> io::Result<(HookAddress, HookListener)> {
    let listener = match &place {
        HookAddress::Plain(address) => HookListener::tcp(*address, None)?,
        HookAddress::Tls(address, tls) => HookListener::tcp(*address, Some(Arc::clone(tls)))?,
        HookAddress::Unix(path) => HookListener::unix(path)?,
    };
    let place = match (place, listener.address()) {
        (HookAddress::Plain(_), Some(address)) => HookAddress::Plain(address),
        (HookAddress::Tls(_, tls), Some(address)) => HookAddress::Tls(address, tls),
        (place, _) => place,
    };
    Ok((place, listener))
}

/// The service.
struct Answers(Option<Policy>);

#[tonic::async_trait]
impl Admission for Answers {
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let asked = request.into_inner().request.ok_or_else(|| Status::invalid_argument("no request"))?;
        let Some(policy) = self.0 else { return pending().await };
        let object = asked.object.as_ref().and_then(|object| object.raw.as_ref());
        let object = object.map_or(Ok(Value::Null), |raw| serde_json::from_slice(raw));
        let object = object.map_err(|error| Status::invalid_argument(format!("the object is not JSON: {error}")))?;
        let said = policy(&asked, &object);
        Ok(Response::new(AdmissionReview { request: None, response: Some(response(asked.uid, said)) }))
    }

    async fn mutate(&self, _: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        Err(Status::unimplemented("this hook changes nothing"))
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }
}

fn response(uid: Option<String>, said: PolicyAnswer) -> AdmissionResponse {
    let (code, reason) = FORBIDDEN;
    let allowed = said.no.is_none();
    let status = said.no.map(|message| meta::Status {
        message: Some(message),
        reason: Some(reason.to_owned()),
        code: Some(code),
        ..Default::default()
    });
    AdmissionResponse {
        uid,
        allowed: Some(allowed),
        status,
        warnings: said.warnings,
        audit_annotations: said.annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        ..Default::default()
    }
}
