//! Route: destination of a call, by its path, method and content type.

use http::{HeaderValue, Method, header, request::Parts};

use super::{
    grpc::health_reflection::AuxService,
    head::media_type,
    refusal::{Refusal, shortened},
};
use gatepost_api::{Phase, registration::Segment};
use gatepost_wire::names;

/// Destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Review over plain HTTP.
    Webhook(WebhookRoute),
    /// Review over gRPC.
    Admission(Phase),
    /// Call of health or reflection.
    Aux(AuxService),
    /// Stream of an instance of an initializer.
    Attach,
    /// Stream of an apiserver that reports its unfinished objects.
    Follow,
    /// Stream of a plugin that follows the rule index.
    RuleIndex,
    /// Unary call of an apiserver that stores unfinished objects.
    Initialization(InitializationCall),
}

/// Unary call of an apiserver that stores unfinished objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InitializationCall {
    ReadPolicy,
    QuotaPhase,
    Hold,
}

/// Review over plain HTTP: its phase, and the hooks that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WebhookRoute {
    pub(super) phase: Phase,
    /// True if the caller sends a review of its own for each version.
    pub(super) one_version: bool,
    /// Segment of the mutating hooks to call, if `gatepost register` has registered segments separately.
    pub(super) segment: Option<Segment>,
}

impl WebhookRoute {
    /// Returns the route of a path that serves reviews.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let (path, segment) = match Segment::split(path) {
            Some((path, segment)) if path.starts_with("/mutate") => (path, Some(segment)),
            _ => (path, None),
        };
        // The paths of one version are for a kube-apiserver with one webhook per version of a resource. They are paths
        // because a webhook's URL must not have a query. `gatepost register` prints them.
        let (phase, one_version) = match path {
            "/validate" => (Phase::Validate, false),
            "/validate/one-version" => (Phase::Validate, true),
            "/mutate" => (Phase::Mutate, false),
            "/mutate/one-version" => (Phase::Mutate, true),
            _ => return None,
        };
        Some(Self { phase, one_version, segment })
    }
}

/// Returns the destination of the call with this head.
pub(super) fn route(parts: &Parts) -> Result<Route, Refusal> {
    let path = parts.uri.path();
    if let Some(webhook) = WebhookRoute::from_path(path) {
        return Ok(Route::Webhook(webhook));
    }
    let (service, method) = path.get(1..).and_then(|rest| rest.split_once('/')).unwrap_or_default();
    if !parts.headers.get(header::CONTENT_TYPE).is_some_and(is_grpc) {
        // A caller that names our service gets the fault of its call, any other gets the valid paths.
        return Err(match service {
            names::ADMISSION if parts.method != Method::POST => Refusal::Method,
            names::ADMISSION => Refusal::NotGrpc,
            _ => Refusal::UnknownPath { path: shortened(path) },
        });
    }
    if parts.method != Method::POST {
        return Err(Refusal::Method);
    }
    match (service, method) {
        (names::ADMISSION, "Review") => Ok(Route::Admission(Phase::Review)),
        (names::ADMISSION, "Mutate") => Ok(Route::Admission(Phase::Mutate)),
        (names::ADMISSION, "Validate") => Ok(Route::Admission(Phase::Validate)),
        (names::ADMISSION, _) => Err(Refusal::UnknownMethod { method: shortened(method) }),
        (names::PROTOBUF_ADMISSION, "Validate") => Ok(Route::Admission(Phase::Validate)),
        (names::INITIALIZERS, "Attach") => Ok(Route::Attach),
        (names::INITIALIZATION, "ReadPolicy") => Ok(Route::Initialization(InitializationCall::ReadPolicy)),
        (names::INITIALIZATION, "QuotaPhase") => Ok(Route::Initialization(InitializationCall::QuotaPhase)),
        (names::INITIALIZATION, "Hold") => Ok(Route::Initialization(InitializationCall::Hold)),
        (names::INITIALIZATION, "Follow") => Ok(Route::Follow),
        (names::RULE_INDEX, "Follow") => Ok(Route::RuleIndex),
        (names::HEALTH, _) => Ok(Route::Aux(AuxService::Health)),
        ("grpc.reflection.v1.ServerReflection", _) => Ok(Route::Aux(AuxService::ReflectionV1)),
        ("grpc.reflection.v1alpha.ServerReflection", _) => Ok(Route::Aux(AuxService::ReflectionV1Alpha)),
        _ => Err(Refusal::UnknownService { path: shortened(path) }),
    }
}

fn is_grpc(value: &HeaderValue) -> bool {
    let kind = media_type(value);
    kind.eq_ignore_ascii_case(b"application/grpc") || kind.eq_ignore_ascii_case(b"application/grpc+proto")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn calls_are_routed_by_path_method_and_content_type() {
        let routed = |method: &str, kind: &str, path: &str| {
            let request =
                Request::builder().method(method).uri(path).header("content-type", kind).body(()).expect("request");
            route(&request.into_parts().0)
        };
        let webhook = |phase, one_version| Ok(Route::Webhook(WebhookRoute { phase, one_version, segment: None }));
        let review = "/gatepost.v1.Admission/Review";
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"] {
            assert_eq!(routed("POST", kind, review), Ok(Route::Admission(Phase::Review)), "{kind}");
        }
        for kind in ["application/json", "application/grpc+json", "application/grpc-web", ""] {
            assert_eq!(routed("POST", kind, review), Err(Refusal::NotGrpc), "{kind}");
            assert_eq!(routed("GET", kind, review), Err(Refusal::Method), "{kind}");
            // Their own faults are found later.
            assert_eq!(routed("GET", kind, "/validate?timeout=1s"), webhook(Phase::Validate, false), "{kind}");
            assert_eq!(routed("POST", kind, "/mutate"), webhook(Phase::Mutate, false), "{kind}");
            let apart = webhook(Phase::Validate, true);
            assert_eq!(routed("POST", kind, "/validate/one-version?timeout=1s"), apart, "{kind}");
            for (path, one_version) in [("/mutate", false), ("/mutate/one-version", true)] {
                let segment = Some(Segment { number: 2, of: 3 });
                let one = Ok(Route::Webhook(WebhookRoute { phase: Phase::Mutate, one_version, segment }));
                assert_eq!(routed("POST", kind, &format!("{path}/segment/2/of/3?timeout=1s")), one, "{kind}");
            }
            for path in
                ["/validate/segment/2/of/3", "/mutate/segment/4/of/3", "/mutate/segment/2", "/mutated/segment/2/of/3"]
            {
                let elsewhere = Refusal::UnknownPath { path: path.into() };
                assert_eq!(routed("POST", kind, path), Err(elsewhere), "{kind}");
            }
            let elsewhere = Refusal::UnknownPath { path: "/validate/".into() };
            assert_eq!(routed("POST", kind, "/validate/"), Err(elsewhere), "{kind}");
        }
        assert_eq!(routed("GET", "application/grpc", review), Err(Refusal::Method));
        let grpc = |path| routed("POST", "application/grpc", path);
        assert_eq!(grpc("/gatepost.v1.Admission/Validate"), Ok(Route::Admission(Phase::Validate)));
        assert_eq!(grpc("/gatepost.v1.ProtobufAdmission/Validate"), Ok(Route::Admission(Phase::Validate)));
        assert!(grpc("/gatepost.v1.ProtobufAdmission/Mutate").is_err(), "a patch is one of JSON");
        assert_eq!(grpc("/grpc.health.v1.Health/Check"), Ok(Route::Aux(AuxService::Health)));
        let call = |call| Ok(Route::Initialization(call));
        assert_eq!(grpc("/gatepost.v1.Initialization/ReadPolicy"), call(InitializationCall::ReadPolicy));
        assert_eq!(grpc("/gatepost.v1.Initialization/QuotaPhase"), call(InitializationCall::QuotaPhase));
        assert_eq!(grpc("/gatepost.v1.Initialization/Hold"), call(InitializationCall::Hold));
        assert_eq!(grpc("/gatepost.v1.Initialization/Follow"), Ok(Route::Follow));
        assert!(grpc("/gatepost.v1.Initialization/Forget").is_err());
        assert_eq!(grpc("/gatepost.v1.RuleIndex/Follow"), Ok(Route::RuleIndex));
        assert!(grpc("/gatepost.v1.RuleIndex/Attach").is_err());
        assert_eq!(grpc("/gatepost.v1.Admission/Destroy"), Err(Refusal::UnknownMethod { method: "Destroy".into() }));
        let long = format!("/{}", "x".repeat(200));
        assert_eq!(grpc(&long), Err(Refusal::UnknownService { path: format!("/{}...", "x".repeat(99)) }));
    }
}
