//! Asking: reviews without end, to one sidecar.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use gatepost::{model::verdict::REVISION, wire::pb::gatepost::v1::admission_client::AdmissionClient};
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Endpoint;

use crate::{
    Fallible,
    reviews::{create_pod, review},
};

/// What has come back from one sidecar.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// All of them.
    pub(crate) count: AtomicUsize,
    /// Those that do not say which revision decided.
    pub(crate) unnamed: AtomicUsize,
    /// The latest revision named.
    pub(crate) revision: AtomicU64,
}

/// Asks until told that it is enough; an error where an answer does not come.
pub(crate) async fn ask(
    address: SocketAddr,
    a_second: f64,
    answers: Arc<Answers>,
    enough: Arc<AtomicBool>,
) -> Fallible<()> {
    let mut client = AdmissionClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);
    let mut ticks = interval(Duration::from_secs_f64(1.0 / a_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !enough.load(Relaxed) {
        ticks.tick().await;
        let uid = answers.count.load(Relaxed).to_string();
        let mut request = tonic::Request::new(review(create_pod(&uid, 500)));
        request.set_timeout(Duration::from_secs(20));
        let answer = client.review(request).await?.into_inner();
        answers.count.fetch_add(1, Relaxed);
        let annotations = answer.response.unwrap_or_default().audit_annotations;
        match annotations.get(REVISION).and_then(|revision| revision.parse().ok()) {
            Some(revision) => drop(answers.revision.fetch_max(revision, Relaxed)),
            None => drop(answers.unnamed.fetch_add(1, Relaxed)),
        }
    }
    Ok(())
}
