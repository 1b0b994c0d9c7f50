//! The cold services answer the clients everybody has.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::time::Instant;

use crate::front;
use crate::front::{LONG, caller, sidecar, unconfigured};
use gatepost::front::FrontLimits;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

async fn channel(sidecar: &front::Sidecar) -> Channel {
    Channel::from_shared(format!("http://{}", sidecar.address)).expect("uri").connect().await.expect("connects")
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[tokio::test]
async fn health_follows_readiness() {
    let sidecar = unconfigured(FrontLimits::default()).await;
    let mut health = HealthClient::new(channel(&sidecar).await);
    let mut watch = health.watch(about("gatepost.v1.Admission")).await.expect("watches").into_inner();
    let mut next =
        async || timeout(LONG, watch.next()).await.expect("in time").map(|text| text.map(|text| text.status()));
    assert_eq!(next().await.expect("a message").expect("status"), ServingStatus::NotServing);
    for service in ["", "gatepost.v1.Admission"] {
        let status = health.check(about(service)).await.expect("answers").into_inner().status();
        assert_eq!(status, ServingStatus::NotServing, "{service:?} before the first good read");
    }
    sidecar.current.freshness().stamp_awake(Instant::now());
    for service in ["", "gatepost.v1.Admission"] {
        let status = health.check(about(service)).await.expect("answers").into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(next().await.expect("a message").expect("status"), ServingStatus::Serving);
    assert_eq!(health.check(about("other")).await.expect_err("unknown").code(), Code::NotFound);
    let shutdown = sidecar.shutdown;
    shutdown.send(()).expect("serving");
    let mut ended = next().await.expect("a message");
    if let Ok(status) = ended {
        assert_eq!(status, ServingStatus::NotServing, "the last thing a watcher hears");
        ended = next().await.expect("a message");
    }
    assert_eq!(ended.expect_err("the watch ends").code(), Code::Unavailable);
    let drained = timeout(LONG, sidecar.serving).await.expect("drains in time").expect("joined");
    assert_eq!(drained.cut, 0, "a watch does not hold up the end");
}

macro_rules! lists_the_services {
    ($test:ident, $version:ident) => {
        #[tokio::test]
        async fn $test() {
            use tonic_reflection::pb::$version::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };
            let sidecar = sidecar(FrontLimits::default()).await;
            let mut reflection = ServerReflectionClient::new(channel(&sidecar).await);
            let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
            let asked = [
                ask(MessageRequest::ListServices(String::new())),
                ask(MessageRequest::FileContainingSymbol("k8s.io.api.admission.v1.AdmissionReview".into())),
            ];
            let answers = reflection.server_reflection_info(tokio_stream::iter(asked)).await.expect("answers");
            let answers: Vec<_> = answers.into_inner().map(|a| a.expect("answer").message_response).collect().await;
            let [
                Some(MessageResponse::ListServicesResponse(services)),
                Some(MessageResponse::FileDescriptorResponse(file)),
            ] = &answers[..]
            else {
                panic!("{answers:?}")
            };
            let names: Vec<_> = services.service.iter().map(|service| service.name.as_str()).collect();
            for name in ["gatepost.v1.Admission", "grpc.health.v1.Health"] {
                assert!(names.contains(&name), "{names:?}");
            }
            assert!(!file.file_descriptor_proto.is_empty());
        }
    };
}

lists_the_services!(reflection_v1_lists_the_services, v1);
lists_the_services!(reflection_v1alpha_lists_the_services, v1alpha);

#[tokio::test]
async fn a_generated_client_is_answered() {
    use gatepost_wire::pb::{
        gatepost::v1::admission_client::AdmissionClient, k8s::io::api::admission::v1::AdmissionReview,
    };
    use prost::Message;
    let sidecar = sidecar(FrontLimits::default()).await;
    let mut client = AdmissionClient::new(channel(&sidecar).await);
    let review = AdmissionReview::decode(front::review("7", 3000).slice(5..)).expect("review");
    let response = client.validate(review).await.expect("answered").into_inner().response.expect("response");
    assert_eq!((response.uid(), response.allowed()), ("7", true));
    let status = client.review(AdmissionReview::default()).await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "the review has no request"));
}

#[tokio::test]
async fn a_health_check_and_a_review_share_a_connection() {
    let sidecar = sidecar(FrontLimits::default()).await;
    let caller = caller(sidecar.address).await;
    let check = caller.call(front::grpc("/grpc.health.v1.Health/Check"), [front::framed(b"")]).await;
    check.assert(0, "");
    assert_eq!(check.body, front::framed(b"\x08\x01"));
    caller.review("1", 100).await.assert_allowed("1");
}
