//! ServiceWatcher: endpoints of the Services that hooks are named by: one list of their EndpointSlices, then its changes.
//!
//! | what happens | what we do |
//! | --- | --- |
//! | the apiserver ends the watch, as it does after [`WATCH`] | watch on from the last revision |
//! | other hooks are in force, the revision is forgotten (410), or [`RELIST`] has passed | list anew |
//! | the apiserver cannot be reached, says no, or says nonsense | log it once, wait a little longer each time, list anew |
//!
//! Meanwhile what is known stays in use, until it is too old ([`TOO_OLD_AFTER`](crate::hooks::services::TOO_OLD_AFTER)).

mod slices;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::time::{sleep, timeout};

use self::slices::{Service, Slices};
use crate::{
    clock::{Backoff, Moment, slept},
    hooks::ServiceAddresses,
    kube::{KubeAccess, KubeClient, KubeError, ReloadingClient, WatchedChange},
    live::Current,
    model::hook::Address,
};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// The label by which a slice belongs to a Service.
const LABEL: &str = "kubernetes.io/service-name";
/// The most Services that are followed, all in one query; names of others are looked up.
const MOST_SERVICES: usize = 200;
/// Requested length of one watch, as that of namespaces.
const WATCH: Duration = Duration::from_secs(30);
/// Interval of whole lists, the Services' ports included.
const RELIST: Duration = Duration::from_secs(300);
/// Pauses after failures: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Interval of looks at the hooks in force.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Shortest interval of reading a Service's ports anew, once its slices have changed or do not fit them.
const PORTS_EVERY: Duration = Duration::from_secs(5);

/// Services of one cluster, about to be followed.
#[derive(Debug)]
pub struct ServiceWatcher {
    connection: ReloadingClient,
    current: Arc<Current>,
    addresses: Arc<ServiceAddresses>,
    /// The last reported failure.
    logged: Option<KubeError>,
    /// True once too many Services were reported.
    too_many: bool,
}

impl ServiceWatcher {
    /// Watcher of the Services that the hooks in force name, in that cluster. Connects to nothing yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub async fn new(access: KubeAccess, current: Arc<Current>) -> Result<Self, KubeError> {
        let addresses = ServiceAddresses::new(Instant::now());
        Ok(Self { connection: ReloadingClient::new(access).await?, current, addresses, logged: None, too_many: false })
    }

    /// Known addresses, for dials.
    pub fn addresses(&self) -> Arc<ServiceAddresses> {
        Arc::clone(&self.addresses)
    }

    /// Follows them until dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let wanted = self.wanted();
            self.addresses.set_named(!wanted.is_empty(), Moment::now(slept));
            if wanted.is_empty() {
                self.addresses.replace(Default::default());
                sleep(LOOK_EVERY).await;
                continue;
            }
            let began = Instant::now();
            let ended = self.follow(&wanted).await;
            if ended.is_ok() || began.elapsed() > PAUSES.1 {
                backoff.reset();
            }
            if let Err(failure) = ended {
                self.connection.failed(&failure);
                if self.logged.as_ref() != Some(&failure) {
                    let fix = failure.fix();
                    tracing::warn!(%failure, fix, "cannot watch EndpointSlices; what is known of them is getting old");
                    self.logged = Some(failure);
                }
            }
            sleep(backoff.pause()).await;
        }
    }

    /// The Services that hooks in force name, in order, as far as they are followed.
    fn wanted(&mut self) -> BTreeSet<Service> {
        let generation = self.current.load();
        // One that moves is dialled at both places.
        let endpoints = generation.hooks.iter().flat_map(|live| [&live.hook.endpoint, &live.target.entry().endpoint]);
        let services = endpoints.filter_map(|endpoint| match &endpoint.address {
            Address::Tcp { host, .. } => Service::of_host(host),
            Address::Unix(_) => None,
        });
        let mut wanted: BTreeSet<_> = services.collect();
        let too_many = wanted.len() > MOST_SERVICES;
        if too_many && !self.too_many {
            let services = wanted.len();
            tracing::warn!(
                services,
                "hooks name more than {MOST_SERVICES} Services; names of the others are looked up"
            );
        }
        self.too_many = too_many;
        while wanted.len() > MOST_SERVICES {
            wanted.pop_last();
        }
        wanted
    }

    /// Lists these and takes up their changes, until everything has to be listed anew; an error where that is not ordinary.
    async fn follow(&mut self, wanted: &BTreeSet<Service>) -> Result<(), KubeError> {
        let names: BTreeSet<_> = wanted.iter().map(|service| &*service.name).collect();
        let selector = format!("{LABEL} in ({})", names.into_iter().collect::<Vec<_>>().join(","));
        let (listed, generation) = (Instant::now(), self.current.load().number);
        let began = Moment::now(slept);
        let client = self.connection.client().await?;
        let list = client.list_labelled(SLICES, &selector).await?;
        let mut slices = Slices::of(wanted.clone(), &list.items);
        for service in wanted {
            slices.set_ports(service, client.find(&service.path(), &service.name).await?.as_ref());
        }
        self.addresses.replace(slices.addresses());
        self.addresses.stamp(began);
        let mut revision = list.revision;
        while listed.elapsed() < RELIST {
            let mut changes = match client.watch_labelled(SLICES, &selector, &revision, WATCH).await {
                Ok(changes) => changes,
                Err(KubeError::Refused { code: 410, .. }) => return Ok(()),
                Err(failure) => return Err(failure),
            };
            if self.logged.take().is_some() {
                tracing::info!("watching EndpointSlices again");
            }
            let opened = Moment::now(slept);
            self.addresses.stamp(opened);
            loop {
                if self.current.load().number != generation && self.wanted() != *wanted {
                    return Ok(());
                }
                // An apiserver that is gone without a word must not be waited for.
                if opened.instant.elapsed() > WATCH + PAUSES.1 {
                    break;
                }
                // An event after the machine has slept may have been sent before it did.
                if slept() > opened.slept + PAUSES.0 {
                    return Ok(());
                }
                let Ok(change) = timeout(LOOK_EVERY, changes.next()).await else {
                    if reread_ports(&client, &mut slices).await? {
                        self.addresses.replace(slices.addresses());
                    }
                    continue;
                };
                let object = match change? {
                    Some(WatchedChange::Changed(object)) => {
                        slices.set(&object);
                        object
                    }
                    Some(WatchedChange::Gone(object)) => {
                        slices.remove(&object);
                        object
                    }
                    Some(WatchedChange::Bookmark(at)) => {
                        revision = at;
                        self.addresses.stamp(Moment::now(slept));
                        continue;
                    }
                    Some(WatchedChange::Expired) => return Ok(()),
                    None => break,
                };
                reread_ports(&client, &mut slices).await?;
                self.addresses.replace(slices.addresses());
                if let Some(at) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
                    at.clone_into(&mut revision);
                }
                self.addresses.stamp(Moment::now(slept));
            }
            // An apiserver that hangs up at once must not be called without pause.
            sleep(PAUSES.0.saturating_sub(opened.instant.elapsed())).await;
        }
        Ok(())
    }
}

/// Reads the ports of one Service again, where that is due. One at a time: changes wait meanwhile.
async fn reread_ports(client: &KubeClient, slices: &mut Slices) -> Result<bool, KubeError> {
    let Some(service) = slices.due(PORTS_EVERY) else { return Ok(false) };
    slices.set_ports(&service, client.find(&service.path(), &service.name).await?.as_ref());
    Ok(true)
}
