//! Readiness: whether callers may use this process. `/readyz` and the gRPC health service share it.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    live::{Current, HookState, LiveHook, Namespaces, ReplicaHealth, attendance},
    review::AdmissionDeps,
    telemetry::{Audit, Reading},
};
use gatepost_base::clock;
use gatepost_config::coverage;

/// Age of the configuration at which a replica reports not ready if callers have other replicas. A shorter outage of
/// all reads, such as an etcd leader election, must not remove every endpoint from the Service.
const STALE_UNREADY_AFTER: Duration = Duration::from_secs(30);

/// Whether callers may use this process, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Callers may use it.
    Ready,
    /// The configuration has never been read.
    NeverRead,
    /// The configuration that was read is invalid.
    Rejected,
    /// The process does not know its username at the apiserver yet, so its own changes would be refused.
    Nameless,
    /// Params of the policies of the first configuration were never read. Returned for 10 s at most.
    ParamsUnread,
    /// The configuration has been stale for a while: every review is refused. Returned only by
    /// `Readiness::among_replicas`.
    Stale,
    /// The serving certificate has expired or is not valid yet, so every caller rejects it.
    Unreachable,
    /// The process shuts down.
    Draining,
}

impl Readiness {
    /// Returns true if callers may use this process.
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }

    /// Returns the present readiness. A stale configuration does not make the process unready: the refusals name the
    /// problem, and another process may have it, too.
    pub fn of(health: &ReplicaHealth) -> Self {
        let current = &health.current;
        if health.is_stopping() {
            Self::Draining
        } else if health.is_unreachable(SystemTime::now()) {
            Self::Unreachable
        } else if current.freshness().age(Instant::now()).is_none() {
            if health.status.rejected.get().is_some() { Self::Rejected } else { Self::NeverRead }
        } else if is_nameless(current) {
            Self::Nameless
        } else if health
            .status
            .awaited_params
            .get()
            .is_some_and(|awaited| awaited.unready_until.is_some_and(|until| clock::now() < until))
        {
            Self::ParamsUnread
        } else {
            Self::Ready
        }
    }

    /// Returns the readiness for callers that have other replicas. A replica that has been stale for a while is
    /// unready, unless removing it from the Service would change the result of requests: see
    /// [`is_needed_while_stale`]. A replica whose break-glass skips every hook is ready without a fresh configuration.
    pub(crate) fn among_replicas(health: &ReplicaHealth) -> Self {
        let (current, now) = (&health.current, Instant::now());
        let is_open = || health.break_glass.open(now).iter().any(|open| open.document.applies_to_all_hooks());
        let is_old = || current.freshness().age(now).is_none_or(|age| age >= STALE_UNREADY_AFTER);
        match Self::of(health) {
            Self::NeverRead | Self::Rejected if is_open() => Self::Ready,
            Self::Ready if is_old() && !is_open() && !is_needed_while_stale(current) => Self::Stale,
            other => other,
        }
    }
}

/// Returns true if objects stored by label need work, but the process does not know its username at the apiserver yet.
fn is_nameless(current: &Current) -> bool {
    current.labelled().awaits_account(Instant::now())
        && current.load().snapshot.initializers().iter().any(|entry| entry.by_label)
}

/// Returns true if this replica must stay in the Service while stale: a bypass rule for every hook still allows
/// requests that fail without endpoints, or requests are rejected here that fail open without endpoints.
fn is_needed_while_stale(current: &Current) -> bool {
    let snapshot = &current.load().snapshot;
    let lets_past = snapshot.bypasses().iter().any(|bypass| bypass.applies_to_all_hooks());
    lets_past || coverage::compared(snapshot).any(|one| !one.is_closed())
}

/// Maximum number of lines about quarantined documents.
const MAX_HELD_LINES: usize = 20;

/// Returns the faults that do not make the process unready, one per line: the rest of `/readyz?verbose`.
pub(crate) fn degradations(health: &ReplicaHealth) -> Vec<String> {
    let current = &health.current;
    let faults = health.faults((Instant::now(), SystemTime::now()));
    let mut lines: Vec<_> = faults.into_iter().map(|fault| fault.to_string()).collect();
    if !current.freshness().is_fresh(Instant::now()) {
        let why = health
            .status
            .failed_read
            .get()
            .map_or_else(|| "no read has ended".to_owned(), |failed| failed.error.clone());
        lines.push(format!("configuration: stale, and requests are refused: {why}"));
    }
    if let Some(rejected) = health.status.rejected.get() {
        let count = rejected.problems.len();
        if rejected.is_whole() {
            let instead = if current.load().number > 0 { "an older one is in force" } else { "there is none in force" };
            lines.push(format!("configuration: the newest is rejected (problems: {count}), {instead}"));
            lines.extend(rejected.problems.first().map(|problem| format!("configuration: {problem}")));
        }
        for held in rejected.quarantined.iter().take(MAX_HELD_LINES) {
            let (document, since) = (&held.document, humantime::format_rfc3339_seconds(held.since));
            lines.push(format!("document {document}: held back since {since}, {}: {}", held.effect(), held.problem));
        }
        if let Some(more) = rejected.quarantined.len().checked_sub(MAX_HELD_LINES).filter(|more| *more > 0) {
            lines.push(format!("configuration: {more} more documents are held back, see /configz"));
        }
    }
    if let Some(state) = health.status.last_good.get() {
        if let Some(in_use) = &state.in_use {
            let written = humantime::format_rfc3339_seconds(in_use.written);
            lines.push(format!("configuration: from the last good one on disk, of {written}, as {}", in_use.why));
        }
        lines.extend(state.failure.iter().map(|why| format!("last good configuration: not kept: {why}")));
        lines.extend(state.refused.iter().map(|why| format!("last good configuration: not used at the start: {why}")));
    }
    for live in &current.load().hooks {
        let (Some(overdue), Some(what)) = (&live.overdue, live.overdue_effect()) else { continue };
        let within = humantime::format_duration(overdue.within);
        let why = overdue.last_failure.as_ref().map_or_else(|| "no probe has ended".to_owned(), ToString::to_string);
        lines.push(format!("hook {}: has passed no probe within {within}; {what}: {why}", live.hook.name));
    }
    lines
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ok",
            Self::NeverRead => "not ready: the configuration has not been read yet",
            Self::Rejected => "not ready: the configuration is rejected, see /configz",
            Self::Nameless => "not ready: the apiserver has not said yet as whom it knows Gatepost",
            Self::ParamsUnread => "not ready: the params of policies have not been read yet",
            Self::Stale => "not ready: the configuration is stale, and requests are refused; see /readyz?verbose",
            Self::Unreachable => "not ready: the serving certificate is not valid now, and callers reject it",
            Self::Draining => "not ready: shutting down",
        })
    }
}

/// Registers the readings of the health with the metrics. By weak references: metrics must keep no configuration alive.
pub(crate) fn observe(deps: &AdmissionDeps, health: &Arc<ReplicaHealth>) {
    fn weak<T: Send + Sync + 'static>(
        of: &Arc<T>,
        read: impl Fn(&T) -> Option<f64> + Send + Sync + 'static,
    ) -> impl Fn() -> Option<f64> + Send + Sync + 'static {
        let of: Weak<T> = Arc::downgrade(of);
        move || of.upgrade().and_then(|of| read(&of))
    }
    let metrics = &deps.metrics;
    let value = |reading, read: fn(&ReplicaHealth) -> Option<f64>| metrics.observe(reading, weak(health, read));
    value(Reading::ConfigAge, |health| health.current.freshness().age(Instant::now()).map(|age| age.as_secs_f64()));
    value(Reading::ConfigGeneration, |health| Some(health.current.load().number as f64));
    value(Reading::IndexFollowers, |health| Some(health.current.rule_index().followers() as f64));
    value(Reading::IndexAcknowledgement, |health| {
        health.current.rule_index().slowest_acknowledgement(clock::now()).map(|slowest| slowest.as_secs_f64())
    });
    value(Reading::ConfigRejected, |health| Some(flag(health.status.rejected.get().is_some())));
    value(Reading::BindingsAwaitingParams, |health| {
        Some(health.status.awaited_params.get().map_or(0, |awaited| awaited.bindings.len()) as f64)
    });
    value(Reading::DocumentsHeldBack, |health| {
        Some(health.status.rejected.get().map_or(0, |rejected| rejected.counts().0) as f64)
    });
    value(Reading::DocumentsLeftOut, |health| {
        Some(health.status.rejected.get().map_or(0, |rejected| rejected.counts().1) as f64)
    });
    value(Reading::ConfigFromLastGood, |health| {
        health.status.last_good.get().map(|state| flag(state.in_use.is_some()))
    });
    value(Reading::LastGoodUnwritten, |health| {
        health.status.last_good.get().map(|state| flag(state.failure.is_some()))
    });
    let hooks = |reading, counts: fn(&LiveHook) -> bool| {
        let count = move |health: &ReplicaHealth| {
            Some(health.current.load().hooks.iter().filter(|live| counts(live)).count() as f64)
        };
        metrics.observe(reading, weak(health, count));
    };
    hooks(Reading::Hooks, |_| true);
    hooks(Reading::HooksActive, |live| HookState::of(live) == HookState::Active);
    hooks(Reading::HooksUnproven, |live| HookState::of(live) == HookState::Unproven);
    hooks(Reading::HooksMoving, |live| HookState::of(live) == HookState::Moving);
    hooks(Reading::HooksProbing, |live| HookState::of(live) == HookState::Probing);
    hooks(Reading::HooksUnasked, |live| !live.rotation.is_called());
    hooks(Reading::HooksOverdue, |live| live.overdue.is_some());
    value(Reading::HooksDraining, |health| {
        Some(health.status.retired().iter().filter(|one| one.is_hook() && one.is_draining()).count() as f64)
    });
    value(Reading::BreakGlassOpen, |health| Some(health.break_glass.open(Instant::now()).len() as f64));
    value(Reading::RegistrationUncovered, |health| {
        Some(health.registration.get()?.uncovered(Instant::now())?.len() as f64)
    });
    if let Some(namespaces) = &deps.namespaces {
        let age = |known: &Namespaces| known.age(Instant::now()).map(|age| age.as_secs_f64());
        metrics.observe(Reading::NamespacesAge, weak(namespaces, age));
        metrics.observe(Reading::Namespaces, weak(namespaces, |known| Some(known.len() as f64)));
    }
    let of = Arc::downgrade(&health.current);
    metrics.observe_attendance(move || {
        of.upgrade().map(|current| attendance(&current, Instant::now())).unwrap_or_default()
    });
    metrics.observe(Reading::AuditLost, weak(&deps.audit, |audit: &Audit| Some(audit.lost() as f64)));
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{
        live::{Generation, Rejection, break_glass::BreakGlassOrigin, configuration_status::AwaitedParams},
        telemetry::Metrics,
    };
    use gatepost_api::{BreakGlass, Revision};
    use gatepost_config::{SourceFile, load};

    fn before(seconds: u64) -> Instant {
        Instant::now().checked_sub(Duration::from_secs(seconds)).expect("a machine that has run for longer")
    }

    /// A configuration with these lists, read so many seconds ago.
    fn read(seconds: u64, lists: &str) -> ReplicaHealth {
        let text = format!(
            r#"{{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration", "metadata": {{"name": "c"}},
            {lists}}}"#
        );
        let file = SourceFile { name: "a.json".into(), bytes: text.into_bytes().into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("sound");
        let current = Current::new(before(seconds));
        current.publish(Arc::new(Generation::of(Arc::new(snapshot), &Metrics::new(1))));
        current.freshness().stamp_awake(before(seconds));
        ReplicaHealth::new(Arc::new(current))
    }

    fn hook(policy: &str) -> String {
        format!(
            r#""externalAdmissionHooks": [{{"name": "h.x", "clientConfig": {{"url": "grpc://127.0.0.1:1"}},
            "failurePolicy": "{policy}", "sideEffects": "None", "rules": [{{"operations": ["*"], "apiGroups": [""],
            "apiVersions": ["v1"], "resources": ["pods"]}}]}}]"#
        )
    }

    fn open(health: &ReplicaHealth, hooks: &[&str]) {
        let break_glass = BreakGlass {
            name: "night".into(),
            opened: SystemTime::now(),
            duration: Duration::from_secs(60),
            reason: "r".into(),
            hooks: hooks.iter().map(|hook| Box::from(*hook)).collect(),
            opened_by: "ann".into(),
        };
        health.break_glass.set_documents(BreakGlassOrigin::File, vec![break_glass], Instant::now(), SystemTime::now());
    }

    #[test]
    fn readiness_among_replicas_ends_after_a_while_of_staleness() {
        for (seconds, ready) in [(0, Readiness::Ready), (20, Readiness::Ready), (31, Readiness::Stale)] {
            let current = read(seconds, &hook("Fail"));
            assert_eq!(Readiness::among_replicas(&current), ready, "{seconds} s");
            assert_eq!(Readiness::of(&current), Readiness::Ready, "{seconds} s");
        }
    }

    #[test]
    fn replica_stays_ready_if_no_endpoint_changes_outcomes() {
        let bypass = |hooks: &str| {
            format!(r#"{}, "bypass": [{{"name": "b", "reason": "r", "users": ["ann"]{hooks}}}]"#, hook("Fail"))
        };
        let initializers = r#""resourceInitializers": [{"resource": "pods", "initializers": [
            {"name": "a", "builtIn": {"labels": {"a": "b"}}}]}]"#;
        for (lists, ready) in [
            (hook("Ignore"), Readiness::Ready),
            (hook("Retry"), Readiness::Stale),
            (initializers.to_owned(), Readiness::Ready),
            (bypass(""), Readiness::Ready),
            (bypass(r#", "effect": "FailOpen""#), Readiness::Ready),
            (bypass(r#", "hooks": ["h.x"]"#), Readiness::Stale),
        ] {
            assert_eq!(Readiness::among_replicas(&read(31, &lists)), ready, "{lists}");
        }
    }

    #[test]
    fn readiness_waits_for_the_initializing_account() {
        let entry = |stored: &str| {
            format!(
                r#""resourceInitializers": [{{"resource": "configmaps"{stored}, "initializers": [
                {{"name": "a", "builtIn": {{"labels": {{"a": "b"}}}}}}]}}]"#
            )
        };
        let [current, other] = [r#", "stored": "Label""#, ""].map(|stored| read(0, &entry(stored)));
        assert_eq!(Readiness::of(&current), Readiness::Ready, "without a cluster it will never know");
        let soon = Instant::now() + Duration::from_secs(600);
        for current in [&current, &other] {
            current.current.labelled().await_account(soon);
        }
        assert_eq!([&current, &other].map(Readiness::of), [Readiness::Nameless, Readiness::Ready]);
        current.current.labelled().await_account(before(1));
        assert_eq!(Readiness::of(&current), Readiness::Ready, "nobody waits for ever");
        current.current.labelled().await_account(soon);
        current.current.labelled().set_account("gatepost");
        assert_eq!(Readiness::among_replicas(&current), Readiness::Ready);
    }

    #[test]
    fn readiness_waits_for_params_and_not_for_ever() {
        let health = read(0, &hook("Fail"));
        for (until, readiness) in [
            (Some(Instant::now() + Duration::from_secs(600)), Readiness::ParamsUnread),
            (Some(before(1)), Readiness::Ready),
            (None, Readiness::Ready),
        ] {
            health.status.awaited_params.set(Some(AwaitedParams { bindings: Vec::new(), unready_until: until }));
            assert_eq!(Readiness::of(&health), readiness);
        }
    }

    #[test]
    fn break_glass_replica_is_ready_without_configuration() {
        let stale = read(31, &hook("Fail"));
        let [never, rejected] = [(); 2].map(|()| ReplicaHealth::new(Arc::new(Current::new(Instant::now()))));
        let (revision, since) = (Revision::Store(1), SystemTime::UNIX_EPOCH);
        rejected.status.rejected.set(Some(Rejection {
            problems: Vec::new(),
            revision,
            since,
            quarantined: Vec::new(),
        }));
        let without = [(&stale, Readiness::Stale), (&never, Readiness::NeverRead), (&rejected, Readiness::Rejected)];
        for (current, closed) in without {
            open(current, &["h.x"]);
            assert_eq!(Readiness::among_replicas(current), closed, "the other hooks are not known");
            open(current, &[]);
            assert_eq!(Readiness::among_replicas(current), Readiness::Ready);
            current.begin_stopping();
            assert_eq!(Readiness::among_replicas(current), Readiness::Draining);
        }
    }
}
