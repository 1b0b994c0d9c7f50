//! Probe: is this hook there, and willing?

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;

use super::{
    Channel, Inbox,
    call::{Call, HttpReply, Method, Reply, Request},
};
use crate::{
    model::{CallFailure, HttpForm, Rope, Step, Transport, Unreachable},
    wire::{
        answer,
        outbound::framed,
        pb::k8s::io::{
            api::{
                admission::v1::{AdmissionRequest, AdmissionReview},
                authentication::v1::UserInfo,
            },
            apimachinery::pkg::{
                apis::meta::v1::{GroupVersionKind, GroupVersionResource},
                runtime::RawExtension,
            },
        },
    },
};

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`; status 1 is SERVING.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const PROBE_UID: &str = "gatepost-probe";
/// The service whose health is asked.
const SERVICE: &str = "gatepost.v1.Admission";

/// Why a hook may not be asked yet: the step of the probe that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} (step: {step})")]
pub struct ProbeFailure {
    /// The last step that was taken.
    pub step: Step,
    /// How it failed.
    pub cause: CallFailure,
}

impl From<Unreachable> for ProbeFailure {
    fn from(why: Unreachable) -> Self {
        Self { step: why.step, cause: CallFailure::Connect(why) }
    }
}

impl Channel {
    /// Is the hook there and willing? Connects (name, socket, TLS and peer identity), then asks the standard health
    /// service for `gatepost.v1.Admission`; where the hook has no such service, sends a canned dry-run review, to which
    /// any valid answer will do. A hook that is asked over HTTP is connected to and nothing more: an existing webhook
    /// never sees a review that no apiserver would send.
    ///
    /// # Errors
    /// Why the hook cannot be asked, and at which step; [`CallFailure::Grpc`] also where it says it is not serving.
    pub async fn probe(&self, timeout: Duration) -> Result<(), ProbeFailure> {
        let until = Instant::now() + timeout;
        self.connected(timeout).await?;
        if self.endpoint().transport == Transport::Http {
            return Ok(());
        }
        let left = || until.saturating_duration_since(Instant::now());
        // The whole probe was late, not what was left of it: equal failures should read alike.
        let at = |step| {
            move |cause| match cause {
                CallFailure::Timeout(_) => ProbeFailure { step, cause: CallFailure::Timeout(timeout) },
                cause => ProbeFailure { step, cause },
            }
        };
        let health = framed(&HealthCheckRequest { service: SERVICE.to_owned() });
        match self.ask_once(Method::Health, health, left()).await {
            Ok(reply) => serving(reply).map_err(at(Step::Health)),
            // No health service, or it does not know ours.
            Err(CallFailure::Grpc { code: "UNIMPLEMENTED" | "NOT_FOUND", .. }) => {
                let reply = self.ask_once(Method::Validate, framed(&canned_review()), left()).await;
                reply.and_then(|reply| answer::decode(PROBE_UID, reply)).map(drop).map_err(at(Step::Review))
            }
            Err(failure) => Err(at(Step::Health)(failure)),
        }
    }

    /// Waits until the first worker is connected.
    async fn connected(&self, timeout: Duration) -> Result<(), Unreachable> {
        let (probe, told) = oneshot::channel();
        self.reach(probe);
        match tokio::time::timeout(timeout, told).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Unreachable::at(Step::Connect, "gatepost is stopping")),
            Err(_) => {
                let late = format!("{}: no connection within {timeout:?}", self.endpoint());
                Err(Unreachable::at(Step::Connect, late))
            }
        }
    }

    /// Asks over the first worker's connection and waits for the message that comes back.
    ///
    /// # Errors
    /// Why none came.
    pub async fn ask_once(&self, method: Method, message: Bytes, timeout: Duration) -> Result<Bytes, CallFailure> {
        let request = Request::Grpc { method, namespace_labels: None };
        match self.reply_to(request, Rope::new([message]), timeout).await? {
            Reply::Grpc(message) => Ok(message),
            Reply::Http(reply) => Err(CallFailure::NotGrpc(format!("HTTP status {}", reply.status))),
        }
    }

    /// Posts over the first worker's connection, or one of them, and waits for the reply, whatever its status.
    ///
    /// # Errors
    /// Why none came.
    pub async fn post_once(
        &self,
        path: &str,
        form: HttpForm,
        message: Rope,
        timeout: Duration,
    ) -> Result<HttpReply, CallFailure> {
        match self.reply_to(Request::Http { path: path.into(), form }, message, timeout).await? {
            Reply::Http(reply) => Ok(reply),
            Reply::Grpc(_) => Err(CallFailure::NotHttp("it answered a POST with gRPC".into())),
        }
    }

    async fn reply_to(&self, request: Request, body: Rope, timeout: Duration) -> Result<Reply, CallFailure> {
        let inbox = Arc::new(Inbox::default());
        let deadline = Instant::now() + timeout;
        self.ask(0, Call { request, body, deadline, inbox: inbox.clone(), tag: 0, again: true });
        let arrived = tokio::time::timeout(timeout, inbox.take()).await;
        inbox.close();
        match arrived.map(|arrived| arrived.into_iter().next()) {
            Ok(Some((_, result))) => result,
            _ => {
                self.sweep(0);
                Err(CallFailure::Timeout(timeout))
            }
        }
    }
}

/// Does the health service say that the hook serves?
fn serving(reply: Bytes) -> Result<(), CallFailure> {
    match HealthCheckResponse::decode(reply) {
        Ok(HealthCheckResponse { status: SERVING }) => Ok(()),
        Ok(_) => Err(CallFailure::Grpc {
            code: "OK",
            message: format!("its health service says that {SERVICE} is not SERVING"),
        }),
        Err(error) => Err(CallFailure::Undecodable(error.to_string())),
    }
}

/// A dry-run CREATE of a ConfigMap that no policy should mind; what a hook says to it does not matter.
fn canned_review() -> AdmissionReview {
    let object =
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gatepost-probe","namespace":"default"}}"#;
    let options = br#"{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions","dryRun":["All"]}"#;
    let raw = |json: &'static [u8]| Some(RawExtension { raw: Some(Bytes::from_static(json)) });
    let text = |text: &str| Some(text.to_owned());
    let kind = GroupVersionKind { group: text(""), version: text("v1"), kind: text("ConfigMap") };
    let resource = GroupVersionResource { group: text(""), version: text("v1"), resource: text("configmaps") };
    AdmissionReview {
        request: Some(AdmissionRequest {
            uid: text(PROBE_UID),
            kind: Some(kind.clone()),
            resource: Some(resource.clone()),
            name: text("gatepost-probe"),
            namespace: text("default"),
            operation: text("CREATE"),
            user_info: Some(UserInfo { username: text("system:gatepost:probe"), ..Default::default() }),
            object: raw(object),
            dry_run: Some(true),
            options: raw(options),
            request_kind: Some(kind),
            request_resource: Some(resource),
            ..Default::default()
        }),
        response: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hook_that_says_it_serves_is_taken_to() {
        // source: grpc.health.v1, UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN; and one that nobody knows.
        for (status, serves) in [(0, false), (1, true), (2, false), (3, false), (9, false)] {
            let reply = HealthCheckResponse { status }.encode_to_vec();
            assert_eq!(serving(reply.into()).is_ok(), serves, "{status}");
        }
        assert!(serving(Bytes::from_static(&[0xff])).is_err(), "no answer at all");
    }
}
