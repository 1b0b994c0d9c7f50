//! A crowd: callers who ask the same thing again and again while something else happens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use super::wait::{LONG, until};
use crate::{
    cli::ask::ReviewClient, hooks::Method, model::Endpoint, wire::pb::k8s::io::api::admission::v1::AdmissionReview,
};

/// Callers at once.
const CALLERS: usize = 2;

/// Callers that ask until they are stopped; each over a connection of its own, one review at a time.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<Result<Vec<Duration>, String>>>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    answered: AtomicUsize,
}

impl Crowd {
    /// Begins to ask. Every answer has to be a yes.
    pub(super) fn start(sidecar: &Endpoint, review: &AdmissionReview) -> Result<Self, String> {
        let shared = Arc::<Shared>::default();
        let mut callers = Vec::with_capacity(CALLERS);
        for _ in 0..CALLERS {
            let caller = ReviewClient::open(sidecar).map_err(|error| error.to_string())?;
            callers.push(tokio::spawn(Self::ask(Arc::clone(&shared), caller, review.clone())));
        }
        Ok(Self { shared, callers })
    }

    async fn ask(shared: Arc<Shared>, caller: ReviewClient, review: AdmissionReview) -> Result<Vec<Duration>, String> {
        let mut took = Vec::new();
        while !shared.over.load(Relaxed) {
            let asked = Instant::now();
            let answer = caller.ask(Method::Review, &review, LONG).await.map_err(|error| error.to_string())?;
            took.push(asked.elapsed());
            let response = answer.response.unwrap_or_default();
            if !response.allowed() {
                let status = response.status.unwrap_or_default();
                return Err(format!("the crowd was disturbed: {}", status.message()));
            }
            shared.answered.fetch_add(1, Relaxed);
        }
        Ok(took)
    }

    /// Waits until so many more answers have come.
    pub(super) async fn answers(&self, more: usize) -> Result<(), String> {
        let wanted = self.shared.answered.load(Relaxed) + more;
        let gone = || self.callers.iter().any(JoinHandle::is_finished);
        // A caller that has left gives the reason in the end.
        until("the crowd's answers", || Ok(gone() || self.shared.answered.load(Relaxed) >= wanted)).await
    }

    /// Ends it; returns how long each answer took, sorted.
    pub(super) async fn end(self) -> Result<Vec<Duration>, String> {
        self.shared.over.store(true, Relaxed);
        let mut took = Vec::new();
        for caller in self.callers {
            took.extend(caller.await.map_err(|error| error.to_string())??);
        }
        took.sort_unstable();
        Ok(took)
    }
}

/// The one in the middle of a sorted list.
pub(super) fn median(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
