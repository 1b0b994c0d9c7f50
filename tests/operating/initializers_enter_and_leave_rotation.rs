//! An initializer that is added refuses nothing before its first process attaches; one that is removed finishes what it
//! has begun. No creator gets an error for a change of the configuration.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::sync::Arc;

use gatepost::live::{RetireReason, Rotation};
use gatepost_client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview};
use prost::Message;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc};
use tonic::transport::Endpoint;

use crate::{
    front::{self, Caller, until},
    support::{
        gate::document,
        reviews::{create_pod, message},
        sidecar::Configured,
    },
};

const NAME: &str = "a.example.com";
const TOKEN: &str = "open sesame";

fn with_initializer() -> String {
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let empty = document(&[]);
    format!(
        "{empty}resourceInitializers:\n- resource: pods\n  initializers:\n  - name: {NAME}\n    failurePolicy: Fail\n\
         \x20   attach: {{tokenSha256: ['{digest}']}}\n"
    )
}

async fn create(caller: &Caller, uid: &str) -> AdmissionResponse {
    let ended = caller.call(front::grpc("/gatepost.v1.Admission/Mutate"), [message(create_pod(uid, 100))]).await;
    assert_eq!((ended.status, &*ended.message), (Some(0), ""));
    AdmissionReview::decode(&ended.body[5..]).expect("a review").response.expect("a response")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rotation_of_an_initializer_fails_no_create() {
    let configured = Configured::start(&[]);
    let current = Arc::clone(&configured.running.current);
    let address = configured.running.addresses.tcp;
    let caller = front::caller(address).await;
    let is_there = || current.load().snapshot.claimable().next().is_some();

    configured.write(&with_initializer());
    until("it is in force", is_there).await;
    let created = create(&caller, "1").await;
    assert!(created.allowed(), "{created:?}");
    assert!(created.warnings[0].contains("is not in rotation until its first instance attaches"), "{created:?}");

    let (begun, mut began) = mpsc::unbounded_channel();
    let done = Arc::new(Semaphore::new(0));
    let ends = Arc::clone(&done);
    let act = move |_: NewObject| {
        begun.send(()).expect("the test listens");
        let ends = Arc::clone(&ends);
        async move {
            ends.acquire().await.expect("open").forget();
            Ok::<_, ObjectRefusal>(ObjectChange::patch(
                &json!([{"op": "add", "path": "/metadata/labels/by", "value": "a"}]),
            ))
        }
    };
    let channel = Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy();
    let process = tokio::spawn(InitializerClient::new(NAME, TOKEN).run([channel], act, std::future::pending()));
    until("it is attached", || current.hub().desk(|desk| desk.names()).iter().any(|one| one.instances == 1)).await;
    assert!(!current.hub().desk(|desk| desk.is_unproven(NAME)));

    let creating = tokio::spawn(async move { create(&front::caller(address).await, "2").await });
    began.recv().await.expect("asked");
    configured.write(&document(&[]));
    until("it is removed", || !is_there()).await;
    assert!(create(&caller, "3").await.patch.is_none(), "new objects go without it");
    assert!(configured.running.health.status.draining().iter().any(|one| &*one.name == NAME), "drain waits");
    done.add_permits(1);
    let created = creating.await.expect("created");
    assert!(created.allowed() && created.patch.is_some(), "its task was not taken away: {created:?}");
    let drained = || {
        let retired = configured.running.health.status.retired();
        let how = |one: &Rotation| matches!(one, Rotation::Gone { how: RetireReason::Drained, .. });
        retired.iter().any(|one| &*one.name == NAME && how(&one.rotation))
    };
    until("it has drained", drained).await;
    until("its stream has ended", || current.hub().desk(|desk| desk.names()).iter().all(|one| one.instances == 0))
        .await;
    process.abort();
    tokio::task::spawn_blocking(|| assert!(configured.running.stop().complete())).await.expect("stopped");
}
