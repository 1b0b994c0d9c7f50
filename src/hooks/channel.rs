//! Channel: the live connections to one endpoint.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::Handle;

use super::{
    call::Call,
    commands::Probe,
    dialler::{Dialler, Resources},
    http1::IdleArbiter,
    patch_rates::PatchRates,
    worker_client::WorkerClient,
};
use gatepost_api::Endpoint;

/// The live connections to one endpoint: one client for each worker, so that a request crosses no thread, and a spare one
/// for retries. HTTP/2 connections are opened ahead. When the last reference is dropped, they close with their last calls.
#[derive(Debug)]
pub struct Channel {
    dialler: Arc<Dialler>,
    arbiter: Arc<IdleArbiter>,
    clients: Vec<WorkerClient>,
    /// Made at the first retry.
    spare: OnceLock<WorkerClient>,
    /// Patch rates of the hooks behind it, by their paths.
    patch_rates: Mutex<Vec<(Arc<str>, Arc<PatchRates>)>>,
}

/// Number of paths from which on unused patch rates are dropped.
const PATHS_BEFORE_CLEANUP: usize = 64;

impl Channel {
    /// As [`Channel::open_within`], without limits.
    pub fn open(endpoint: Endpoint, tls: Option<Arc<rustls::ClientConfig>>, workers: &[Handle]) -> Arc<Self> {
        Self::open_within(&Resources::unlimited(), endpoint, tls, workers)
    }

    /// Opens one client on each worker's runtime (at least one). It shares `resources` with the channels to all other hooks.
    /// Returns at once: connections are dialled in the background.
    pub fn open_within(
        resources: &Resources,
        endpoint: Endpoint,
        tls: Option<Arc<rustls::ClientConfig>>,
        workers: &[Handle],
    ) -> Arc<Self> {
        let dialler = Arc::new(Dialler::new(endpoint, tls, resources, workers.len() + 1));
        let arbiter = Arc::new(IdleArbiter::default());
        let clients = workers
            .iter()
            .map(|worker| {
                let (client, task) = WorkerClient::new(dialler.clone(), arbiter.clone());
                worker.spawn(task);
                client
            })
            .collect();
        Arc::new(Self { dialler, arbiter, clients, spare: OnceLock::new(), patch_rates: Mutex::default() })
    }

    /// Endpoint of the channel.
    pub fn endpoint(&self) -> &Endpoint {
        &self.dialler.endpoint
    }

    /// Patch rates of the hook at that path, the same at every call while they are in use. It takes a lock: call it once for
    /// each generation.
    pub fn patch_rates(&self, path: &Arc<str>) -> Arc<PatchRates> {
        let mut known = self.patch_rates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rates)) = known.iter().find(|(known, _)| known == path) {
            return Arc::clone(rates);
        }
        if known.len() >= PATHS_BEFORE_CLEANUP {
            known.retain(|(_, rates)| Arc::strong_count(rates) > 1);
        }
        let rates = Arc::<PatchRates>::default();
        known.push((Arc::clone(path), Arc::clone(&rates)));
        rates
    }

    /// Sends a call over the worker's own connection. The answer arrives in the call's `responses`.
    pub fn ask(&self, worker: usize, call: Call) {
        self.client(worker).ask(call);
    }

    /// Sends a call, for a retry, over a connection other than the workers' own.
    pub fn ask_elsewhere(&self, call: Call) {
        let client = self.spare.get_or_init(|| {
            let (client, task) = WorkerClient::new(self.dialler.clone(), self.arbiter.clone());
            tokio::spawn(task);
            client
        });
        client.ask(call);
    }

    /// Resets calls of the worker whose responses are closed, so that the hook may stop working on them.
    pub fn cancel_abandoned(&self, worker: usize) {
        self.client(worker).cancel_abandoned();
        if let Some(spare) = self.spare.get() {
            spare.cancel_abandoned();
        }
    }

    /// Reports to the probe whether the first worker can connect.
    pub(super) fn reach(&self, probe: Probe) {
        self.client(0).probe(probe);
    }

    #[allow(clippy::indexing_slicing)]
    fn client(&self, worker: usize) -> &WorkerClient {
        &self.clients[worker % self.clients.len()]
    }
}
