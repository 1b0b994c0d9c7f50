//! Health of this replica, as it reports it. Each part is written by the feature that it describes.
//!
//! A fault keeps this replica from being called, its hooks and initializers from being called, or the initializers from
//! acting. Failed calls of hooks are no faults; they are reported with the hooks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use super::{
    break_glass::BreakGlassDocuments,
    configuration_status::{ConfigurationStatus, Latest},
    current::Current,
    generation::Generation,
};
use crate::telemetry::{Attendance, RecentCallFailures};
use gatepost_api::{
    FailurePolicy,
    schema::status::{ReplicaFault, ReplicaFaultKind},
};
use gatepost_initializers::desk::NameState;
use gatepost_replicas::time;
use gatepost_tls::ServerTls;

/// Health of this replica.
#[derive(Debug)]
pub struct ReplicaHealth {
    /// Generation in force, and its freshness.
    pub current: Arc<Current>,
    /// Status of the configuration besides the generation in force.
    pub status: Arc<ConfigurationStatus>,
    /// Break-glass documents, regardless of the configuration in force.
    pub break_glass: Arc<BreakGlassDocuments>,
    /// Last comparison of the registration with the configuration in force; empty if the registration is not watched.
    pub registration: Arc<Latest<RegistrationState>>,
    /// TLS configuration for callers, and whether all callers need it; empty without TLS.
    pub tls: OnceLock<(Arc<ServerTls>, bool)>,
    stopping: AtomicBool,
}

impl ReplicaHealth {
    /// Creates the health of a replica with `current` and nothing else to report.
    pub fn new(current: Arc<Current>) -> Self {
        Self::of(current, Arc::default(), Arc::default())
    }

    /// Creates the health of a replica with these parts.
    pub fn of(current: Arc<Current>, status: Arc<ConfigurationStatus>, break_glass: Arc<BreakGlassDocuments>) -> Self {
        Self {
            current,
            status,
            break_glass,
            registration: Arc::default(),
            tls: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Records that the process is about to end: it is no longer ready, but still answers requests.
    pub fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns true after [`ReplicaHealth::begin_stopping`].
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns true if no caller can connect, because the certificate in force is not valid.
    pub fn is_unreachable(&self, clock: SystemTime) -> bool {
        self.tls.get().is_some_and(|(tls, all)| *all && tls.certificate_fault(clock).is_some())
    }

    /// Returns the present faults, the worst kind first.
    pub fn faults(&self, (now, clock): (Instant, SystemTime)) -> Vec<ReplicaFault> {
        let generation = self.current.load();
        let fault = |kind, what| ReplicaFault { kind, what };
        let certificate = self.tls.get().and_then(|(tls, _)| tls.certificate_fault(clock));
        let certificate = certificate.map(|why| format!("the serving certificate {why}: callers reject it; renew it"));
        let mut faults: Vec<_> =
            certificate.map(|what| fault(ReplicaFaultKind::Certificate, what)).into_iter().collect();
        let registration = self.registration.get().and_then(|state| unregistered(&state, now));
        faults.extend(registration.map(|what| fault(ReplicaFaultKind::Registration, what)));
        let awaited = self.status.awaited_params.get();
        let bindings = awaited.iter().flat_map(|awaited| &awaited.bindings);
        faults.extend(bindings.map(|binding| fault(ReplicaFaultKind::Params, binding.to_string())));
        let mut initializers: Vec<_> = attendance(&self.current, now)
            .into_iter()
            .filter_map(|one| Some((one.failure_policy, initializer(&one, &generation, (now, clock))?)))
            .collect();
        initializers.sort_by_key(|(policy, _)| *policy == FailurePolicy::Ignore);
        faults.extend(initializers.into_iter().map(|(_, what)| fault(ReplicaFaultKind::Initializer, what)));
        faults
    }
}

/// Age from which the last comparison of a registration counts as unknown.
const TOO_OLD_AFTER: Duration = Duration::from_secs(5 * 60);

/// Last comparison of the registration with the configuration, and the error of the last read.
#[derive(Clone, Debug)]
pub struct RegistrationState {
    /// Name of the registration.
    pub name: Arc<str>,
    /// Lines for hooks, and for resources with initializers, whose requests are not all sent, and the time of the
    /// comparison; `None` before the first one.
    pub compared: Option<(Arc<BTreeSet<String>>, Instant)>,
    /// Error of the last read of the registration; `None` if it was read.
    pub failure: Option<String>,
}

impl RegistrationState {
    /// Returns the lines of the last comparison; `None` if there was no recent one.
    pub fn uncovered(&self, now: Instant) -> Option<&BTreeSet<String>> {
        let (lines, at) = self.compared.as_ref()?;
        (now.saturating_duration_since(*at) < TOO_OLD_AFTER).then_some(lines)
    }
}

/// Maximum number of hooks that one line names.
const MAX_NAMED_HOOKS: usize = 5;

fn unregistered(state: &RegistrationState, now: Instant) -> Option<String> {
    let name = &state.name;
    let Some(lines) = state.uncovered(now) else {
        return Some(format!("{name} cannot be read: {}", state.failure.as_ref()?));
    };
    if lines.is_empty() {
        return None;
    }
    let some = lines.iter().take(MAX_NAMED_HOOKS).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = lines.len().saturating_sub(MAX_NAMED_HOOKS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(format!(
        "{name} does not send all requests that are to be seen, and they pass unseen: {some}{more}; run gatepost register \
         --config PATH and apply what it prints"
    ))
}

/// Returns the fault of an initializer: it has no instance, or its instances fail.
fn initializer(one: &Attendance, generation: &Generation, (now, clock): (Instant, SystemTime)) -> Option<String> {
    // A new name is not in rotation before its first instance attaches.
    let refuses = one.failure_policy != FailurePolicy::Ignore && one.proven;
    let means = if refuses { "new objects are refused" } else { "new objects are created without it" };
    let name = &one.name;
    if let Some(vacant) = one.unattended {
        let since = time(clock.checked_sub(vacant).unwrap_or(clock));
        let how = if one.never_attached { "never attached: " } else { "" };
        return Some(format!("{name}: {how}no instance is attached since {since}; {means}"));
    }
    let failures = generation.initializers.get(&one.name)?.recent_failures(now)?;
    if failures.has_recovered() {
        return None;
    }
    let RecentCallFailures { failed, calls, over, last, .. } = failures;
    let over = humantime::format_duration(Duration::from_secs(over.as_secs()));
    let last = last.map(|last| format!(", last at {}", time(last.at))).unwrap_or_default();
    let instances = one.instances;
    Some(format!(
        "{name}: hangs or fails: {failed} of {calls} objects in the last {over} got no usable answer in time{last}; \
         attached instances: {instances}; {means}"
    ))
}

/// Returns the attendance of each configured initializer with `attach`, by name.
pub fn attendance(current: &Current, now: Instant) -> Vec<Attendance> {
    let generation = current.load();
    let mut configured = BTreeMap::<&Arc<str>, FailurePolicy>::new();
    let all = generation.snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
    for one in all.filter(|one| one.attach.is_some()) {
        let policy = configured.entry(&one.name).or_insert(one.failure_policy);
        if *policy == FailurePolicy::Ignore {
            *policy = one.failure_policy;
        }
    }
    if configured.is_empty() {
        return Vec::new();
    }
    let (names, began) = (current.hub().desk(|desk| desk.names()), current.hub().started);
    let states: HashMap<&str, &NameState> = names.iter().map(|state| (&*state.name, state)).collect();
    let one = |(name, failure_policy): (&Arc<str>, FailurePolicy)| {
        let state = states.get(&**name);
        let since = |at: Instant| now.saturating_duration_since(at);
        Attendance {
            name: Arc::clone(name),
            failure_policy,
            instances: state.map_or(0, |state| state.instances),
            holds: state.map_or(0, |state| state.queued + state.assigned),
            oldest: state.and_then(|state| state.oldest).map(since),
            unattended: state.map_or(Some(began), |state| state.vacant_since).map(since),
            proven: state.is_none_or(|state| state.proven),
            never_attached: state.is_none_or(|state| !state.ever_attached),
        }
    };
    configured.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{InitializerOutcome, Metrics};
    use gatepost_config::{SourceFile, load};

    fn configured(metrics: &Metrics) -> ReplicaHealth {
        let one = |name: &str, policy: &str| {
            let digest = "0".repeat(64);
            format!("  - {{name: {name}, failurePolicy: {policy}, attach: {{tokenSha256: ['{digest}']}}}}\n")
        };
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
             resourceInitializers:\n- resource: pods\n  initializers:\n{}{}",
            one("a.example.com", "Ignore"),
            one("b.example.com", "Fail"),
        );
        let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
        let snapshot = load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let current = Current::new(Instant::now());
        current.publish(Arc::new(Generation::of(Arc::new(snapshot), metrics)));
        ReplicaHealth::new(Arc::new(current))
    }

    fn faults(health: &ReplicaHealth) -> Vec<String> {
        let at = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600));
        health.faults(at).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_initializer_that_was_never_attached_or_hangs_is_a_fault() {
        let metrics = Metrics::new(1);
        let health = configured(&metrics);
        let found = faults(&health);
        assert!(
            matches!(&*found, [fail, ignore]
                if fail.starts_with("INITIALIZER b.example.com: never attached: no instance is attached since")
                    && fail.ends_with("new objects are refused")
                    && ignore.starts_with("INITIALIZER a.example.com: never attached: ")
                    && ignore.ends_with("new objects are created without it")),
            "{found:?}"
        );
        let names = ["a.example.com", "b.example.com"].map(Arc::<str>::from);
        let attached = names.each_ref().map(|name| health.current.hub().attach(name, 1, Instant::now()).unwrap());
        assert_eq!(faults(&health), [""; 0]);

        let counters = metrics.initializer(&names[1]);
        let record = |outcome| counters.record(0, outcome, Duration::ZERO);
        record(InitializerOutcome::Changed);
        record(InitializerOutcome::FailedClosed);
        record(InitializerOutcome::FailedClosed);
        record(InitializerOutcome::Unchanged);
        let found = faults(&health);
        assert!(
            matches!(&*found, [one] if one.starts_with("INITIALIZER b.example.com: hangs or fails: 2 of 4 objects in")
                && one.ends_with("attached instances: 1; new objects are refused")),
            "{found:?}"
        );
        record(InitializerOutcome::Rejected);
        assert_eq!(faults(&health), [""; 0], "it acts again");

        drop(attached);
        let found = faults(&health);
        assert!(found.len() == 2 && found.iter().all(|one| !one.contains("never")), "{found:?}");
    }

    #[test]
    fn unreadable_or_incomplete_registration_is_a_fault() {
        let health = ReplicaHealth::new(Arc::new(Current::new(Instant::now())));
        let state = |lines: &[&str], failure: Option<&str>| RegistrationState {
            name: "r".into(),
            compared: (failure.is_none())
                .then(|| (Arc::new(lines.iter().map(|line| (*line).to_owned()).collect()), Instant::now())),
            failure: failure.map(str::to_owned),
        };
        health.registration.set(Some(state(&[], None)));
        assert_eq!(faults(&health), [""; 0]);
        health.registration.set(Some(state(&[], Some("no answer"))));
        assert_eq!(faults(&health), ["REGISTRATION r cannot be read: no answer"]);
        health.registration.set(Some(state(&["1", "2", "3", "4", "5", "6", "7"], None)));
        let found = faults(&health);
        assert!(found[0].contains(": 1; 2; 3; 4; 5; and 2 more; run gatepost register"), "{found:?}");
    }

    #[test]
    fn registration_compared_long_ago_is_not_known() {
        let now = Instant::now();
        let mut state = RegistrationState { name: "r".into(), compared: None, failure: None };
        assert_eq!(state.uncovered(now), None);
        let lines = BTreeSet::from(["a".to_owned()]);
        state.compared = Some((Arc::new(lines.clone()), now));
        assert_eq!(state.uncovered(now), Some(&lines));
        assert_eq!(state.uncovered(now + TOO_OLD_AFTER), None);
    }
}
