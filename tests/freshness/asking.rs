//! Asking: reviews without end, to one sidecar.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use gatepost_api::verdict::REVISION_ANNOTATION;
use gatepost_wire::pb::gatepost::v1::admission_client::AdmissionClient;
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Endpoint;

use crate::{
    Fallible,
    reviews::{create_pod, review},
};

/// Answers of one sidecar.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Which revision each says has decided, where it says so, by the number of its review.
    named: Mutex<Vec<Option<u64>>>,
    /// The latest revision named.
    pub(crate) revision: AtomicU64,
}

impl Answers {
    /// The next review was answered so.
    fn add(&self, named: Option<u64>) {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).push(named);
        self.revision.fetch_max(named.unwrap_or(0), Relaxed);
    }

    /// Which revision each says has decided, by the number of its review.
    pub(crate) fn named(&self) -> Vec<Option<u64>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Asks until `enough`; an error where an answer does not come.
pub(crate) async fn ask(
    address: SocketAddr,
    a_second: f64,
    answers: Arc<Answers>,
    enough: Arc<AtomicBool>,
) -> Fallible<()> {
    let mut client = AdmissionClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);
    let mut ticks = interval(Duration::from_secs_f64(1.0 / a_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0_u64;
    while !enough.load(Relaxed) {
        ticks.tick().await;
        let mut request = tonic::Request::new(review(create_pod(&number.to_string(), 500)));
        request.set_timeout(Duration::from_secs(20));
        let answer = client.review(request).await?.into_inner();
        number += 1;
        let annotations = answer.response.unwrap_or_default().audit_annotations;
        answers.add(annotations.get(REVISION_ANNOTATION).and_then(|revision| revision.parse().ok()));
    }
    Ok(())
}
