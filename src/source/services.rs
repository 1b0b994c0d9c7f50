//! ServiceWatcher: endpoints of the Services that hooks name, from a list of their EndpointSlices and its changes
//! ([`follow`](gatepost_kube_support::follow())); they are listed anew if other hooks are in force.
//!
//! While the watch fails, the known endpoints stay in use until they are too old
//! ([`SERVICES_STALE_AFTER`](crate::hooks::SERVICES_STALE_AFTER)).

mod slices;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use self::slices::{EndpointSlice, Service, Slices};
use crate::{hooks::ServiceAddresses, live::Current, telemetry::UnreadableObjects};
use gatepost_api::hook::Address;
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_kube_support::{
    FollowEvent, FollowHandler, FollowTarget, KubeAccess, KubeClient, KubeError, ReloadingClient, follow,
};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// Label that assigns a slice to a Service.
const LABEL: &str = "kubernetes.io/service-name";
/// Maximum number of Services that are watched, all in one query; the names of others are resolved by DNS.
const MAX_SERVICES: usize = 200;
/// Shortest interval of rereading a Service's ports after its slices changed or did not fit them.
const PORTS_EVERY: Duration = Duration::from_secs(5);

/// Watcher of the Services of one cluster.
#[derive(Debug)]
pub struct ServiceWatcher(SliceFollower);

/// Follower that keeps the addresses current.
#[derive(Debug)]
struct SliceFollower {
    connection: ReloadingClient,
    current: Arc<Current>,
    addresses: Arc<ServiceAddresses>,
    /// Known slices of the Services.
    slices: Slices,
    /// Client of the current list, for the ports of Services.
    client: Option<KubeClient>,
    /// Number of the generation whose hooks name the Services.
    generation: u64,
    /// True if hooks name too many Services, which was logged.
    too_many: bool,
}

impl ServiceWatcher {
    /// Creates the watcher of the Services that the hooks in force name. Connects to nothing yet.
    ///
    /// # Errors
    /// Returns an error if the address or the credentials cannot be read.
    pub async fn new(access: KubeAccess, current: Arc<Current>) -> Result<Self, KubeError> {
        let addresses = ServiceAddresses::new(Instant::now());
        let connection = ReloadingClient::new(access).await?;
        let (slices, client, generation) = (Slices::default(), None, 0);
        Ok(Self(SliceFollower { connection, current, addresses, slices, client, generation, too_many: false }))
    }

    /// Returns the known addresses, for dialling.
    pub fn addresses(&self) -> Arc<ServiceAddresses> {
        Arc::clone(&self.0.addresses)
    }

    /// Watches the Services until dropped.
    pub async fn run(mut self) {
        follow(&mut self.0).await;
    }
}

impl SliceFollower {
    /// Returns the Services that hooks in force name, in order, up to the limit.
    fn wanted(&mut self) -> BTreeSet<Service> {
        let generation = self.current.load();
        // A hook that moves is dialled at both endpoints.
        let endpoints = generation.hooks.iter().flat_map(|live| [&live.hook.endpoint, &live.target.entry.endpoint]);
        let services = endpoints.filter_map(|endpoint| match &endpoint.address {
            Address::Tcp { host, .. } => Service::of_host(host),
            Address::Unix(_) => None,
        });
        let mut wanted: BTreeSet<_> = services.collect();
        let too_many = wanted.len() > MAX_SERVICES;
        if too_many && !self.too_many {
            let services = wanted.len();
            tracing::warn!(services, "hooks name more than {MAX_SERVICES} Services; names of the others are looked up");
        }
        self.too_many = too_many;
        while wanted.len() > MAX_SERVICES {
            wanted.pop_last();
        }
        wanted
    }

    /// Rereads the ports of one Service, if due. Changes wait meanwhile, so only one is read at a time.
    async fn reread_ports(&mut self) -> Result<bool, KubeError> {
        let Some(service) = self.slices.due(PORTS_EVERY) else { return Ok(false) };
        self.read_ports(&service).await?;
        Ok(true)
    }

    async fn read_ports(&mut self, service: &Service) -> Result<(), KubeError> {
        let Some(client) = &self.client else { return Ok(()) };
        self.slices.set_ports(service, client.find(&service.path(), &service.name).await?.as_ref());
        Ok(())
    }
}

impl FollowHandler for SliceFollower {
    type Object = EndpointSlice;
    const METADATA_ONLY: bool = false;
    /// Interval of lists, which also reread the Services' ports.
    const RELIST_INTERVAL: Duration = Duration::from_secs(300);
    const FAILURE_MESSAGE: &'static str = "cannot watch EndpointSlices; what is known of them is getting old";
    const RECOVERY_MESSAGE: &'static str = "watching EndpointSlices again";

    fn count_unreadable(&self) {
        UnreadableObjects::EndpointSlices.count();
    }

    async fn target(&mut self) -> Result<Option<FollowTarget>, KubeError> {
        self.generation = self.current.load().number;
        let wanted = self.wanted();
        self.addresses.set_named(!wanted.is_empty(), Moment::now(suspended_time));
        if wanted.is_empty() {
            self.addresses.replace(Default::default());
            return Ok(None);
        }
        let names: BTreeSet<_> = wanted.iter().map(|service| &*service.name).collect();
        let selector = format!("{LABEL} in ({})", names.into_iter().collect::<Vec<_>>().join(","));
        self.slices = Slices::of(wanted);
        let client = self.connection.client().await?;
        self.client = Some(client.clone());
        Ok(Some(FollowTarget { client, path: SLICES.to_owned(), selector }))
    }

    async fn handle(&mut self, event: FollowEvent<EndpointSlice>) -> Result<(), KubeError> {
        match event {
            FollowEvent::Listing => self.slices = Slices::of(self.slices.wanted().clone()),
            FollowEvent::Listed { objects, .. } => objects.iter().for_each(|slice| self.slices.set(slice)),
            FollowEvent::ListEnd(began) => {
                for service in self.slices.wanted().clone() {
                    self.read_ports(&service).await?;
                }
                self.addresses.replace(self.slices.addresses());
                self.addresses.confirm(began);
            }
            FollowEvent::Current(at) => self.addresses.confirm(at),
            change => {
                match change {
                    FollowEvent::Changed(slice) => self.slices.set(&slice),
                    FollowEvent::Gone(slice) => self.slices.remove(slice.metadata.key()),
                    FollowEvent::Unreadable(identity) => self.slices.remove((identity.namespace, identity.name)),
                    _ => {}
                }
                self.reread_ports().await?;
                self.addresses.replace(self.slices.addresses());
            }
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<bool, KubeError> {
        if self.current.load().number != self.generation && self.wanted() != *self.slices.wanted() {
            return Ok(false);
        }
        if self.reread_ports().await? {
            self.addresses.replace(self.slices.addresses());
        }
        Ok(true)
    }

    fn on_failure(&mut self, failure: &KubeError) {
        self.connection.failed(failure);
    }
}
