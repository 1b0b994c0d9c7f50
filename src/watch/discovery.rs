//! Discovery loop: reads the resources that the watched cluster serves, regularly and on request.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::live::Discovery;
use gatepost_base::clock::{Moment, slept};
use gatepost_kube_support::{Discoverer, KubeClient, KubeError};

/// Interval between two reads. A read without changes costs two responses without a body.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest interval between two reads, however often one is requested.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one read: an older apiserver needs many requests.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps the discovery of a cluster current until dropped.
pub(super) async fn follow(discovery: Arc<Discovery>, client: KubeClient) {
    let (mut discoverer, mut message) = (Discoverer::default(), None::<KubeError>);
    loop {
        let at = Moment::now(slept);
        match timeout(READ_TIMEOUT, discoverer.read(&client)).await {
            Ok(Ok(changed)) => {
                match changed {
                    Some(served) => discovery.set(served, at),
                    None => discovery.stamp(at),
                }
                if message.take().is_some() {
                    tracing::info!("the versions that the cluster serves can be read again");
                }
            }
            Ok(Err(failure)) if message.as_ref() != Some(&failure) => {
                tracing::warn!(
                    %failure,
                    fix = failure.fix(),
                    "cannot read which versions the cluster serves; while nothing recent is known, rules for other \
                     versions of a resource count as matching"
                );
                message = Some(failure);
            }
            Ok(Err(_)) | Err(_) => {}
        }
        discovery.reading_ended();
        sleep(MIN_READ_INTERVAL).await;
        let _ = timeout(READ_INTERVAL, discovery.refresh_requested()).await;
    }
}
