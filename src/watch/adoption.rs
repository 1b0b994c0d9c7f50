//! Adoption: the loop that takes webhooks of others over, one turn after each read of the source.
//!
//! Every replica publishes in a lease of its own which webhooks it calls. The one that holds the leader's lease writes
//! the announcement there, and then the conditions. It writes them only for a few seconds after it has renewed that
//! lease: by the time that another may hold it, nothing of ours is under way.

mod failure;
mod in_force;
mod overlap;
mod receiving;
mod record;
mod rights;
mod uncovered;
mod version;
mod writes;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::{
    failure::Failure,
    in_force::{Displaced, InForce},
    overlap::Overlap,
    record::Recorder,
    rights::Rights,
    uncovered::Uncovered,
};
pub use self::{
    receiving::Receiving,
    record::{EVENTS_PATH, event},
    version::too_old,
    writes::{Written, hold, write},
};
use crate::{
    adopt::{
        Claims, Decision, LEADER_LEASE, LEADER_LEASE_DURATION, Leadership, Lease, MAX_READ_AGE_WITH_STALE_LEASE,
        MAX_READ_GAP, Plan, Reason, SeenWebhook, Turn, UnservedWebhook, WebhookKey, Write, leader_lease, lease_name,
    },
    clock::{Moment, slept},
    kube::{KubeAccess, KubeClient, KubeError, ReloadingClient},
    live::{Current, STALE_AFTER},
    source::{AdoptionReads, AdoptionView, kubernetes::adopting::micro_time},
    telemetry::{Audit, Metrics, Webhooks},
};

/// Time for the rotator to put a read in force before this replica's claims are computed.
const SETTLES: Duration = Duration::from_millis(100);
/// Deadline of one turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which this replica's lease is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// Time after a renewal of the leader's lease within which writes of objects begin: half of what that lease lasts.
const WRITES_WITHIN: Duration = Duration::from_secs(3);
/// Time after a renewal within which they end, answered or not, so that the lease is renewed again in time.
const WRITTEN_WITHIN: Duration = Duration::from_secs(4);
const _: () = assert!(2 * WRITES_WITHIN.as_secs() <= LEADER_LEASE_DURATION.as_secs());
const _: () = assert!(WRITTEN_WITHIN.as_secs() + 2 <= LEADER_LEASE_DURATION.as_secs());
// A replica that does not trust what it has read any more begins anew.
const _: () = assert!(MAX_READ_GAP.as_secs() <= STALE_AFTER.as_secs());
/// Interval at which the apiserver's version is read.
const VERSION_EVERY: Duration = Duration::from_secs(600);
/// Most leases of dead replicas that are deleted at one turn.
const SWEPT: usize = 5;
const MERGE: &str = "application/merge-patch+json";

/// The loop that takes webhooks of others over.
#[derive(Debug)]
pub struct Adoption {
    reads: AdoptionReads,
    connection: ReloadingClient,
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    rights: Rights,
    lead: Leadership,
    /// Claims that were published last, and when.
    said: Option<(Claims, Instant)>,
    /// Time at which the apiserver's version was read, and the version where it has no match conditions.
    version: Option<(Instant, Option<String>)>,
    /// Last reason of each webhook that is left to the apiserver, as each is logged once.
    told: BTreeMap<WebhookKey, &'static str>,
    /// Error of the last turn, as it was logged.
    failed: Option<String>,
    overlap: Overlap,
    displaced: Displaced,
    uncovered: Uncovered,
    receiving: Receiving,
    leads: bool,
    /// Our lease was deleted: the credentials name two clusters.
    withdrawn: bool,
}

impl Adoption {
    /// Conditions ask the authorizer of the cluster that `authorizer` names. Nothing is asked yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub async fn new(
        reads: AdoptionReads,
        authorizer: KubeAccess,
        current: Arc<Current>,
        metrics: Arc<Metrics>,
        audit: Arc<Audit>,
    ) -> Result<Self, KubeError> {
        Ok(Self {
            connection: ReloadingClient::new(reads.access.clone()).await?,
            recorder: Recorder::new(audit, reads.adopt.replica.clone()),
            rights: Rights::new(authorizer).await?,
            reads,
            current,
            metrics,
            lead: Leadership::default(),
            said: None,
            version: None,
            told: BTreeMap::new(),
            failed: None,
            overlap: Overlap::default(),
            displaced: Displaced::default(),
            uncovered: Uncovered::default(),
            receiving: Receiving::default(),
            leads: false,
            withdrawn: false,
        })
    }

    /// A turn after each read, until dropped.
    pub async fn run(&mut self) {
        loop {
            let changed = tokio::select! {
                Some(given_back) = self.reads.given_back.recv() => {
                    self.record_given_back(&given_back).await;
                    continue;
                }
                changed = self.reads.views.changed() => changed,
            };
            if changed.is_err() {
                break;
            }
            let view = Arc::clone(&self.reads.views.borrow_and_update());
            sleep(SETTLES).await;
            let failed = match timeout(PATIENCE, self.turn(&view)).await {
                Ok(Ok(())) => None,
                Ok(Err(failure)) => {
                    if let Failure::Kube(error) = &failure {
                        self.connection.failed(error);
                    }
                    Some(failure.to_string())
                }
                Err(_) => Some(format!("no answer from {}", self.connection.server())),
            };
            if failed != self.failed {
                match &failed {
                    Some(why) => tracing::warn!(why, "cannot take webhooks over; those that were taken stay so"),
                    None => tracing::info!("webhooks can be taken over again"),
                }
                self.failed = failed;
            }
        }
        std::future::pending().await
    }

    async fn turn(&mut self, view: &AdoptionView) -> Result<(), Failure> {
        self.current.trust_for(if view.followed.lease_is_stale { MAX_READ_AGE_WITH_STALE_LEASE } else { STALE_AFTER });
        let client = self.connection.client().await?;
        let in_force = InForce::of(&self.current.load(), &view.followed.webhooks);
        self.count(view, &in_force.called);
        let counted_on = self.displaced.counted_on(in_force, Instant::now());
        if let Some(other) = self.rights.other_cluster(&view.cluster).await.map(str::to_owned) {
            // A replica that serves another cluster has no say in this one.
            if !std::mem::replace(&mut self.withdrawn, true) {
                self.delete_lease(&client).await?;
            }
            return Err(Failure::OtherCluster { ours: view.cluster.clone(), other });
        }
        let (seen, denied) = self.objected(view).await;
        let called = counted_on.into_iter().filter(|id| !denied.contains(id)).collect();
        let claims = view.followed.claims(&called);
        let due = self.said.as_ref().is_none_or(|(said, at)| *said != claims || at.elapsed() >= RENEW);
        if due {
            self.reads.adopt.write_lease(&client, &self.reads.holder, Some(&claims)).await?;
            self.said = Some((claims, Instant::now()));
        }
        self.lead.observe(view.now, &view.leases);
        let Some(leader) = view.leases.iter().find(|lease| lease.is_leader()) else {
            return Ok(self.reads.adopt.make_leader_lease(&client).await?);
        };
        if !self.lead.may_lead(view.now, leader, &self.reads.holder) {
            self.leads = false;
            self.metrics.adoption().set_left(None);
            return Ok(());
        }
        self.lead(&client, (view, &seen), leader).await
    }

    /// Webhooks with this replica's objections, and the ids of those whose conditions need an authorizer that it cannot
    /// call.
    async fn objected<'a>(&mut self, view: &'a AdoptionView) -> (Cow<'a, [SeenWebhook]>, BTreeSet<String>) {
        let (mut seen, mut denied) = (Cow::Borrowed(&*view.seen), BTreeSet::new());
        match view.due.is_empty() || view.due.iter().any(|due| due.conditional) {
            true => self.uncovered.clear(),
            false => self.uncovered.forgive(&mut seen),
        }
        let asks = |seen: &SeenWebhook| seen.asks_authorizer && (seen.wanted.is_ok() || seen.standing.carries);
        if !seen.iter().any(asks) {
            return (seen, denied);
        }
        let Some(why) = self.rights.no_reviews().await else { return (seen, denied) };
        for seen in seen.to_mut().iter_mut().filter(|seen| seen.asks_authorizer) {
            seen.objection.get_or_insert_with(|| Reason::NoAccessReviews(why.clone()));
            denied.insert(seen.standing.id.clone());
        }
        (seen, denied)
    }

    /// Renews the leader's lease, or takes it, and writes what is due.
    async fn lead(
        &mut self,
        client: &KubeClient,
        (view, seen): (&AdoptionView, &[SeenWebhook]),
        leader: &Lease,
    ) -> Result<(), Failure> {
        let unsupported = self.unsupported(client).await?;
        let held = leader.holder == self.reads.holder;
        let AdoptionView { now, leases, registered, .. } = view;
        let ways = registered.iter().flat_map(|one| one.routes.iter().cloned()).collect();
        let receivers = &*self.receiving.read(client, ways).await;
        let unsupported = unsupported.as_deref();
        let turn = Turn { now: *now, leases, seen, registrations: registered, receivers, unsupported, held };
        let plan = self.lead.plan(turn);
        let renewed = Moment::now(slept);
        let (version, holder, status) = (&leader.version, &self.reads.holder, plan.status());
        let lease = leader_lease(version, holder, &micro_time(), &plan.announcement, &status, &plan.fights);
        let path = format!("{}/{LEADER_LEASE}", self.reads.adopt.leases());
        match client.patch(&path, MERGE, &lease).await {
            Ok(()) => {}
            // Somebody else has written it since: the next read has that.
            Err(KubeError::Unwritten { code: 409, .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.lead.leader().on_announced(*now, Moment::now(slept).since(self.reads.opened));
        if !std::mem::replace(&mut self.leads, true) {
            tracing::info!(replica = self.reads.adopt.replica, "this replica takes webhooks over from now on");
        }
        self.tell(&plan);
        // The announcement of a former leader is read back as ours before anything else is written.
        if !held {
            return Ok(());
        }
        let left = WRITTEN_WITHIN.saturating_sub(Moment::now(slept).since(renewed));
        let writing = self.write_due(client, (view, seen), &plan, renewed);
        let late = || Failure::Unanswered { server: client.server().to_string() };
        Ok(timeout(left, writing).await.map_err(|_| late())??)
    }

    /// Writes what is due, after the renewal of the leader's lease that began at `renewed`.
    async fn write_due(
        &mut self,
        client: &KubeClient,
        (view, seen): (&AdoptionView, &[SeenWebhook]),
        plan: &Plan,
        renewed: Moment,
    ) -> Result<(), KubeError> {
        // Once our lease may have expired, another replica may lead, and what we have read may be stale.
        let in_time = || Moment::now(slept).since(renewed) <= WRITES_WITHIN;
        let mut failure = None;
        for due in view.due.iter().take_while(|_| in_time()) {
            match writes::bring_up_to_date(client, due).await {
                Ok(()) => {
                    tracing::info!(registration = due.registered.name, "Gatepost's registration is brought up to date")
                }
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        for guard in plan.finalizers.iter().take_while(|_| in_time()) {
            if let Err(error) = hold(client, guard).await {
                failure.get_or_insert(error);
            }
        }
        for write in plan.writes(seen) {
            if !in_time() {
                break;
            }
            if let Err(error) = self.write(client, view.now, &write).await {
                failure.get_or_insert(error);
            }
        }
        for name in self.lead.abandoned(view.now, &view.leases).take(SWEPT).take_while(|_| in_time()) {
            client.delete(&format!("{}/{name}", self.reads.adopt.leases())).await?;
        }
        failure.map_or(Ok(()), Err)
    }

    async fn write(&mut self, client: &KubeClient, now: Duration, write: &Write) -> Result<(), KubeError> {
        match writes::write(client, write).await? {
            Written::Gone => return Ok(()),
            Written::Outdated => {}
            Written::Refused(why) => {
                for webhook in &write.outdated {
                    tracing::warn!(%webhook, why, "the apiserver refuses to have our condition there brought up to date");
                }
                let refused = write.taken.iter().chain(&write.fenced).chain(&write.outdated);
                refused.for_each(|key| self.lead.leader().on_refusal(key, why.clone(), now));
            }
            Written::Done => {
                let landed = Moment::now(slept).since(self.reads.opened);
                for key in &write.taken {
                    self.lead.leader().on_taken(key, landed);
                    self.recorder.record(Some(client), key, None, &write.read.0);
                }
            }
        }
        for (key, reason) in &write.given_back {
            self.recorder.record(Some(client), key, Some(reason), &write.read.0);
        }
        Ok(())
    }

    /// Counts webhooks that are left to the apiserver, and logs each once for each reason.
    fn tell(&mut self, plan: &Plan) {
        let mut left = [0; Reason::WORDS.len()];
        let there: BTreeSet<_> = plan.decisions.iter().map(|(key, _)| key).collect();
        self.told.retain(|key, _| there.contains(key));
        for (key, decision) in &plan.decisions {
            let (Decision::Leave(reason) | Decision::Fence(reason)) = decision else {
                self.told.remove(key);
                continue;
            };
            let word = reason.word();
            if let Some(count) = Reason::WORDS.iter().position(|one| *one == word).and_then(|at| left.get_mut(at)) {
                *count += 1;
            }
            let news = self.told.insert(key.clone(), word) != Some(word);
            if news && !matches!(reason, Reason::NotWanted | Reason::Released) {
                tracing::warn!(webhook = %key, %reason, "webhook is left to the apiserver");
            }
        }
        let adoption = self.metrics.adoption();
        adoption.set_left(Some(left));
        adoption.set_drops(self.lead.leader().drops());
    }

    fn count(&mut self, view: &AdoptionView, in_force: &BTreeSet<String>) {
        let carried = view.seen.iter().filter(|seen| seen.standing.carries);
        let is_called = |seen: &&SeenWebhook| in_force.contains(&seen.standing.id) && !seen.unsent;
        let (called, uncalled): (Vec<_>, Vec<_>) = carried.partition(is_called);
        self.metrics.adoption().set(Webhooks { called: called.len(), uncalled: uncalled.len() });
        self.overlap.count(&view.followed.webhooks, in_force, self.metrics.adoption());
    }

    /// Records that this replica has given one back before it served.
    async fn record_given_back(&mut self, UnservedWebhook { key, uid, reason, .. }: &UnservedWebhook) {
        let client = timeout(WRITES_WITHIN, self.connection.client()).await.ok().and_then(Result::ok);
        self.recorder.record(client.as_ref(), key, Some(reason), uid);
    }

    /// The apiserver's version, where it knows no match conditions.
    async fn unsupported(&mut self, client: &KubeClient) -> Result<Option<String>, KubeError> {
        if let Some((at, known)) = &self.version
            && at.elapsed() < VERSION_EVERY
        {
            return Ok(known.clone());
        }
        let known = too_old(&client.get("/version").await?);
        self.version = Some((Instant::now(), known.clone()));
        Ok(known)
    }

    async fn delete_lease(&self, client: &KubeClient) -> Result<(), KubeError> {
        let name = lease_name(&self.reads.holder);
        client.delete(&format!("{}/{name}", self.reads.adopt.leases())).await.map(drop)
    }

    /// Releases the leader's lease, where we hold it, and deletes this replica's own.
    pub async fn leave(&mut self) {
        let leaving = async {
            let client = self.connection.client().await?;
            let leases = self.reads.adopt.read_leases(&client).await?;
            let leader = leases.iter().find(|lease| lease.is_leader());
            if let Some(leader) = leader.filter(|leader| leader.holder == self.reads.holder) {
                let path = format!("{}/{LEADER_LEASE}", self.reads.adopt.leases());
                let nobody = json!({"spec": {"holderIdentity": ""}, "metadata": {"resourceVersion": leader.version}});
                // If that fails, the next leader waits until the lease has expired.
                let _ = client.patch(&path, MERGE, &nobody).await;
            }
            self.delete_lease(&client).await
        };
        if let Ok(Err(error)) = timeout(Duration::from_secs(2), leaving).await {
            tracing::debug!(%error, "cannot delete this replica's lease; it runs out by itself");
        }
    }
}
