//! Writing: one change after another, and when each was known to be stored.

use std::time::{Duration, SystemTime};

use gatepost_etcd_client::{EtcdAccess, EtcdClient};
use tokio::time::{Instant, sleep};

use crate::{Fallible, bound::Change, sidecars::PREFIX};

/// Timeout of one try.
const TRY: Duration = Duration::from_secs(3);
/// Longest outage of etcd.
const LONG: Duration = Duration::from_secs(60);

/// Changes the configuration.
pub(crate) struct Writer {
    client: EtcdClient,
    /// Every change so far.
    pub(crate) changes: Vec<Change>,
}

impl Writer {
    pub(crate) async fn open(endpoints: Vec<String>) -> Fallible<Self> {
        let client = EtcdClient::open(&EtcdAccess { endpoints, ..EtcdAccess::default() }).await?.within(TRY);
        Ok(Self { client, changes: Vec::new() })
    }

    /// Puts a document that does not change.
    pub(crate) async fn put_constant(&self, name: &str, document: String) -> Fallible<()> {
        self.client.put(format!("{PREFIX}{name}"), document, None).await?;
        Ok(())
    }

    /// Puts the next change, as often as it takes for etcd to say that it is stored.
    pub(crate) async fn put(&mut self, document: &str) -> Fallible<()> {
        let until = Instant::now() + LONG;
        let mut again = false;
        loop {
            match self.client.put(format!("{PREFIX}default.yaml"), document.to_owned(), None).await {
                Ok(revision) => {
                    self.changes.push(Change { revision, known: now(), again });
                    return Ok(());
                }
                Err(error) if Instant::now() > until => return Err(error.into()),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
            again = true;
        }
    }
}

/// Microseconds since 1970: the clock that the audit log has, on the same machine.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}
