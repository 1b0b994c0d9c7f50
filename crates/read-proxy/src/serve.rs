//! The path of one request, from a client's connection to the apiserver and back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header::USER_AGENT, uri::PathAndQuery};
use hyper::body::Incoming;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::{
    activity::Activity,
    body::Body,
    cluster::Cluster,
    fields,
    peer::Peer,
    plan::{ReadPlan, Unreadable},
    pool::Pool,
    query::Query,
    refusal::ProxyRefusal,
    requester::{self, Account, RemoteUser},
    resources::ProxiedResources,
    upgrade,
    upstream::Upstream,
    write_places::{Lifecycle, ProxyReadiness, WritePlaces},
};
use crate::metrics::{ProxyLoad, ProxyOutcome, ReadProxyMetrics};
use gatepost_api::initialization::{HiddenAs, SEE_ALL};

/// Memory for inspected objects, in KiB: those of GET, and those just created. It is separate so that reads cannot
/// block responses about stored objects.
const INSPECTED_KIB: (usize, usize) = (192 << 10, 64 << 10);
/// Pause between reviews until the apiserver answers one.
const REVIEW_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Settings of a proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Resources whose uninitialized objects are hidden.
    pub resources: ProxiedResources,
    /// Users that see all objects, besides [`SEE_ALL`].
    pub see_all: Vec<String>,
    /// Prefixes of the user agents that get 404 for a hidden object instead of 202.
    pub not_found_for: Vec<String>,
    /// Maximum duration of a hold.
    pub hold_timeout: Duration,
    /// Maximum number of concurrent writes that wait for initializers, or for the apiserver's response.
    pub max_holds: usize,
    /// Maximum number of client connections, including upgraded ones; others wait to be accepted.
    pub max_connections: usize,
}

/// Outcome as which a request is counted, and its response.
pub(super) type RequestResult = (ProxyOutcome, Response<Body>);

/// Reverse proxy in front of an apiserver.
#[derive(Debug)]
pub struct Proxy {
    pub(super) settings: ProxySettings,
    pub(super) cluster: Cluster,
    /// Connections without a client certificate: a token is the only credential on them.
    plain: Pool,
    /// Connections with the front proxy's certificate.
    front_proxy: Option<Pool>,
    pub(super) holds: Arc<WritePlaces>,
    pub(super) inspected: Arc<Semaphore>,
    pub(super) created: Arc<Semaphore>,
    pub(super) metrics: Arc<ReadProxyMetrics>,
    pub(super) lifecycle: Lifecycle,
}

/// A request in progress: rewritten for the apiserver, and as its client sent it.
#[derive(Debug)]
pub(super) struct ForwardedRequest<'a> {
    pub(super) request: Request<Body>,
    pub(super) sent: OriginalRequest<'a>,
}

/// A request as its client sent it, without hop-by-hop fields.
#[derive(Clone, Debug)]
pub(super) struct OriginalRequest<'a> {
    pub(super) headers: HeaderMap,
    pub(super) arrived: Instant,
    /// Owner of the client certificate.
    pub(super) user: Option<&'a RemoteUser>,
    /// Unused share of the connection in the memory for inspected objects.
    pub(super) share: &'a Arc<Semaphore>,
    /// Unused share of the connection in the memory for responses to writes.
    pub(super) share_of_writes: &'a Arc<Semaphore>,
}

impl Proxy {
    /// Creates a proxy to this apiserver, with and without the front proxy's certificate.
    pub fn new(settings: ProxySettings, cluster: Cluster, plain: Upstream, front_proxy: Option<Upstream>) -> Arc<Self> {
        let holds = WritePlaces::new(settings.max_holds);
        let (plain, front_proxy) = (Pool::new(plain), front_proxy.map(Pool::new));
        let inspected = Arc::new(Semaphore::new(INSPECTED_KIB.0));
        let created = Arc::new(Semaphore::new(INSPECTED_KIB.1));
        let metrics = Arc::clone(cluster.metrics());
        let lifecycle = Lifecycle::default();
        Arc::new(Self { settings, cluster, plain, front_proxy, holds, inspected, created, metrics, lifecycle })
    }

    /// Returns the counters.
    pub fn metrics(&self) -> &Arc<ReadProxyMetrics> {
        &self.metrics
    }

    /// Returns the resources in use, and their limits.
    pub fn load(&self) -> ProxyLoad {
        let bytes = |kib: usize, free: &Semaphore| ((kib - free.available_permits()) << 10, kib << 10);
        let (questions, waiting) = self.cluster.load();
        ProxyLoad {
            holds: self.holds.load(),
            oldest_hold: self.holds.oldest(),
            read: bytes(INSPECTED_KIB.0, &self.inspected),
            written: bytes(INSPECTED_KIB.1, &self.created),
            questions,
            waiting,
            max_connections: self.settings.max_connections,
        }
    }

    /// Returns whether the proxy can serve clients.
    pub fn readiness(&self) -> ProxyReadiness {
        self.lifecycle.readiness()
    }

    /// Sends reviews of an invalid token until the apiserver answers one. The answer shows that address, credentials
    /// and permissions of the proxy's own account are valid, so that clients may be sent here.
    pub async fn await_apiserver(&self) {
        while !self.cluster.answers_reviews().await {
            sleep(REVIEW_RETRY_PAUSE).await;
        }
        self.lifecycle.set_answered();
    }

    /// Uses these upstreams for new connections.
    pub fn replace(&self, plain: Upstream, front_proxy: Option<Upstream>) {
        self.plain.replace(plain);
        if let (Some(pool), Some(upstream)) = (&self.front_proxy, front_proxy) {
            pool.replace(upstream);
        }
    }

    /// Returns the response to a request.
    pub(super) async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<Body> {
        let in_progress = peer.activity.begin();
        // `Abandoned` counts if the client disconnects, which drops this future.
        let mut counted = self.metrics.begin(ProxyOutcome::Abandoned);
        let broke_off = Arc::new(AtomicBool::new(false));
        let (outcome, answer) = match self.pass(peer, request, &broke_off).await {
            Ok(answered) => answered,
            Err(refusal) => {
                let refusal = if broke_off.load(Relaxed) { refusal.broken_off() } else { refusal };
                refusal.log();
                (refusal.outcome(), refusal.into_response())
            }
        };
        counted.end = outcome;
        answer.map(|body| body.answering(in_progress))
    }

    /// Handles a request according to its plan. Sets `broke_off` if its body ends prematurely.
    async fn pass(
        &self,
        peer: &Peer,
        mut request: Request<Incoming>,
        broke_off: &Arc<AtomicBool>,
    ) -> Result<RequestResult, ProxyRefusal> {
        let user = peer.user()?;
        if request.method() == Method::CONNECT {
            return Err(ProxyRefusal::no_tunnel());
        }
        if fields::drops_the_user(request.headers()) {
            return Err(ProxyRefusal::bad_request("its Connection names a field that says who the user is"));
        }
        let protocol = fields::upgrade(request.headers());
        let upgrading = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        fields::forward(&mut parts.headers, peer.address);
        // Plan with the fields that the apiserver gets: the client's `Connection` may have removed others.
        let plan = ReadPlan::of(&parts.method, parts.uri.path(), &parts.headers, &self.settings.resources);
        let is_ours = matches!(plan, ReadPlan::Filter(_) | ReadPlan::Get(_) | ReadPlan::Create(_));
        if is_ours && Query::new(parts.uri.query()).has_too_many() {
            return Err(ProxyRefusal::bad_request("it has too many parameters"));
        }
        let Activity { share, share_of_writes, .. } = &*peer.activity;
        let sent =
            OriginalRequest { headers: parts.headers.clone(), arrived: Instant::now(), user, share, share_of_writes };
        requester::identify(&mut parts.headers, user);
        // The remaining extensions belong to the client's connection.
        parts.extensions.clear();
        let request = Request::from_parts(parts, Body::uploaded(body, Arc::clone(broke_off)));
        let mut passing = ForwardedRequest { request, sent };
        let outcome = match plan {
            ReadPlan::Pass => ProxyOutcome::Passed,
            ReadPlan::Refuse(why @ Unreadable::Path) => return Err(ProxyRefusal::bad_request(&why.to_string())),
            ReadPlan::Refuse(why @ Unreadable::Method) => return Err(ProxyRefusal::bad_method(&why.to_string())),
            ReadPlan::Filter(path) => self.filter(&mut passing, &path).await?,
            ReadPlan::Get(path) => return self.get(passing, &path).await,
            ReadPlan::Create(path) => return self.create(passing, &path).await,
        };
        let answer = match protocol {
            Some(protocol) => {
                let (upstream, place) = (self.pool(user)?.upstream(), Arc::clone(&peer.place));
                upgrade::pass(&upstream, passing.request, protocol, upgrading, place).await?
            }
            None => self.send(user, passing.request).await?,
        };
        Ok((outcome, answer))
    }

    /// Sends a request to the apiserver, and returns the response for the client.
    pub(super) async fn send(
        &self,
        user: Option<&RemoteUser>,
        request: Request<Body>,
    ) -> Result<Response<Body>, ProxyRefusal> {
        let mut answer = self.pool(user)?.send(request).await?;
        fields::end_to_end(answer.headers_mut());
        // Nothing was created, so the warning is false.
        if !answer.status().is_success() {
            fields::remove_pending_warning(answer.headers_mut());
        }
        *answer.version_mut() = http::Version::default();
        Ok(answer)
    }

    fn pool(&self, user: Option<&RemoteUser>) -> Result<&Pool, ProxyRefusal> {
        match user {
            None => Ok(&self.plain),
            // Without the front proxy's certificate, the listener requests no client certificates.
            Some(_) => self.front_proxy.as_ref().ok_or_else(ProxyRefusal::unavailable),
        }
    }

    /// Returns the account that the apiserver will see; `None` if the request has no credentials, even if it
    /// impersonates a user. No review is sent then.
    ///
    /// # Errors
    /// A refusal if the token is invalid, as by an apiserver, or if its owner is unknown: the request may be one that
    /// must see all objects.
    pub(super) async fn account(&self, sent: &OriginalRequest<'_>) -> Result<Option<Account>, ProxyRefusal> {
        let own = match (sent.user, requester::token(&sent.headers)) {
            (Some(user), _) => user.account().clone(),
            (None, Some(token)) => match self.cluster.owner(token).await? {
                Some(owner) => owner,
                None => return Err(ProxyRefusal::unauthorized("Unauthorized")),
            },
            (None, None) => return Ok(None),
        };
        Ok(Some(requester::impersonated(&sent.headers).unwrap_or(own)))
    }

    /// Returns true if the user sees all objects, whatever the request.
    pub(super) fn sees_all(&self, account: &Account) -> bool {
        SEE_ALL.contains(&&*account.name) || self.settings.see_all.contains(&account.name)
    }

    /// Returns how a hidden object is reported to this client.
    pub(super) fn hidden_as(&self, sent: &OriginalRequest<'_>, account: Option<&Account>) -> HiddenAs {
        let agent = sent.headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        if self.settings.not_found_for.iter().any(|beginning| agent.starts_with(beginning.as_bytes())) {
            return HiddenAs::NotFound;
        }
        HiddenAs::to(|wanted| account.is_some_and(|account| account.user.groups.iter().any(|group| group == wanted)))
    }
}

impl ForwardedRequest<'_> {
    /// Replaces the query of the request.
    ///
    /// # Errors
    /// A refusal if the URL gets too long: the request must not pass with the former query.
    pub(super) fn set_query(&mut self, query: &str) -> Result<(), ProxyRefusal> {
        let uri = self.request.uri();
        let target = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
        // Both parts come from a parsed URL or were encoded for one, so that only the length can be invalid.
        let target = PathAndQuery::try_from(target).map_err(|_| ProxyRefusal::too_long())?;
        *self.request.uri_mut() = Uri::from(target);
        Ok(())
    }
}
