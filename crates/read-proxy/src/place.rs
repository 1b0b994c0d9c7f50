//! Place: one of the connections that are served at the same time, kept also while it is another protocol's.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::metrics::ReadProxyMetrics;

/// Place of a connection among those that are served at the same time.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Its other end is dropped once time is up for whatever is left.
    cut: watch::Receiver<()>,
    metrics: Arc<ReadProxyMetrics>,
}

impl Place {
    /// Place that ends with the other end of `cut`.
    pub(super) fn new(permit: OwnedSemaphorePermit, cut: watch::Receiver<()>, metrics: Arc<ReadProxyMetrics>) -> Self {
        metrics.connection_begins();
        Self { _permit: permit, cut, metrics }
    }

    /// Done once time is up.
    pub(super) async fn cut(&self) {
        let mut cut = self.cut.clone();
        while cut.changed().await.is_ok() {}
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connection_ends();
    }
}
