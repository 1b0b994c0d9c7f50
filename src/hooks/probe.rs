//! Probe: checks that a hook can be reached and serves.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;

use super::{
    Channel,
    call::{Call, Responses, Reuse},
    protocol::{GrpcRequest, HookRequest, HttpRequest, Method},
    reply::{HttpReply, Reply},
};
use gatepost_api::{CallFailure, Hook, HookType, Hops, HttpForm, Protocol, Rope, Step, Transport, Unreachable};
use gatepost_base::clock::now;
use gatepost_wire::{
    answer,
    encodings::Encodings,
    inbound, names,
    outbound::framed,
    pb::k8s::io::{
        api::{
            admission::v1::{AdmissionRequest, AdmissionReview},
            authentication::v1::UserInfo,
        },
        apimachinery::pkg::runtime::RawExtension,
    },
    request,
};

/// UID by which a hook can recognise the review of a probe.
const PROBE_UID: &str = "gatepost-probe";

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

/// Path and form of a probe's POST.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbePost {
    /// The hook's path.
    pub path: Arc<str>,
    /// The hook's form.
    pub form: HttpForm,
}

impl ProbePost {
    /// Returns the POST for that hook; `None` if the hook is not called over HTTP, or a review might have side effects.
    pub fn for_hook(hook: &Hook) -> Option<Self> {
        match &hook.protocol {
            Protocol::Http { path, form } if hook.side_effects.none_for(true) => {
                Some(Self { path: Arc::clone(path), form: *form })
            }
            _ => None,
        }
    }
}

/// Reason why a probe has not passed: the step that failed, and the failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause} (step: {step})", posted.as_ref().map(|path| format!("POST {path}: ")).unwrap_or_default())]
pub struct ProbeFailure {
    /// The last step that was taken.
    pub step: Step,
    /// Path that the probe's review was posted to, if it was.
    pub posted: Option<Arc<str>>,
    /// Failure of that step.
    pub cause: CallFailure,
}

impl ProbeFailure {
    /// Returns the failure at that step of a probe with this timeout. A probe that timed out is reported with its whole
    /// timeout instead of the rest of it, so that equal failures have equal texts.
    fn at_step(step: Step, timeout: Duration) -> impl Fn(CallFailure) -> Self {
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
    /// Checks that the hook can be reached and serves. Connects (name, socket, TLS and peer identity), and then calls
    /// the standard health service for `gatepost.v1.Admission`. A hook without that service is sent a dry-run review,
    /// and any valid answer passes. A hook over HTTP is sent a POST of that review, and any reply passes whose status
    /// is the hook's own; without `post` it is only connected to.
    ///
    /// # Errors
    /// [`ProbeFailure`] at the step that failed; [`CallFailure::Grpc`] even if the hook is not serving,
    /// [`CallFailure::Http`] if there is no hook at that path.
    pub async fn probe(&self, post: Option<&ProbePost>, timeout: Duration) -> Result<(), ProbeFailure> {
        let until = now() + timeout;
        self.wait_connected(timeout).await?;
        let left = until.saturating_duration_since(now());
        match (self.endpoint().transport, post) {
            (Transport::Grpc, _) => self.check_serves(left, timeout).await,
            (Transport::Http, None) => Ok(()),
            (Transport::Http, Some(post)) => {
                let posted = async { self.post_once(&post.path, post.form, encoded_review(post.form)?, left).await };
                let has_credentials = self.endpoint().authorization.is_some();
                posted.await.and_then(|reply| check_status(reply.status, has_credentials)).map_err(|cause| {
                    let failure = ProbeFailure::at_step(Step::Review, timeout)(cause);
                    let posted = (failure.step == Step::Review).then(|| Arc::clone(&post.path));
                    ProbeFailure { posted, ..failure }
                })
            }
        }
    }

    /// Calls the health service, or sends a review if there is none, within the time `left` of the probe's `timeout`.
    async fn check_serves(&self, left: Duration, timeout: Duration) -> Result<(), ProbeFailure> {
        let until = now() + left;
        let health = framed(&HealthCheckRequest { service: names::ADMISSION.to_owned() });
        match self.call_once(Method::Health, health, left).await {
            Ok(reply) => check_health(reply).map_err(ProbeFailure::at_step(Step::Health, timeout)),
            // There is no health service, or it does not know Gatepost's service.
            Err(CallFailure::Grpc { code: "UNIMPLEMENTED" | "NOT_FOUND", .. }) => {
                let left = until.saturating_duration_since(now());
                let reply = match self.call_once(Method::Validate, framed(&probe_review()), left).await {
                    // A hook that only changes objects has no other method.
                    Err(CallFailure::Grpc { code: "UNIMPLEMENTED", .. }) => {
                        let left = until.saturating_duration_since(now());
                        self.call_once(Method::Mutate, framed(&probe_review()), left).await
                    }
                    reply => reply,
                };
                // Any verdict passes, also one with a patch, which a mutating hook may send.
                let answer = reply.and_then(|reply| answer::decode(HookType::Mutating, PROBE_UID, reply));
                answer.map(drop).map_err(ProbeFailure::at_step(Step::Review, timeout))
            }
            Err(failure) => Err(ProbeFailure::at_step(Step::Health, timeout)(failure)),
        }
    }

    /// Waits until the first worker is connected.
    async fn wait_connected(&self, timeout: Duration) -> Result<(), Unreachable> {
        let (probe, text) = oneshot::channel();
        self.client(0).probe(probe);
        match tokio::time::timeout(timeout, text).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Unreachable::at(Step::Connect, "gatepost is stopping")),
            Err(_) => {
                let late = format!("{}: no connection within {timeout:?}", self.endpoint());
                Err(Unreachable::at(Step::Connect, late))
            }
        }
    }

    /// Makes a gRPC call over the first worker's connection, and waits for the message of the answer.
    ///
    /// # Errors
    /// [`CallFailure`] if no message arrives.
    pub async fn call_once(&self, method: Method, message: Bytes, timeout: Duration) -> Result<Bytes, CallFailure> {
        let request = HookRequest::Grpc(GrpcRequest { method, namespace_labels: None });
        match self.reply_to(request, Rope::new([message]), timeout).await? {
            Reply::Grpc(message) => Ok(message),
            Reply::Http(reply) => Err(CallFailure::NotGrpc(format!("HTTP status {}", reply.status))),
        }
    }

    /// Posts over a connection of the first worker, and waits for the reply with any status.
    ///
    /// # Errors
    /// [`CallFailure`] if no reply arrives.
    pub async fn post_once(
        &self,
        path: &str,
        form: HttpForm,
        message: Rope,
        timeout: Duration,
    ) -> Result<HttpReply, CallFailure> {
        let request = HookRequest::Http(HttpRequest { path: path.into(), form, timeout });
        match self.reply_to(request, message, timeout).await? {
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
            forwarded: Hops::FIRST.into(),
        };
        let answered = tokio::time::timeout(timeout, self.send_with_resends(call)).await;
        responses.close();
        answered.unwrap_or_else(|_| {
            self.cancel_abandoned(0);
            Err(CallFailure::Timeout(timeout))
        })
    }

    /// Sends a call, and resends it while the hook has not processed it. A probe changes nothing, so two calls do no
    /// harm.
    async fn send_with_resends(&self, mut call: Call) -> Result<Reply, CallFailure> {
        loop {
            self.submit(0, call.clone());
            for (_, result) in call.responses.take().await {
                let failed = match result {
                    Ok(reply) => return Ok(reply),
                    Err(failed) => failed,
                };
                let Some(reuse) = failed.evidence.reuse_for_resend(call.resends, true) else {
                    return Err(failed.failure);
                };
                (call.reuse, call.resends) = (reuse, call.resends + 1);
            }
        }
    }
}

/// Checks that a reply with that status is the hook's own. A hook may reject the probe's kind with any status of its
/// own, but some statuses come from proxies in front of a missing hook.
fn check_status(status: u16, has_credentials: bool) -> Result<(), CallFailure> {
    let fix = match status {
        401 | 403 if has_credentials => "it refuses our credentials: correct its authorizationFile",
        404 => "there is no hook at this path: correct the path in its clientConfig, or serve it",
        301..=303 | 307 | 308 => "it redirects, which is not followed: write where to into its clientConfig",
        405 => "this path does not accept POST: correct the path in its clientConfig",
        502..=504 => "no hook is ready behind this path: start it, or check the proxy before it",
        _ => return Ok(()),
    };
    Err(CallFailure::Http { status, message: fix.to_owned() })
}

/// Checks that the health service reports the hook as serving.
fn check_health(reply: Bytes) -> Result<(), CallFailure> {
    match HealthCheckResponse::decode(reply) {
        Ok(HealthCheckResponse { status: SERVING }) => Ok(()),
        Ok(_) => Err(CallFailure::Grpc {
            code: "OK",
            message: format!("its health service says that {} is not SERVING", names::ADMISSION),
        }),
        Err(error) => Err(CallFailure::Undecodable(error.to_string())),
    }
}

/// Returns the review of a probe in that form, encoded as all reviews are.
///
/// # Errors
/// None in practice: Gatepost's own review can always be encoded.
fn encoded_review(form: HttpForm) -> Result<Rope, CallFailure> {
    let review = inbound::view(Rope::new([framed(&probe_review())]))
        .map_err(|error| CallFailure::Unwritable(error.to_string()))?;
    Encodings::of(&review).get(form.into())
}

/// Returns the review of a probe: a dry-run CREATE of a ConfigMap that no policy should reject. The verdict does not
/// matter.
fn probe_review() -> AdmissionReview {
    let object =
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gatepost-probe","namespace":"default"}}"#;
    let options = br#"{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions","dryRun":["All"]}"#;
    let text = |text: &str| Some(text.to_owned());
    let create = request::create(PROBE_UID, "ConfigMap", "configmaps", Bytes::from_static(object));
    AdmissionReview {
        request: Some(AdmissionRequest {
            name: text("gatepost-probe"),
            namespace: text("default"),
            user_info: Some(UserInfo { username: text("system:gatepost:probe"), ..Default::default() }),
            dry_run: Some(true),
            options: Some(RawExtension { raw: Some(Bytes::from_static(options)) }),
            request_kind: create.kind.clone(),
            request_resource: create.resource.clone(),
            ..create
        }),
        response: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use gatepost_api::{Operation, Review, ReviewVersion};
    use gatepost_wire::{envelope, json_view};

    #[test]
    fn a_probe_passes_only_if_the_hook_reports_serving() {
        // source: grpc.health.v1, UNKNOWN, SERVING, NOT_SERVING, names::ADMISSION_UNKNOWN; and one that nobody knows.
        for (status, serves) in [(0, false), (1, true), (2, false), (3, false), (9, false)] {
            let reply = HealthCheckResponse { status }.encode_to_vec();
            assert_eq!(check_health(reply.into()).is_ok(), serves, "{status}");
        }
        assert!(check_health(Bytes::from_static(&[0xff])).is_err(), "no answer at all");
    }

    #[test]
    fn refused_credentials_fail_a_probe() {
        for status in [401, 403] {
            assert_eq!((check_status(status, true).is_err(), check_status(status, false)), (true, Ok(())), "{status}");
        }
    }

    #[test]
    fn statuses_of_proxies_fail_a_probe() {
        for status in [301, 302, 303, 307, 308, 404, 405, 502, 503, 504] {
            let failure = check_status(status, false).expect_err("nobody is there");
            assert!(matches!(&failure, CallFailure::Http { status: text, .. } if *text == status), "{failure:?}");
        }
        // Statuses that a hook may send for a kind that it does not know, or while it has too much to do.
        for status in [200, 204, 300, 304, 400, 401, 403, 406, 415, 422, 429, 500, 501, 505] {
            assert_eq!(check_status(status, false), Ok(()), "{status}");
        }
    }

    fn viewed(form: HttpForm) -> Review {
        let encoded = encoded_review(form).expect("encoded");
        match form {
            HttpForm::Protobuf(_) => envelope::view(encoded).expect("an envelope"),
            _ => json_view::view(encoded.to_bytes()).expect("a review"),
        }
    }

    #[test]
    fn a_probe_review_is_a_dry_run_in_every_form() {
        for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
            for form in [HttpForm::Json(version), HttpForm::Protobuf(version)] {
                let review = viewed(form);
                assert_eq!(
                    (&*review.uid, review.operation, review.dry_run),
                    (PROBE_UID, Operation::Create, true),
                    "{form:?}"
                );
                assert_eq!((&*review.kind.kind, &*review.namespace), ("ConfigMap", "default"), "{form:?}");
                assert_eq!(&*review.username, "system:gatepost:probe", "{form:?}");
            }
        }
    }

    #[test]
    fn a_legacy_probe_review_has_the_user_and_no_uid() {
        let encoded = encoded_review(HttpForm::Legacy).expect("encoded");
        let review: Value = serde_json::from_slice(&encoded.to_bytes()).expect("JSON");
        let spec = &review["spec"];
        assert_eq!((&spec["dryRun"], &spec["userInfo"]["name"]), (&json!(true), &json!("system:gatepost:probe")));
        assert_eq!((&spec["name"], &spec["operation"]), (&json!(PROBE_UID), &json!("Create")));
    }
}
