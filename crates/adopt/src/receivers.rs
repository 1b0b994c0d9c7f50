//! Receivers of the reviews that apiservers send by our registrations, and whether each is a replica with `--adopt`. A
//! Gatepost without `--adopt` has no lease, and does not call webhooks that are taken over. Also the leader's access to the
//! authorizer that match conditions query.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, LeaseObserver, ReloadingClient};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{Lease, ObjectAccess};

/// Maximum time for which an endpoint may lack a lease. A starting Pod has its lease before it is ready, and a
/// terminating Pod keeps its lease until it no longer answers.
const ENDPOINT_GRACE_PERIOD: Duration = Duration::from_secs(6);
/// Maximum time for which there may be fewer replicas than apiservers. A restarting replica has no lease, and receives
/// no reviews. It exceeds [`IDENTITY_TIMEOUT`] because the replica of a machine that shuts down ends first.
const APISERVER_GRACE_PERIOD: Duration = Duration::from_secs(40);
/// Time without a renewal of its identity lease after which an apiserver counts as dead. It renews every 10 s.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of Pods that a reason names.
const MAX_NAMED_PODS: usize = 3;

/// Interval at which the leader reads the receivers.
const READ_INTERVAL: Duration = Duration::from_secs(3);
/// Timeout of one read. It is short because the leader must renew its lease meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which the last successful read is used while reads fail.
const ANSWER_VALIDITY: Duration = Duration::from_secs(30);
/// Identity leases of apiservers (KEP-1965), on by default from 1.26 on.
const IDENTITY_LEASES_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const APISERVER_SELECTOR: &str = "apiserver.kubernetes.io/identity=kube-apiserver";

/// Route from apiservers to us, by an entry of a registration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// A Service: any of its endpoints may receive the review.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
    },
    /// A loopback address: each apiserver calls the replica beside it.
    Loopback,
    /// Any other URL; its receivers are unknown.
    OtherUrl,
}

impl Route {
    /// Parses the `clientConfig` of an entry.
    pub fn of(client_config: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let service = &client_config["service"];
        if let (Some(namespace), Some(name)) = (text(&service["namespace"]), text(&service["name"])) {
            return Self::Service { namespace, name };
        }
        let url = client_config["url"].as_str().unwrap_or_default();
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let is_loopback = ["localhost", "127.", "[::1]"].iter().any(|host| authority.starts_with(host));
        if is_loopback { Self::Loopback } else { Self::OtherUrl }
    }
}

/// Receivers by one route, at the last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// Endpoints of this Service that may be called.
    Endpoints {
        /// `NAMESPACE/NAME`.
        service: String,
        /// Name of the Pod of each endpoint, if it has one.
        pods: Vec<Option<String>>,
    },
    /// Number of live apiservers, each of which calls the replica beside it; 0 if they have no identity leases.
    Apiservers(usize),
    /// The receivers cannot be read, for this reason.
    Unreadable(String),
}

impl Receivers {
    /// Describes receivers that are not replicas with `--adopt`, and returns for how long they are tolerated. `live`
    /// are the names of live replicas, `known` those of all replicas with a lease.
    fn missing(&self, live: &BTreeSet<&str>, known: &BTreeSet<&str>) -> Option<(String, Duration)> {
        match self {
            Self::Endpoints { service, pods } => {
                let named: BTreeSet<_> = pods.iter().flatten().map(String::as_str).collect();
                let unknown: Vec<_> = named.iter().copied().filter(|pod| !known.contains(pod)).collect();
                if !unknown.is_empty() {
                    let more = if unknown.len() > MAX_NAMED_PODS { " and more" } else { "" };
                    let names = unknown.iter().take(MAX_NAMED_PODS).copied().collect::<Vec<_>>().join(", ");
                    return Some((
                        format!("{names}{more} behind the Service {service} has no lease of --adopt"),
                        ENDPOINT_GRACE_PERIOD,
                    ));
                }
                let nameless = pods.iter().filter(|pod| pod.is_none()).count();
                let others = live.iter().filter(|name| !named.contains(*name)).count();
                (nameless > others).then(|| {
                    let what = format!(
                        "endpoints of the Service {service} without a Pod: {nameless}; other live replicas with --adopt: \
                         {others}"
                    );
                    (what, APISERVER_GRACE_PERIOD)
                })
            }
            Self::Apiservers(count) => {
                let replicas = live.len();
                (*count > replicas).then(|| {
                    let what = format!("live apiservers: {count}; live replicas with --adopt beside them: {replicas}");
                    (what, APISERVER_GRACE_PERIOD)
                })
            }
            Self::Unreadable(why) => Some((why.clone(), APISERVER_GRACE_PERIOD)),
        }
    }
}

/// Time since which there have been receivers that are not replicas with `--adopt`.
#[derive(Debug, Default)]
pub(crate) struct MissingReceivers(Option<Duration>);

impl MissingReceivers {
    /// Returns the reason to take no webhook at `now`, and whether it has lasted so long that taken webhooks are given
    /// back. `live` returns true if the replica of a lease is alive.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        receivers: &[Receivers],
        leases: &[Lease],
        live: impl Fn(&Lease) -> bool,
    ) -> Option<(String, bool)> {
        let replicas = || leases.iter().filter(|lease| !lease.is_leader());
        let known: BTreeSet<_> = replicas().map(Lease::replica).collect();
        let live: BTreeSet<_> = replicas().filter(|lease| live(lease)).map(Lease::replica).collect();
        let missing = receivers.iter().find_map(|receivers| receivers.missing(&live, &known));
        let Some((what, tolerated)) = missing else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        Some((what, now.saturating_sub(since) >= tolerated))
    }
}

/// Identity leases of apiservers, as this replica observes them.
#[derive(Debug, Default)]
pub struct ApiserverIdentities(LeaseObserver);

impl ApiserverIdentities {
    /// Returns the number of live apiservers. `leases` maps names of identity leases, read at `now`, to their renewals.
    pub fn alive(&mut self, now: Duration, leases: BTreeMap<String, String>) -> usize {
        self.0.observe(now, leases);
        self.0.names().filter(|name| self.0.since_renewal(now, name) < IDENTITY_TIMEOUT).count()
    }
}

/// Reader of the receivers, for the leader.
#[derive(Debug)]
pub struct ReceiverReader {
    identities: ApiserverIdentities,
    /// Time of the reader's creation. Times of `identities` are relative to it.
    created: Instant,
    last: Option<CachedReceivers>,
    /// Time of the last successful read; that of the reader's creation before the first.
    last_success: Instant,
}

#[derive(Debug)]
struct CachedReceivers {
    at: Instant,
    routes: BTreeSet<Route>,
    receivers: Vec<Receivers>,
}

impl Default for ReceiverReader {
    fn default() -> Self {
        let now = Instant::now();
        Self { identities: ApiserverIdentities::default(), created: now, last: None, last_success: now }
    }
}

impl ReceiverReader {
    /// Returns the receivers by these routes. They are at most a few seconds old, or older while reads fail.
    pub async fn read(&mut self, client: &KubeClient, routes: BTreeSet<Route>) -> Vec<Receivers> {
        let former = self.last.take().filter(|read| read.routes == routes);
        let now = Instant::now();
        let read = match former {
            Some(read) if now.saturating_duration_since(read.at) < READ_INTERVAL => read,
            former => {
                let found = match self.read_now(client, &routes).await {
                    Ok(found) => {
                        self.last_success = now;
                        found
                    }
                    Err(why) => {
                        let holds = now.saturating_duration_since(self.last_success) < ANSWER_VALIDITY;
                        let known = former.filter(|_| holds).map(|read| read.receivers);
                        known.unwrap_or_else(|| vec![Receivers::Unreadable(why)])
                    }
                };
                CachedReceivers { at: now, routes, receivers: found }
            }
        };
        self.last.insert(read).receivers.clone()
    }

    async fn read_now(&mut self, client: &KubeClient, routes: &BTreeSet<Route>) -> Result<Vec<Receivers>, String> {
        let reading = async {
            let mut found = Vec::new();
            for route in routes {
                found.extend(self.receivers(client, route).await?);
            }
            Ok::<_, KubeError>(found)
        };
        match timeout(READ_TIMEOUT, reading).await {
            Ok(found) => found.map_err(|error| format!("{error}; {}", error.fix())),
            Err(_) => Err(format!("no answer from {}", client.server())),
        }
    }

    async fn receivers(&mut self, client: &KubeClient, route: &Route) -> Result<Option<Receivers>, KubeError> {
        Ok(match route {
            Route::OtherUrl => None,
            Route::Loopback => Some(match client.list_labelled(IDENTITY_LEASES_PATH, APISERVER_SELECTOR, usize::MAX).await {
                Ok(list) => {
                    let leases = list.items.iter().filter_map(identity).collect();
                    Receivers::Apiservers(self.identities.alive(self.created.elapsed(), leases))
                }
                Err(KubeError::Refused { code: 401 | 403, .. }) => Receivers::Unreadable(
                    "the identity leases of apiservers cannot be read; grant the verb list on leases in the namespace \
                     kube-system (Role gatepost-adopt)"
                        .to_owned(),
                ),
                Err(error) => return Err(error),
            }),
            Route::Service { namespace, name } => {
                let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
                let selector = format!("kubernetes.io/service-name={name}");
                let service = format!("{namespace}/{name}");
                Some(match client.list_labelled(&path, &selector, usize::MAX).await {
                    Ok(list) => Receivers::Endpoints { service, pods: list.items.iter().flat_map(pods).collect() },
                    Err(KubeError::Refused { code: 401 | 403, .. }) => Receivers::Unreadable(format!(
                        "the endpoints of the Service {service} cannot be read; grant the verb list on endpointslices \
                         in the namespace {namespace} (Role gatepost-adopt)"
                    )),
                    Err(error) => return Err(error),
                })
            }
        })
    }
}

/// Returns the name and renewal of an identity lease; `None` if it has expired.
fn identity(lease: &Value) -> Option<(String, String)> {
    let (name, renewed) = (lease["metadata"]["name"].as_str()?, lease["spec"]["renewTime"].as_str()?);
    let lasts = Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64()?);
    let age = humantime::parse_rfc3339_weak(renewed).ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age < lasts).then(|| (name.to_owned(), renewed.to_owned()))
}

/// Returns the endpoints of a slice that may be called, each with the name of its Pod. A terminating endpoint is called
/// until proxies have observed its termination.
fn pods(slice: &Value) -> impl Iterator<Item = Option<String>> {
    let is = |endpoint: &Value, key: &str, unknown: bool| endpoint["conditions"][key].as_bool().unwrap_or(unknown);
    let called = move |endpoint: &&Value| {
        is(endpoint, "ready", true) || is(endpoint, "serving", false) && is(endpoint, "terminating", false)
    };
    let pod = |endpoint: &Value| {
        let of = &endpoint["targetRef"];
        of["name"].as_str().filter(|_| of["kind"] == "Pod").map(str::to_owned)
    };
    slice["endpoints"].as_array().into_iter().flatten().filter(called).map(pod)
}

/// Time for which a result is cached.
const CACHE_DURATION: Duration = Duration::from_secs(15);
/// Time for which the answer to an access check that is no longer requested is kept.
const MAX_ACCESS_AGE: Duration = Duration::from_secs(60);
/// Timeout of one request. It is short because the leader must renew its lease meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const SELF_REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Object whose uid identifies a cluster. The source reads the same object.
const CLUSTER_PATH: &str = "/api/v1/namespaces/kube-system?resourceVersion=0";

/// Gatepost's access to the authorizer that match conditions query.
#[derive(Debug)]
pub(crate) struct AuthorizerAccess {
    connection: ReloadingClient,
    /// Cached result and its time: `Ok` if access reviews may be created, or the reason why not.
    permission: Option<(Instant, Result<(), String>)>,
    /// Cached results of [`AuthorizerAccess::unreadable`], each with its time.
    readable: BTreeMap<ObjectAccess, (Instant, Result<(), String>)>,
    /// uid of the authorizer's cluster, once read.
    cluster: Option<String>,
}

impl AuthorizerAccess {
    /// Creates the access without connecting.
    ///
    /// # Errors
    /// Fails if the address or the credentials cannot be read.
    pub(crate) async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        Ok(Self {
            connection: ReloadingClient::new(access).await?,
            permission: None,
            readable: BTreeMap::new(),
            cluster: None,
        })
    }

    /// Returns the reason why no access reviews can be created; `None` if they can. The result is cached for
    /// [`CACHE_DURATION`]. If a request fails, the former result is kept.
    pub(crate) async fn no_access_review_reason(&mut self) -> Option<String> {
        if self.permission.as_ref().is_none_or(|(at, _)| at.elapsed() >= CACHE_DURATION) {
            let before = self.permission.take().map(|(_, known)| known);
            let attributes =
                json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "verb": "create"});
            let what = "it may not create subjectaccessreviews";
            let known = match (self.review_own_access(attributes, what).await, before) {
                (Ok(known), _) | (Err(_), Some(known)) => known,
                (Err(why), None) => return Some(why),
            };
            self.permission = Some((Instant::now(), known));
        }
        self.permission.as_ref().and_then(|(_, known)| known.clone().err())
    }

    /// Returns the uid of the authorizer's cluster if it differs from `uid`; `None` also if it cannot be read.
    pub(crate) async fn other_cluster(&mut self, uid: &str) -> Option<&str> {
        if self.cluster.is_none() {
            let reading = async { self.connection.client().await?.get(CLUSTER_PATH).await };
            let object = timeout(REQUEST_TIMEOUT, reading).await.ok().and_then(Result::ok)?;
            self.cluster = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        }
        self.cluster.as_deref().filter(|other| *other != uid)
    }

    /// Returns the reason why some of these objects cannot be read; `None` if all can. Results are cached like those of
    /// [`AuthorizerAccess::no_access_review_reason`].
    pub(crate) async fn unreadable(&mut self, reads: &[ObjectAccess]) -> Option<String> {
        self.readable.retain(|_, (at, _)| at.elapsed() < MAX_ACCESS_AGE);
        for access in reads {
            let age = self.readable.get(access).map(|(at, _)| at.elapsed());
            if age.is_none_or(|age| age >= CACHE_DURATION) {
                match self.review_read(access).await {
                    Ok(result) => drop(self.readable.insert(access.clone(), (Instant::now(), result))),
                    Err(why) if age.is_none() => return Some(why),
                    Err(_) => {}
                }
            }
            if let Some((_, Err(why))) = self.readable.get(access) {
                return Some(why.clone());
            }
        }
        None
    }

    /// Finds the resource of a kind, and asks whether it may be read.
    async fn review_read(&mut self, access: &ObjectAccess) -> Result<Result<(), String>, String> {
        let ObjectAccess { api_version, kind, namespace, verb } = access;
        let path = match api_version.contains('/') {
            true => format!("/apis/{api_version}"),
            false => format!("/api/{api_version}"),
        };
        let reading = async { self.connection.client().await?.get(&path).await };
        let list = match timeout(REQUEST_TIMEOUT, reading).await {
            Ok(Ok(list)) => list,
            Ok(Err(KubeError::Refused { code: 404, .. })) => Value::Null,
            Ok(Err(error)) => {
                self.connection.failed(&error);
                return Err(error.to_string());
            }
            Err(_) => return Err(format!("no answer from {}", self.connection.server())),
        };
        let resources = list["resources"].as_array().into_iter().flatten();
        let names = resources.filter(|resource| resource["kind"] == **kind).filter_map(|one| one["name"].as_str());
        let Some(resource) = names.into_iter().find(|name| !name.contains('/')) else {
            return Ok(Err(format!("the cluster serves no kind {kind} of {api_version}")));
        };
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let attributes = json!({"group": group, "resource": resource, "verb": verb, "namespace": namespace});
        let place = if namespace.is_empty() { String::new() } else { format!(" in the namespace {namespace}") };
        let what = format!("let its user {verb} {resource} of {api_version}{place}");
        self.review_own_access(attributes, &what).await
    }

    /// Asks whether our own user may do this. `otherwise` is the reason if it may not.
    async fn review_own_access(&mut self, attributes: Value, otherwise: &str) -> Result<Result<(), String>, String> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        let asking = async { self.connection.client().await?.create(SELF_REVIEW_PATH, &review).await };
        match timeout(REQUEST_TIMEOUT, asking).await {
            Ok(Ok(answer)) => Ok(review_result(&answer, otherwise)),
            Ok(Err(error)) => {
                self.connection.failed(&error);
                Err(error.to_string())
            }
            Err(_) => Err(format!("no answer from {}", self.connection.server())),
        }
    }
}

fn review_result(answer: &Value, otherwise: &str) -> Result<(), String> {
    match answer.pointer("/status/allowed") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err(otherwise.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{replica_lease, tests::apiserver_socket};

    fn leases(names: &[&str]) -> Vec<Lease> {
        let lease = |name: &&str| Lease::of(&replica_lease(&format!("{name}/1"), "t", None)).unwrap();
        names.iter().map(lease).collect()
    }

    /// Steps of one second with these receivers and replicas, of which those named `dead…` are not alive.
    fn step(missing: &mut MissingReceivers, second: u64, receivers: &Receivers, names: &[&str]) -> Option<bool> {
        let live = |lease: &Lease| !lease.replica().starts_with("dead");
        let step = missing.step(Duration::from_secs(second), std::slice::from_ref(receivers), &leases(names), live);
        step.map(|(what, overdue)| {
            assert!(!what.is_empty());
            overdue
        })
    }

    #[test]
    fn route_of_client_config_is_service_loopback_or_other_url() {
        let service = json!({"service": {"namespace": "gatepost", "name": "g", "path": "/validate"}});
        assert_eq!(Route::of(&service), Route::Service { namespace: "gatepost".to_owned(), name: "g".to_owned() });
        for (url, route) in [
            ("https://127.0.0.1:9440/validate", Route::Loopback),
            ("https://localhost:9440/validate", Route::Loopback),
            ("https://[::1]:9440/validate", Route::Loopback),
            ("https://gatepost.example.com/validate", Route::OtherUrl),
        ] {
            assert_eq!(Route::of(&json!({ "url": url })), route, "{url}");
        }
    }

    #[test]
    fn pod_without_lease_behind_the_service_is_a_missing_receiver() {
        let pods = |names: &[&str]| Receivers::Endpoints {
            service: "gatepost/gatepost".to_owned(),
            pods: names.iter().map(|name| Some((*name).to_owned())).collect(),
        };
        let mut missing = MissingReceivers::default();
        assert_eq!(step(&mut missing, 0, &pods(&["new"]), &["new"]), None);
        assert_eq!(
            step(&mut missing, 1, &pods(&["new", "old-1", "old-2"]), &["new"]),
            Some(false),
            "a change of flags"
        );
        assert_eq!(step(&mut missing, 6, &pods(&["new", "old-1"]), &["new"]), Some(false));
        assert_eq!(step(&mut missing, 7, &pods(&["new", "old-1"]), &["new"]), Some(true), "for too long");
        assert_eq!(step(&mut missing, 8, &pods(&["new"]), &["new"]), None);
        // An ordinary rollout: each new Pod has a lease before it is ready, and an old one for as long as it answers.
        assert_eq!(step(&mut missing, 9, &pods(&["a", "b"]), &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 10, &pods(&["a", "b", "c"]), &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 11, &pods(&["a", "b", "c"]), &["b", "c"]), Some(false), "its lease went first");
        assert_eq!(step(&mut missing, 13, &pods(&["b", "c"]), &["b", "c"]), None);
        assert_eq!(step(&mut missing, 14, &pods(&["b", "dead"]), &["b", "dead"]), None, "a machine that is lost");
    }

    #[test]
    fn endpoints_without_pod_need_as_many_other_replicas() {
        let nameless = |count| Receivers::Endpoints { service: "g/g".to_owned(), pods: vec![None; count] };
        let mut missing = MissingReceivers::default();
        assert_eq!(step(&mut missing, 0, &nameless(2), &["a", "b"]), None);
        assert_eq!(step(&mut missing, 1, &nameless(3), &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &nameless(3), &["a", "b", "dead"]), Some(true));
    }

    #[test]
    fn apiservers_need_as_many_live_replicas() {
        let (mut missing, three) = (MissingReceivers::default(), Receivers::Apiservers(3));
        assert_eq!(step(&mut missing, 0, &three, &["a"]), Some(false), "the others have no --adopt yet");
        assert_eq!(step(&mut missing, 1, &three, &["a", "b", "c"]), None);
        // A restart: its lease is gone for as long as it takes.
        assert_eq!(step(&mut missing, 2, &three, &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &three, &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &three, &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 50, &three, &["a", "b", "b", "dead"]), Some(false), "one name is one replica");
        assert_eq!(step(&mut missing, 90, &three, &["a", "b", "dead"]), Some(true));
        assert_eq!(step(&mut missing, 91, &Receivers::Apiservers(0), &[]), None, "nothing is known");
        assert_eq!(step(&mut missing, 92, &Receivers::Unreadable("a right".to_owned()), &["a"]), Some(false));
    }

    #[test]
    fn apiserver_without_renewal_of_its_identity_lease_is_dead() {
        let mut identities = ApiserverIdentities::default();
        let mut alive = |second, leases: &[(&str, &str)]| {
            let leases = leases.iter().map(|(name, at)| ((*name).to_owned(), (*at).to_owned())).collect();
            identities.alive(Duration::from_secs(second), leases)
        };
        assert_eq!(alive(0, &[("a", "1"), ("b", "1")]), 2);
        assert_eq!(alive(29, &[("a", "2"), ("b", "1")]), 2);
        assert_eq!(alive(30, &[("a", "2"), ("b", "1")]), 1);
        assert_eq!(alive(31, &[("a", "2"), ("b", "2")]), 2, "it is back");
        assert_eq!(alive(32, &[]), 0);
    }

    #[test]
    fn ready_and_terminating_endpoints_may_be_called() {
        let endpoint = |name: &str, ready: Value, serving: Value, terminating: Value| {
            json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": name},
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
        };
        let (yes, no, unknown) = (json!(true), json!(false), Value::Null);
        let slice = json!({"endpoints": [
            endpoint("ready", yes.clone(), yes.clone(), no.clone()),
            endpoint("starts", no.clone(), no.clone(), no.clone()),
            endpoint("ends", no.clone(), yes.clone(), yes.clone()),
            endpoint("has-ended", no.clone(), no, yes),
            endpoint("unsaid", unknown.clone(), unknown.clone(), unknown),
            {"addresses": ["10.0.0.1"]},
        ]});
        let names: Vec<_> = pods(&slice).map(Option::unwrap_or_default).collect();
        assert_eq!(names, ["ready", "ends", "unsaid", ""]);
    }

    #[test]
    fn expired_identity_lease_does_not_count() {
        let lease = |renewed: &str| json!({"metadata": {"name": "apiserver-a"}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 3600}});
        assert_eq!(identity(&lease("2001-01-01T00:00:00.000000Z")), None);
        let later = "9999-01-01T00:00:00.000000Z";
        assert_eq!(identity(&lease(later)), Some(("apiserver-a".to_owned(), later.to_owned())));
    }

    #[test]
    fn access_reviews_are_possible_only_if_allowed() {
        assert_eq!(review_result(&json!({"status": {"allowed": true}}), "no"), Ok(()));
        for answer in [json!({"status": {"allowed": false}}), json!({"status": {}}), json!({})] {
            assert!(review_result(&answer, "no").is_err());
        }
    }

    /// Answers each request of a client by its method and path.
    async fn apiserver(answer: fn(&str, &str) -> Value) -> (KubeAccess, tempfile::TempDir) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (listener, access, folder) = apiserver_socket().await;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut read = Vec::new();
                while stream.read_buf(&mut read).await.is_ok_and(|read| read > 0) {
                    let text = String::from_utf8_lossy(&read).into_owned();
                    // A request that creates something ends with its object.
                    let is_whole = text.ends_with('}') || text.starts_with("GET ") && text.ends_with("\r\n\r\n");
                    if !is_whole {
                        continue;
                    }
                    let body = answer(&text, text.split(' ').nth(1).unwrap_or_default()).to_string();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                    read.clear();
                }
            }
        });
        (access, folder)
    }

    #[tokio::test]
    async fn objects_that_may_not_be_read_are_named_by_their_resource() {
        let (access, _folder) = apiserver(|text, path| match path {
            "/api/v1" => json!({"resources": [{"name": "configmaps/x", "kind": "ConfigMap"},
                {"name": "configmaps", "kind": "ConfigMap"}, {"name": "namespaces", "kind": "Namespace"}]}),
            "/apis/x.y/v1" => json!({"resources": []}),
            _ => json!({"status": {"allowed": text.contains("\"namespaces\"")}}),
        })
        .await;
        let mut authorizer = AuthorizerAccess::new(access).await.unwrap();
        let access = |api_version: &str, kind: &str, namespace: &str| ObjectAccess {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            verb: "get",
        };
        let namespace = access("v1", "Namespace", "");
        assert_eq!(authorizer.unreadable(std::slice::from_ref(&namespace)).await, None);
        let why = authorizer.unreadable(&[namespace, access("v1", "ConfigMap", "policies")]).await.unwrap();
        assert_eq!(why, "let its user get configmaps of v1 in the namespace policies");
        let why = authorizer.unreadable(&[access("x.y/v1", "Z", "")]).await.unwrap();
        assert_eq!(why, "the cluster serves no kind Z of x.y/v1");
    }
}
