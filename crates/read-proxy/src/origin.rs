//! Files with the apiserver's address and the proxy's credentials, reloaded when they change.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{
    serve::Proxy,
    upstream::{Upstream, UpstreamError},
};
use gatepost_base::files::{BlockingReads, ReadFailure};
use gatepost_kube_support::{ApiEndpoint, KubeAccess, KubeError};
use gatepost_tls::{TlsError, read_file};

/// Interval of the reads of the files.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of a read of the files.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Files with the apiserver's address and the proxy's credentials.
#[derive(Clone, Debug)]
pub struct RequestOrigin {
    /// Source of address and authorities.
    pub access: KubeAccess,
    /// Address that replaces the one of `access`.
    pub url: Option<String>,
    /// Certificate and key of the front proxy.
    pub front_proxy: Option<(PathBuf, PathBuf)>,
}

/// Contents of the files.
#[derive(Clone, PartialEq)]
struct Contents {
    endpoint: ApiEndpoint,
    front_proxy: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reason why the files cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OriginError {
    /// Address or authorities are invalid.
    #[error(transparent)]
    Access(#[from] KubeError),
    /// The certificate or the key cannot be read.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// The contents are invalid.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The files could not be read in time.
    #[error(transparent)]
    Unread(#[from] ReadFailure),
}

/// Upstreams of a proxy: without and with the front proxy's certificate.
type Upstreams = (Upstream, Option<Upstream>);

impl RequestOrigin {
    /// Reads the files, with a timeout.
    ///
    /// # Errors
    /// [`OriginError`].
    pub async fn upstreams(&self) -> Result<Upstreams, OriginError> {
        self.read(&BlockingReads::default()).await?.upstreams()
    }

    async fn read(&self, reads: &BlockingReads) -> Result<Contents, OriginError> {
        let (this, runtime) = (self.clone(), tokio::runtime::Handle::current());
        let reading = move || -> Result<Contents, OriginError> {
            let mut endpoint = runtime.block_on(this.access.endpoint())?;
            if let Some(url) = this.url {
                endpoint.url = url.trim_end_matches('/').to_owned();
            }
            let front_proxy =
                this.front_proxy.map(|(cert, key)| Ok::<_, TlsError>((read_file(&cert)?, read_file(&key)?)));
            Ok(Contents { endpoint, front_proxy: front_proxy.transpose()? })
        };
        reads.run(READ_TIMEOUT, reading).await?
    }

    /// Reloads the files until dropped, and passes valid changes to the proxy.
    pub async fn follow(self, proxy: Arc<Proxy>) {
        let reads = BlockingReads::default();
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut known, mut logged) = (None, None);
        loop {
            ticks.tick().await;
            let new = match self.read(&reads).await {
                Ok(contents) if known.as_ref() == Some(&contents) => continue,
                Ok(contents) => contents.upstreams().map(|upstreams| (contents, upstreams)),
                Err(error) => Err(error),
            };
            match new {
                Ok((contents, (plain, front_proxy))) => {
                    // Also after the first read: the files may be newer than the proxy's settings.
                    proxy.replace(plain, front_proxy);
                    if known.replace(contents).is_some() {
                        tracing::info!("using new settings for the apiserver");
                    }
                    logged = None;
                }
                Err(error) if logged.as_ref() != Some(&error) => {
                    tracing::warn!(%error, "the changed settings for the apiserver are not valid; the old ones stay in use");
                    logged = Some(error);
                }
                Err(_) => {}
            }
        }
    }
}

impl Contents {
    fn upstreams(&self) -> Result<Upstreams, OriginError> {
        let plain = Upstream::new(&self.endpoint, None)?;
        let with = |(cert, key): &(Vec<u8>, Vec<u8>)| Upstream::new(&self.endpoint, Some((cert, key)));
        Ok((plain, self.front_proxy.as_ref().map(with).transpose()?))
    }
}
