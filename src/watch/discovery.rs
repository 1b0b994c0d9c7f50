//! Discovery loop: asks the followed cluster what it serves, regularly and when somebody wants to know.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::live::Discovery;
use gatepost_base::clock::{Moment, slept};
use gatepost_kube_support::{Discoverer, KubeClient, KubeError};

/// Time between two readings; while nothing has changed a reading is two answers without a body.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Least time between two readings, however often one is wanted.
const LEAST: Duration = Duration::from_secs(1);
/// Longest time of one reading: an older apiserver is asked many questions.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Follows what a cluster serves until dropped.
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
        sleep(LEAST).await;
        let _ = timeout(READ_INTERVAL, discovery.wanted()).await;
    }
}
