//! Probe: is this hook there, and willing?

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;

use super::{
    Channel, Responses, Reuse,
    call::{Call, Method},
    canned,
    protocol::{GrpcRequest, HookRequest, HttpRequest},
    reply::{HttpReply, Reply},
};
use crate::{
    clock::now,
    model::{CallFailure, Hook, HookType, Hops, HttpForm, Protocol, Rope, Step, Transport, Unreachable},
    wire::{answer, names, outbound::framed},
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

/// Path and encoding of the canned review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePost {
    /// The hook's path.
    pub path: Arc<str>,
    /// The hook's form.
    pub form: HttpForm,
}

impl ProbePost {
    /// For that hook: none where it is not asked over HTTP, or where a review might have effects.
    pub fn to(hook: &Hook) -> Option<Self> {
        match &hook.protocol {
            Protocol::Http { path, form } if hook.side_effects.none_for(true) => {
                Some(Self { path: Arc::clone(path), form: *form })
            }
            _ => None,
        }
    }
}

/// Reason why a hook may not be asked yet: the step of the probe that failed, and the failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause} (step: {step})", posted.as_ref().map(|path| format!("POST {path}: ")).unwrap_or_default())]
pub struct ProbeFailure {
    /// The last step that was taken.
    pub step: Step,
    /// The path that the canned review was posted to, where it came to that.
    pub posted: Option<Arc<str>>,
    /// Failure of that step.
    pub cause: CallFailure,
}

impl ProbeFailure {
    /// Failure at that step of a probe with this timeout. A late probe is reported with the whole timeout, not with the
    /// rest of it: equal failures should read alike.
    fn at(step: Step, timeout: Duration) -> impl Fn(CallFailure) -> Self {
        move |cause| match cause {
            CallFailure::Connect(why) => why.into(),
            CallFailure::Timeout(_) => Self { step, posted: None, cause: CallFailure::Timeout(timeout) },
            cause => Self { step, posted: None, cause },
        }
    }
}

impl From<Unreachable> for ProbeFailure {
    fn from(why: Unreachable) -> Self {
        Self { step: why.step, posted: None, cause: CallFailure::Connect(why) }
    }
}

impl Channel {
    /// Is the hook there and willing? Connects (name, socket, TLS and peer identity), then asks the standard health
    /// service for `gatepost.v1.Admission`; where the hook has no such service, sends a canned dry-run review, to which
    /// any valid answer will do. A hook that is asked over HTTP is posted that review, to which any whole reply will do
    /// that is not nobody's; without `post` it is connected to and nothing more.
    ///
    /// # Errors
    /// [`ProbeFailure`] at the step that failed; [`CallFailure::Grpc`] also where the hook says it is not serving,
    /// [`CallFailure::Http`] where there is no hook at that path.
    pub async fn probe(&self, post: Option<&ProbePost>, timeout: Duration) -> Result<(), ProbeFailure> {
        let until = now() + timeout;
        self.connected(timeout).await?;
        let left = until.saturating_duration_since(now());
        match (self.endpoint().transport, post) {
            (Transport::Grpc, _) => self.serves(left, timeout).await,
            (Transport::Http, None) => Ok(()),
            (Transport::Http, Some(post)) => self.replies(post, left).await.map_err(|cause| {
                let failure = ProbeFailure::at(Step::Review, timeout)(cause);
                let posted = (failure.step == Step::Review).then(|| Arc::clone(&post.path));
                ProbeFailure { posted, ..failure }
            }),
        }
    }

    /// Asks the health service, or else for a review, within what is `left` of the probe's `timeout`.
    async fn serves(&self, left: Duration, timeout: Duration) -> Result<(), ProbeFailure> {
        let until = now() + left;
        let health = framed(&HealthCheckRequest { service: names::ADMISSION.to_owned() });
        match self.ask_once(Method::Health, health, left).await {
            Ok(reply) => serving(reply).map_err(ProbeFailure::at(Step::Health, timeout)),
            // No health service, or it does not know ours.
            Err(CallFailure::Grpc { code: "UNIMPLEMENTED" | "NOT_FOUND", .. }) => {
                let left = until.saturating_duration_since(now());
                let reply = match self.ask_once(Method::Validate, canned::message(), left).await {
                    // A hook that only changes objects has no other method.
                    Err(CallFailure::Grpc { code: "UNIMPLEMENTED", .. }) => {
                        let left = until.saturating_duration_since(now());
                        self.ask_once(Method::Mutate, canned::message(), left).await
                    }
                    reply => reply,
                };
                // Any verdict passes, also one with a patch: a mutating hook may send that.
                let answer = reply.and_then(|reply| answer::decode(HookType::Mutating, canned::UID, reply));
                answer.map(drop).map_err(ProbeFailure::at(Step::Review, timeout))
            }
            Err(failure) => Err(ProbeFailure::at(Step::Health, timeout)(failure)),
        }
    }

    /// Posts the canned review and looks whether the hook itself replies.
    async fn replies(&self, post: &ProbePost, left: Duration) -> Result<(), CallFailure> {
        let reply = self.post_once(&post.path, post.form, canned::written(post.form)?, left).await?;
        answered(reply.status)
    }

    /// Waits until the first worker is connected.
    async fn connected(&self, timeout: Duration) -> Result<(), Unreachable> {
        let (probe, text) = oneshot::channel();
        self.reach(probe);
        match tokio::time::timeout(timeout, text).await {
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
    /// [`CallFailure`] where no message comes.
    pub async fn ask_once(&self, method: Method, message: Bytes, timeout: Duration) -> Result<Bytes, CallFailure> {
        let request = HookRequest::Grpc(GrpcRequest { method, namespace_labels: None });
        match self.reply_to(request, Rope::new([message]), timeout).await? {
            Reply::Grpc(message) => Ok(message),
            Reply::Http(reply) => Err(CallFailure::NotGrpc(format!("HTTP status {}", reply.status))),
        }
    }

    /// Posts over the first worker's connection, or one of them, and waits for the reply, whatever its status.
    ///
    /// # Errors
    /// [`CallFailure`] where no reply comes.
    pub async fn post_once(
        &self,
        path: &str,
        form: HttpForm,
        message: Rope,
        timeout: Duration,
    ) -> Result<HttpReply, CallFailure> {
        match self
            .reply_to(HookRequest::Http(HttpRequest { path: path.into(), form, timeout }), message, timeout)
            .await?
        {
            Reply::Http(reply) => Ok(reply),
            Reply::Grpc(_) => Err(CallFailure::NotHttp("it answered a POST with gRPC".into())),
        }
    }

    async fn reply_to(&self, request: HookRequest, body: Rope, timeout: Duration) -> Result<Reply, CallFailure> {
        let responses = Arc::new(Responses::default());
        let call = Call {
            request,
            body,
            deadline: now() + timeout,
            responses: responses.clone(),
            tag: 0,
            reuse: Reuse::Allowed,
            resends: 0,
            hops: Hops::FIRST,
        };
        let answered = tokio::time::timeout(timeout, self.resent(call)).await;
        responses.close();
        answered.unwrap_or_else(|_| {
            self.cancel_abandoned(0);
            Err(CallFailure::Timeout(timeout))
        })
    }

    /// Sends a call, and again while the hook has not processed it. A probe changes nothing: asking twice does no harm.
    async fn resent(&self, mut call: Call) -> Result<Reply, CallFailure> {
        loop {
            self.ask(0, call.clone());
            let arrived = call.responses.take().await;
            for (_, result) in arrived {
                let lost = match result {
                    Ok(reply) => return Ok(reply),
                    Err(lost) => lost,
                };
                let Some(reuse) = lost.evidence.resend(call.resends, true) else { return Err(lost.failure) };
                (call.reuse, call.resends) = (reuse, call.resends + 1);
            }
        }
    }
}

/// Is a reply with that status the hook's own? Its answer about a kind that it never asked for says nothing, but some
/// statuses come from proxies in front of a hook that is not there.
fn answered(status: u16) -> Result<(), CallFailure> {
    let fix = match status {
        404 => "there is no hook at this path: correct the path in its clientConfig, or serve it",
        301..=303 | 307 | 308 => "it redirects, which is not followed: write where to into its clientConfig",
        405 => "this path does not accept POST: correct the path in its clientConfig",
        502..=504 => "no hook is ready behind this path: start it, or check the proxy before it",
        _ => return Ok(()),
    };
    Err(CallFailure::Http { status, message: fix.to_owned() })
}

/// Does the health service say that the hook serves?
fn serving(reply: Bytes) -> Result<(), CallFailure> {
    match HealthCheckResponse::decode(reply) {
        Ok(HealthCheckResponse { status: SERVING }) => Ok(()),
        Ok(_) => Err(CallFailure::Grpc {
            code: "OK",
            message: format!("its health service says that {} is not SERVING", names::ADMISSION),
        }),
        Err(error) => Err(CallFailure::Undecodable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hook_that_says_it_serves_is_taken_to() {
        // source: grpc.health.v1, UNKNOWN, SERVING, NOT_SERVING, names::ADMISSION_UNKNOWN; and one that nobody knows.
        for (status, serves) in [(0, false), (1, true), (2, false), (3, false), (9, false)] {
            let reply = HealthCheckResponse { status }.encode_to_vec();
            assert_eq!(serving(reply.into()).is_ok(), serves, "{status}");
        }
        assert!(serving(Bytes::from_static(&[0xff])).is_err(), "no answer at all");
    }

    #[test]
    fn a_status_that_is_nobodys_is_no_reply() {
        for status in [301, 302, 303, 307, 308, 404, 405, 502, 503, 504] {
            let failure = answered(status).expect_err("nobody is there");
            assert!(matches!(&failure, CallFailure::Http { status: text, .. } if *text == status), "{failure:?}");
        }
        // Statuses that a hook may send for a kind that it does not know, or while it has too much to do.
        for status in [200, 204, 300, 304, 400, 401, 403, 406, 415, 422, 429, 500, 501, 505] {
            assert_eq!(answered(status), Ok(()), "{status}");
        }
    }
}
