//! The loop that takes entries of others over. It runs one turn after each read of the source.
//!
//! Every replica publishes in its own lease which entries it calls. The replica that holds the leader's lease writes
//! the announcement to that lease, and then writes the conditions. It begins these writes only within a few seconds
//! after a renewal of the lease, and ends them before another replica may hold the lease.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use gatepost_base::clock::{Moment, suspended_time};
use gatepost_kube_support::{
    KubeAccess, KubeClient, KubeError, ReloadingClient, micro_time, patch_lease, release_lease,
};
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    AdoptionMetrics, AdoptionSettings, AssessedEntry, CallPlan, Cause, Claims, Decision, EntryKey,
    LEADER_LEASE_DURATION, Leadership, Lease, MAX_READ_AGE_WITH_STALE_LEASE, OwnRegistration, Plan, Reason,
    ReceiverReader, RegistrationUpdate, TakenEntries, Turn, UnservedEntry, Write, WriteOutcome, change_finalizer,
    leader_lease, receivers::AuthorizerAccess, record::Recorder, version_without_conditions, write,
    writes::update_registration,
};

/// Delay between a read and its claims. The sidecar puts the configuration in force meanwhile.
const SETTLING_DELAY: Duration = Duration::from_millis(100);
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Renewal interval of this replica's lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time from a renewal of the leader's lease to the start of a write: half of the lease's duration.
const WRITE_START_LIMIT: Duration = Duration::from_secs(3);
/// Maximum time from that renewal to the end of all writes, which are cancelled then to renew the lease in time.
const WRITE_END_LIMIT: Duration = Duration::from_secs(4);
const _: () = assert!(2 * WRITE_START_LIMIT.as_secs() <= LEADER_LEASE_DURATION.as_secs());
const _: () = assert!(WRITE_END_LIMIT.as_secs() + 2 <= LEADER_LEASE_DURATION.as_secs());
/// Interval at which the apiserver's version is read.
const VERSION_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of leases of dead replicas that are deleted in one turn.
const MAX_LEASE_DELETIONS: usize = 5;
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until an owner's change is in force, including a probe of the new endpoint.
const CHANGE_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time within which our registration must cover a taken entry again. Then the entry is given back.
const COVERAGE_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Interface to the sidecar: the entries that it calls, its metrics and its audit log.
pub trait Sidecar: fmt::Debug + Send + Sync {
    /// Returns the entries of others that are called now.
    fn entries_in_force(&self) -> Vec<EntryInForce>;

    /// Sets the age at which the last read of the configuration becomes stale. `None` restores the usual age, which
    /// must be at least [`MAX_READ_GAP`](crate::MAX_READ_GAP).
    fn limit_read_age(&self, age: Option<Duration>);

    /// Returns the metrics of adoption.
    fn metrics(&self) -> &AdoptionMetrics;

    /// Writes a line to the audit log.
    fn audit(&self, line: Value);
}

/// An entry of others that the sidecar calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInForce {
    /// [Id](EntryKey::id) of its name.
    pub id: String,
    /// Digest of the entry that is in force, if known.
    pub state: Option<String>,
    /// The sidecar still calls a former endpoint, because the endpoint of the entry has not passed a probe.
    pub is_moving: bool,
}

/// Input of the loop: settings, and reads of the source.
#[derive(Debug)]
pub struct AdoptionReads {
    /// Entries to take over, and the namespace of the leases.
    pub settings: AdoptionSettings,
    /// Address of the apiserver, and credentials.
    pub access: KubeAccess,
    /// Holder identity of this replica's leases.
    pub holder: String,
    /// Time at which the source was opened. Times of views are relative to it.
    pub opened: Moment,
    /// Result of each read.
    pub views: watch::Receiver<Arc<AdoptionView>>,
    /// Entries that this replica gave back before it served requests, to be recorded.
    pub given_back: mpsc::Receiver<UnservedEntry>,
}

/// Result of one read.
#[derive(Debug, Default)]
pub struct AdoptionView {
    /// Start of the read, as time since the source was opened.
    pub now: Duration,
    /// The leases.
    pub leases: Vec<Lease>,
    /// Entries of others.
    pub seen: Vec<AssessedEntry>,
    /// Entries that this replica calls, and the announcement that it follows.
    pub calls: CallPlan,
    /// Our registrations.
    pub registrations: Vec<OwnRegistration>,
    /// Registrations to update.
    pub updates: Vec<RegistrationUpdate>,
    /// uid of the cluster.
    pub cluster: String,
}

/// The loop that takes entries of others over.
#[derive(Debug)]
pub struct Adoption {
    reads: AdoptionReads,
    connection: ReloadingClient,
    sidecar: Arc<dyn Sidecar>,
    recorder: Recorder,
    authorizer: AuthorizerAccess,
    receivers: ReceiverReader,
    leadership: Leadership,
    /// Claims that were published last, and the time of publishing.
    published: Option<(Claims, Instant)>,
    /// Time at which the apiserver's version was read, and the version if it does not support match conditions.
    version: Option<(Instant, Option<String>)>,
    /// Last logged reason of each entry that is left to the apiserver.
    logged_reasons: BTreeMap<EntryKey, &'static str>,
    /// Logged error of the last turn.
    logged_failure: Option<String>,
    /// Time of the last read.
    last_read: Option<Instant>,
    /// Entries that the apiserver and this replica may both call.
    overlapping: StateStarts,
    /// Entries that are called by former content or at a former endpoint.
    displaced: StateStarts,
    /// Taken entries that our registration does not cover.
    uncovered: StateStarts,
    /// This replica held the leader's lease at its last turn.
    leads: bool,
    /// This replica has deleted its lease, because its two kubeconfigs name different clusters.
    has_deleted_lease: bool,
}

/// Error of a turn.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
    #[error(
        "--kubeconfig names the cluster {ours}, and --namespaces-from the cluster {other}; name that of the apiserver \
         that calls this replica in both"
    )]
    OtherCluster { ours: String, other: String },
    /// The apiserver of this address did not answer.
    #[error("no answer from {0}")]
    Unanswered(String),
}

/// Time at which each entry entered a state that it has not left since, by id.
#[derive(Debug, Default)]
struct StateStarts(BTreeMap<String, Instant>);

impl StateStarts {
    /// Records the entries that are in the state at `now`.
    fn update(&mut self, ids: &BTreeSet<String>, now: Instant) {
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            self.0.entry(id.clone()).or_insert(now);
        }
    }

    /// Returns the entries that have been in the state for less than `time`.
    fn shorter_than(&self, time: Duration, now: Instant) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(_, since)| now.saturating_duration_since(**since) < time).map(|(id, _)| id)
    }
}

/// Ids of the entries in force.
#[derive(Debug, Default, PartialEq, Eq)]
struct InForceIds {
    called: BTreeSet<String>,
    /// Entries that are called by their newest content and at its endpoint. Other replicas must not rely on calls of any
    /// other entry: these use former content, or an endpoint that the owner has replaced.
    in_place: BTreeSet<String>,
}

impl InForceIds {
    fn of(entries: Vec<EntryInForce>, plan: &CallPlan) -> Self {
        let current = plan.entries.iter().filter(|webhook| !webhook.former);
        let newest: BTreeMap<_, _> = current.map(|webhook| (&*webhook.id, &*webhook.state)).collect();
        let mut found = Self::default();
        for EntryInForce { id, state, is_moving } in entries {
            if !is_moving && state.is_some() && newest.get(&*id).copied() == state.as_deref() {
                found.in_place.insert(id.clone());
            }
            found.called.insert(id);
        }
        found
    }

    /// Returns the entries that other replicas may rely on: those in place, and those that were in place a moment ago.
    /// Otherwise, an owner who changes an entry every other second would prevent its takeover.
    fn reliable(self, displaced: &mut StateStarts, now: Instant) -> BTreeSet<String> {
        displaced.update(&self.called.difference(&self.in_place).cloned().collect(), now);
        self.in_place.into_iter().chain(displaced.shorter_than(CHANGE_GRACE_PERIOD, now).cloned()).collect()
    }
}

impl Adoption {
    /// Creates the loop without connecting. Match conditions query the authorizer of the cluster `authorizer`.
    ///
    /// # Errors
    /// Fails if the address or the credentials cannot be read.
    pub async fn new(
        reads: AdoptionReads,
        authorizer: KubeAccess,
        sidecar: Arc<dyn Sidecar>,
    ) -> Result<Self, KubeError> {
        Ok(Self {
            connection: ReloadingClient::new(reads.access.clone()).await?,
            recorder: Recorder::new(Arc::clone(&sidecar), reads.settings.replica.clone()),
            authorizer: AuthorizerAccess::new(authorizer).await?,
            receivers: ReceiverReader::default(),
            reads,
            sidecar,
            leadership: Leadership::default(),
            published: None,
            version: None,
            logged_reasons: BTreeMap::new(),
            logged_failure: None,
            last_read: None,
            overlapping: StateStarts::default(),
            displaced: StateStarts::default(),
            uncovered: StateStarts::default(),
            leads: false,
            has_deleted_lease: false,
        })
    }

    /// Runs a turn after each read, until the future is dropped.
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
            sleep(SETTLING_DELAY).await;
            let turn = timeout(TURN_TIMEOUT, self.turn(&view)).await;
            let error = turn.unwrap_or_else(|_| Err(TurnError::Unanswered(self.connection.server().to_string()))).err();
            if let Some(TurnError::Kube(error)) = &error {
                self.connection.failed(error);
            }
            let failure = error.map(|error| error.to_string());
            if failure != self.logged_failure {
                match &failure {
                    Some(why) => tracing::warn!(why, "cannot take anything over; what was taken stays so"),
                    None => tracing::info!("everything can be taken over again"),
                }
                self.logged_failure = failure;
            }
        }
        std::future::pending().await
    }

    async fn turn(&mut self, view: &AdoptionView) -> Result<(), TurnError> {
        self.sidecar.limit_read_age(view.calls.lease_is_stale.then_some(MAX_READ_AGE_WITH_STALE_LEASE));
        let client = self.connection.client().await?;
        let in_force = InForceIds::of(self.sidecar.entries_in_force(), &view.calls);
        self.count(view, &in_force.called);
        let reliable = in_force.reliable(&mut self.displaced, Instant::now());
        if let Some(other) = self.authorizer.other_cluster(&view.cluster).await.map(str::to_owned) {
            // A replica of another cluster must publish no claims in this one.
            if !std::mem::replace(&mut self.has_deleted_lease, true) {
                self.delete_lease(&client).await?;
            }
            return Err(TurnError::OtherCluster { ours: view.cluster.clone(), other });
        }
        let (seen, denied) = self.with_local_reasons(view).await;
        let claims = view.calls.claims(&reliable.difference(&denied).cloned().collect());
        let due = self.published.as_ref().is_none_or(|(last, at)| *last != claims || at.elapsed() >= RENEWAL_INTERVAL);
        if due {
            self.reads.settings.write_lease(&client, &self.reads.holder, Some(&claims)).await?;
            self.published = Some((claims, Instant::now()));
        }
        self.leadership.observe(view.now, &view.leases);
        let Some(leader) = view.leases.iter().find(|lease| lease.is_leader()) else {
            return Ok(self.reads.settings.create_leader_lease(&client).await?);
        };
        if !self.leadership.may_lead(view.now, leader, &self.reads.holder) {
            self.leads = false;
            self.sidecar.metrics().update(|figures| figures.left = None);
            return Ok(());
        }
        self.lead(&client, (view, &seen), leader).await
    }

    /// Returns the entries after this replica has added or dropped reasons not to adopt them, and the ids of those
    /// that need an authorizer or objects of the cluster that this replica cannot query.
    async fn with_local_reasons<'a>(&mut self, view: &'a AdoptionView) -> (Cow<'a, [AssessedEntry]>, BTreeSet<String>) {
        let (mut seen, mut denied) = (Cow::Borrowed(&*view.seen), BTreeSet::new());
        self.tolerate_uncovered(view, &mut seen);
        let counts = |seen: &AssessedEntry| seen.wanted.is_ok() || seen.standing.carries;
        for index in 0..seen.len() {
            let one = &seen[index];
            if !counts(one) {
                continue;
            }
            let mut reason = None;
            if one.uses_authorizer {
                reason = self.authorizer.no_access_review_reason().await.map(Reason::NoAccessReviews);
            }
            if reason.is_none() && !one.reads.is_empty() {
                reason = self.authorizer.unreadable(&one.reads).await.map(Reason::NoReadAccess);
            }
            let Some(reason) = reason else { continue };
            let one = &mut seen.to_mut()[index];
            one.reason_not_to_adopt.get_or_insert(reason);
            denied.insert(one.standing.id.clone());
        }
        (seen, denied)
    }

    /// Ignores for [`COVERAGE_GRACE_PERIOD`] that our registration does not cover a taken entry, if the registration
    /// is being updated. Nothing is ignored if an entry has a match condition of others, which may be added again after
    /// each update.
    fn tolerate_uncovered(&mut self, view: &AdoptionView, seen: &mut Cow<'_, [AssessedEntry]>) {
        let is_updated = !view.updates.is_empty() && view.updates.iter().all(|update| !update.conditional);
        let is_uncovered = |seen: &AssessedEntry| {
            is_updated && seen.standing.carries && matches!(seen.reason_not_to_adopt, Some(Reason::Uncovered(_)))
        };
        let ids = seen.iter().filter(|seen| is_uncovered(seen)).map(|seen| seen.standing.id.clone()).collect();
        let now = Instant::now();
        self.uncovered.update(&ids, now);
        let tolerated: BTreeSet<_> = self.uncovered.shorter_than(COVERAGE_GRACE_PERIOD, now).collect();
        if !tolerated.is_empty() {
            let tolerated = seen.to_mut().iter_mut().filter(|seen| tolerated.contains(&seen.standing.id));
            tolerated.for_each(|seen| seen.reason_not_to_adopt = None);
        }
    }

    /// Renews or acquires the leader's lease, and makes the writes that are due.
    async fn lead(
        &mut self,
        client: &KubeClient,
        (view, seen): (&AdoptionView, &[AssessedEntry]),
        leader: &Lease,
    ) -> Result<(), TurnError> {
        let unsupported = self.unsupported(client).await?;
        let (unsupported, held_leader_lease) = (unsupported.as_deref(), leader.holder == self.reads.holder);
        let &AdoptionView { now, ref leases, ref registrations, .. } = view;
        let routes = registrations.iter().flat_map(|one| one.routes.iter().cloned()).collect();
        let receivers = &*self.receivers.read(client, routes).await;
        let turn = Turn { now, leases, seen, registrations, receivers, unsupported, held_leader_lease };
        let plan = self.leadership.plan(turn);
        let renewed = Moment::now(suspended_time);
        let (version, holder, status) = (&leader.version, &self.reads.holder, plan.status());
        let lease = leader_lease(version, holder, &micro_time(), &plan.announcement, &status, &plan.fights);
        if !patch_lease(client, &self.reads.settings.leader_lease(), &lease).await? {
            // The lease has changed since it was read. The next read returns the change.
            return Ok(());
        }
        self.leadership.leader.on_announced(now, Moment::now(suspended_time).since(self.reads.opened));
        if !std::mem::replace(&mut self.leads, true) {
            tracing::info!(replica = self.reads.settings.replica, "this replica takes over and gives back from now on");
        }
        self.report_left(&plan);
        // A new leader reads its announcement back before any other write.
        if !held_leader_lease {
            return Ok(());
        }
        let left = WRITE_END_LIMIT.saturating_sub(Moment::now(suspended_time).since(renewed));
        let writing = self.write_due(client, (view, seen), &plan, renewed);
        Ok(timeout(left, writing).await.map_err(|_| TurnError::Unanswered(client.server().to_string()))??)
    }

    /// Makes the writes that are due after the renewal of the leader's lease that began at `renewed`.
    async fn write_due(
        &mut self,
        client: &KubeClient,
        (view, seen): (&AdoptionView, &[AssessedEntry]),
        plan: &Plan,
        renewed: Moment,
    ) -> Result<(), KubeError> {
        // Once our lease might have expired, another replica might lead, and our read might be outdated.
        let in_time = || Moment::now(suspended_time).since(renewed) <= WRITE_START_LIMIT;
        let mut result = Ok(());
        let writes = plan.writes(seen);
        let (give_backs, others) = writes.split_at(writes.partition_point(|write| !write.given_back.is_empty()));
        for write in give_backs.iter().take_while(|_| in_time()) {
            result = result.and(self.write(client, view.now, write).await);
        }
        for update in view.updates.iter().take_while(|_| in_time()) {
            let name = &update.registration.name;
            let updated = update_registration(client, update).await;
            if updated.is_ok() {
                tracing::info!(registration = name, "Gatepost's registration is brought up to date");
            }
            result = result.and(updated);
        }
        for change in plan.finalizers.iter().take_while(|_| in_time()) {
            result = result.and(change_finalizer(client, change).await);
        }
        for write in others.iter().take_while(|_| in_time()) {
            result = result.and(self.write(client, view.now, write).await);
        }
        let abandoned = self.leadership.abandoned_leases(view.now, &view.leases);
        for name in abandoned.take(MAX_LEASE_DELETIONS).take_while(|_| in_time()) {
            client.delete(&format!("{}/{name}", self.reads.settings.leases())).await?;
        }
        result
    }

    async fn write(&mut self, client: &KubeClient, now: Duration, planned: &Write) -> Result<(), KubeError> {
        match write(client, planned).await? {
            WriteOutcome::Gone => return Ok(()),
            WriteOutcome::Outdated => {}
            WriteOutcome::Refused(why) => {
                for webhook in &planned.outdated {
                    tracing::warn!(entry = %webhook, why, "the apiserver refuses to have our condition there brought up to date");
                }
                let refused = planned.taken.iter().chain(&planned.fenced).chain(&planned.outdated);
                refused.for_each(|key| self.leadership.leader.on_refusal(key, why.clone(), now));
            }
            WriteOutcome::Done => {
                let now = Moment::now(suspended_time).since(self.reads.opened);
                for key in &planned.taken {
                    self.leadership.leader.on_taken(key, now);
                    self.recorder.record(Some(client), key, None, &planned.read.0);
                }
            }
        }
        for (key, reason) in &planned.given_back {
            self.recorder.record(Some(client), key, Some(reason), &planned.read.0);
        }
        Ok(())
    }

    /// Counts the entries that are left to the apiserver, and logs each of them whenever its reason changes.
    fn report_left(&mut self, plan: &Plan) {
        let mut left = [[0; Reason::WORDS.len()]; 2];
        let present: BTreeSet<_> = plan.decisions.iter().map(|(key, _)| key).collect();
        self.logged_reasons.retain(|key, _| present.contains(key));
        for (key, decision) in &plan.decisions {
            let left = &mut left[usize::from(key.kind.is_binding())];
            let (Decision::Leave(reason) | Decision::Fence(reason)) = decision else {
                self.logged_reasons.remove(key);
                continue;
            };
            let word = reason.word();
            if let Some(count) = Reason::WORDS.iter().position(|one| *one == word).and_then(|at| left.get_mut(at)) {
                *count += 1;
            }
            let news = self.logged_reasons.insert(key.clone(), word) != Some(word);
            if news && !matches!(reason, Reason::NotWanted | Reason::Released) {
                tracing::warn!(entry = %key, %reason, "left to the apiserver");
            }
        }
        let drops = self.leadership.leader.drops;
        self.sidecar.metrics().update(|figures| (figures.left, figures.drops) = (Some(left), drops));
    }

    /// Counts taken entries, and adds up the time in which both the apiserver and this replica may call an entry.
    fn count(&mut self, view: &AdoptionView, in_force: &BTreeSet<String>) {
        let mut taken = [TakenEntries::default(); 2];
        for seen in view.seen.iter().filter(|seen| seen.standing.carries) {
            let of_kind = &mut taken[usize::from(seen.standing.key.kind.is_binding())];
            let is_used = in_force.contains(&seen.standing.id) && !seen.unsent;
            *(if is_used { &mut of_kind.used } else { &mut of_kind.unused }) += 1;
        }
        let now = Instant::now();
        let both = view.calls.entries.iter().filter(|webhook| webhook.cause != Cause::Carries);
        let both: BTreeSet<_> = both.map(|webhook| &webhook.id).filter(|id| in_force.contains(*id)).cloned().collect();
        let elapsed = now - self.last_read.replace(now).unwrap_or(now);
        let overlap = elapsed.saturating_mul(u32::try_from(both.len()).unwrap_or(u32::MAX));
        self.overlapping.update(&both, now);
        let longest = self.overlapping.0.values().map(|since| now - *since).max().unwrap_or_default();
        self.sidecar.metrics().update(|figures| {
            figures.taken = Some(taken);
            figures.overlap = figures.overlap.saturating_add(overlap);
            figures.longest_overlap = figures.longest_overlap.max(longest);
        });
    }

    /// Records that this replica gave an entry back before it served requests.
    async fn record_given_back(&mut self, UnservedEntry { key, uid, reason, .. }: &UnservedEntry) {
        let client = timeout(WRITE_START_LIMIT, self.connection.client()).await.ok().and_then(Result::ok);
        self.recorder.record(client.as_ref(), key, Some(reason), uid);
    }

    /// Returns the apiserver's version if it does not support match conditions.
    async fn unsupported(&mut self, client: &KubeClient) -> Result<Option<String>, KubeError> {
        if let Some((at, known)) = &self.version
            && at.elapsed() < VERSION_INTERVAL
        {
            return Ok(known.clone());
        }
        let known = version_without_conditions(&client.get("/version").await?);
        self.version = Some((Instant::now(), known.clone()));
        Ok(known)
    }

    async fn delete_lease(&self, client: &KubeClient) -> Result<(), KubeError> {
        client.delete(&self.reads.settings.replica_lease(&self.reads.holder)).await.map(drop)
    }

    /// Releases the leader's lease if this replica holds it, and deletes this replica's lease.
    pub async fn leave(&mut self) {
        let leaving = async {
            let (client, settings) = (self.connection.client().await?, &self.reads.settings);
            let leases = settings.read_leases(&client).await?;
            let leader = leases.iter().find(|lease| lease.is_leader());
            if let Some(leader) = leader.filter(|leader| leader.holder == self.reads.holder) {
                // If the release fails, the next leader waits until the lease has expired.
                let _ = release_lease(&client, &settings.leader_lease(), &leader.version).await;
            }
            self.delete_lease(&client).await
        };
        if let Ok(Err(error)) = timeout(LEAVE_TIMEOUT, leaving).await {
            tracing::debug!(%error, "cannot delete this replica's lease; it runs out by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CalledEntry, EntryKind};

    #[test]
    fn webhook_is_in_place_only_in_its_newest_state_and_at_its_newest_endpoint() {
        let key = EntryKey {
            kind: EntryKind::Webhook(gatepost_api::HookType::Validating),
            configuration: "c".to_owned(),
            name: "w.x.y".to_owned(),
        };
        let in_place = |is_moving, state: &str, former| {
            let (id, state) = (key.id(), state.to_owned());
            let (key, content, cause) = (key.clone(), json!({}), Cause::Carries);
            let entries = vec![CalledEntry { key, id: id.clone(), content, state, cause, at_once: true, former }];
            let plan = CallPlan { entries, ..CallPlan::default() };
            let in_force = InForceIds::of(vec![EntryInForce { id, state: Some("s1".to_owned()), is_moving }], &plan);
            assert_eq!(in_force.called.len(), 1);
            !in_force.in_place.is_empty()
        };
        assert!(in_place(false, "s1", false));
        assert!(!in_place(false, "s1", true), "its newest state cannot be served here");
        assert!(!in_place(false, "s2", false), "its newest state is held back");
        assert!(!in_place(true, "s1", false), "the endpoint that it moves to has passed no probe");
        let unknown = EntryInForce { id: key.id(), state: None, is_moving: false };
        let InForceIds { called, in_place } = InForceIds::of(vec![unknown], &CallPlan::default());
        assert_eq!((called.len(), in_place.len()), (1, 0), "no read has asked for it");
    }

    #[test]
    fn displaced_webhook_is_reliable_for_a_moment() {
        let (mut displaced, began) = (StateStarts::default(), Instant::now());
        let mut reliable = |milliseconds, called: &[&str], in_place: &[&str]| {
            let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let in_force = InForceIds { called: set(called), in_place: set(in_place) };
            let reliable = in_force.reliable(&mut displaced, began + Duration::from_millis(milliseconds));
            reliable.into_iter().collect::<String>()
        };
        assert_eq!(reliable(0, &["a", "b"], &["a", "b"]), "ab");
        assert_eq!(reliable(1000, &["a", "b"], &["a"]), "ab");
        assert_eq!(reliable(2999, &["a", "b"], &["a"]), "ab");
        assert_eq!(reliable(3000, &["a", "b"], &["a"]), "a");
        assert_eq!(reliable(4000, &["a", "b"], &["a", "b"]), "ab");
        assert_eq!(reliable(5000, &["a", "b"], &["a"]), "ab", "anew");
        assert_eq!(reliable(6000, &["a"], &["a"]), "a");
    }
}
