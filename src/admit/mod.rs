//! The story of one request.

mod access;
mod ahead;
mod annotations;
mod attempt;
mod audit_line;
mod bypass_decision;
mod call_record;
mod caller;
pub mod combine;
mod conditions;
pub mod decider;
mod decode;
mod encoded;
mod freshness;
pub mod initialize;
mod lookup;
pub mod mutate;
pub mod outcome;
mod patched;
pub mod read_policy;
mod round;
mod select;
mod status;
mod trace;
mod unasked;
mod validate;
mod warnings;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tracing::Instrument as _;

use crate::{
    live::{Authorizer, Current, Discovery, Generation, LiveHook, Namespaces, discovery::DiscoveryView},
    memory::MemoryBudget,
    model::{HookType, Phase, Review, StatusInfo, Verdict, verdict},
    snapshot::{HookSet, Matched},
    telemetry::{Audit, Metrics, RequestOutcome},
};
use access::Access;
pub use ahead::Speculation;
use audit_line::Calls;
use bypass_decision::BypassDecision;
pub use caller::{Caller, OtherVersions};
use combine::{Combined, Dropped};
use conditions::Judge;
use decider::Decider;
use initialize::Initialized;
use lookup::{Found, Lookup, LookupError};
use mutate::{HookTurn, Mutation};
use outcome::Outcome;
use select::{Role, Selected, Selection};
use status::StatusError;
use validate::{Validation, validate};

/// Reasons that a rejection gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// The first denial or closed failure answers at once and cancels the calls still running.
    #[default]
    First,
    /// The first one, and those of the hooks that answer within so long after it, so that their warnings are kept.
    Within(Duration),
    /// Every hook is waited for and every reason reported.
    All,
}

/// Everything `decide` needs that outlives one request.
#[derive(Debug)]
pub struct Gate {
    /// Generation in force.
    pub current: Arc<Current>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Reasons that a rejection gives.
    pub reasons: Reasons,
    /// Are the patches of mutating hooks put into audit annotations, as kube-apiserver does at the level Request?
    pub patch_annotations: bool,
    /// Default mode of asking mutating hooks.
    pub speculation: Speculation,
    /// Memory budget that patched objects are reserved in.
    pub memory: Arc<MemoryBudget>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Resources and versions that the cluster serves.
    pub discovery: Option<Arc<Discovery>>,
    /// The authorizer of the cluster, for conditions that ask it.
    pub authorizer: Option<Arc<Authorizer>>,
}

/// Decides one review, in one generation from beginning to end.
///
/// Every way out is a verdict: a denial, a closed failure and a refusal of our own differ in their status, and none of
/// them can be mistaken for "could not ask" by the caller's failure policy.
pub async fn decide(gate: &Gate, review: &Review, caller: &Caller) -> Verdict {
    let began = now();
    // Asked before the generation is taken, which is then at least as new as what was asked about.
    let age = gate.current.age(began);
    let generation = &*gate.current.enter();
    let bypass = &BypassDecision::of(generation, gate.current.break_glass().open(began), review);
    let access = &Access::new(gate.authorizer.as_deref());
    let case = Case { gate, review, caller, began, age, generation, bypass, access };
    case.decide().instrument(trace::review(review, generation)).await
}

/// tokio's clock, which tests can pause. It decides the age of the configuration and the time left; the calls of a
/// round (`round`) are timed by the system's monotonic clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// One review that is being decided.
#[derive(Clone, Copy)]
struct Case<'a> {
    gate: &'a Gate,
    review: &'a Review,
    caller: &'a Caller,
    began: Instant,
    /// Age of the configuration when the decision began.
    age: Option<Duration>,
    generation: &'a Generation,
    bypass: &'a BypassDecision<'a>,
    /// Decided access checks: those of one phase hold in the next.
    access: &'a Access<'a>,
}

impl<'a> Case<'a> {
    /// The story of one review: bypass, freshness, mutating phase, initialization, validating phase, verdict.
    async fn decide(self) -> Verdict {
        let Self { review, caller, generation, bypass, .. } = self;
        let skips_all = bypass.skips_all();
        if skips_all && !caller.stores_unfinished {
            return self.conclude(Calls::default(), Verdict::default(), self.unasked());
        }
        if !skips_all && let Some((refusal, how)) = freshness::refusal(self) {
            return self.refuse(refusal, how);
        }
        let before = if initialize::finds_a_list(self) { Box::pin(initialize::before(self)).await } else { Ok(None) };
        let before = match before {
            Err(refusal) if !skips_all => return self.refuse(*refusal, RequestOutcome::Failed),
            before => before,
        };
        // A change of an unfinished object is part of its CREATE: the hooks of that are asked about what becomes of it.
        let updates_unfinished = matches!(&before, Ok(Some(field)) if field.is_unfinished());
        let hooks = !skips_all && !updates_unfinished;
        let mutation = match caller.phase {
            // In a box: most requests have no such phase, and need no room for it.
            Phase::Mutate | Phase::Review if hooks && generation.snapshot.has(HookType::Mutating) => {
                Box::pin(mutate::mutate(self)).await
            }
            _ => Mutation::default(),
        };
        let initialized = match caller.phase {
            Phase::Mutate | Phase::Review if initialize::concerns(self) && !mutation.rejects() => {
                Box::pin(initialize::initialize(self, mutation.patched.clone(), before)).await
            }
            Phase::Validate if initialize::is_guarded(self) => Box::pin(initialize::guard(self)).await,
            _ => Initialized::default(),
        };
        let validation = match caller.phase {
            // Hooks of a CREATE are asked with its review once it is initialized, and so see the object that becomes
            // visible.
            Phase::Validate | Phase::Review
                if hooks && !mutation.rejects() && initialized.refusal.is_none() && !initialized.unfinished =>
            {
                let changed = initialized.patched.as_ref().map(|patched| &patched.review);
                validate(self, changed.or(mutation.review()).unwrap_or(review)).await
            }
            _ => Validation::default(),
        };
        self.answer(mutation, initialized, validation)
    }

    /// Outcome of a request that no hook is asked about.
    fn unasked(&self) -> RequestOutcome {
        if self.bypass.is_bypass() { RequestOutcome::Bypassed } else { RequestOutcome::Allowed }
    }

    /// The labels that selectors look at, of a review about an object; `found`: of its namespace, as it was found
    /// before.
    fn lookup<'r>(&self, review: &'r Review, found: Option<Found>) -> Lookup<'r>
    where
        'a: 'r,
    {
        let Self { gate, caller, began, generation, access, .. } = *self;
        Lookup::new(generation, gate.namespaces.as_deref(), review, caller, began, access).with(found)
    }

    /// The hooks of that type whose rules mean this request.
    fn matching(&self, hook_type: HookType) -> HookSet {
        let Self { gate, review, caller, generation, bypass, .. } = *self;
        if !generation.snapshot.has(hook_type) {
            return HookSet::new();
        }
        let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
        let served = looked.as_ref().map(DiscoveryView::served);
        let mut matching = Selection { generation, bypass, review, caller, served }.matching(hook_type);
        if let Some(segment) = caller.segment.filter(|_| hook_type == HookType::Mutating) {
            let snapshot = &generation.snapshot;
            matching
                .retain(|matched| snapshot.segment(matched.hook).is_none_or(|own| segment.asks(own.number, own.of)));
        }
        matching
    }

    /// The place of one hook in this request. Waits as [`Case::selected`] does, and has found out together what those
    /// `behind` it will need as well; `behind`: `None` where nothing is to be waited for, and then the place may be
    /// `None`.
    async fn role(
        self,
        review: &Review,
        lookup: &mut Lookup<'_>,
        matched: Matched,
        behind: Option<&[Matched]>,
    ) -> Result<Option<Role<'a>>, StatusError> {
        let Self { gate, caller, generation, bypass, .. } = self;
        let mut found = false;
        loop {
            let role = {
                let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
                let served = looked.as_ref().map(DiscoveryView::served);
                let judge = Judge::new(&lookup.conditions);
                let selection = Selection { generation, bypass, review, caller, served };
                let role = selection.role(lookup, &judge, matched);
                if lookup.conditions.has_slow() {
                    behind.unwrap_or_default().iter().for_each(|next| selection.prepare(lookup, &judge, *next));
                }
                role
            };
            if lookup.conditions.has_slow() {
                match behind {
                    None => return Ok(None),
                    Some(_) => lookup.conditions.evaluate().await,
                }
                continue;
            }
            match role {
                Ok(role) => return Ok(Some(role)),
                Err(LookupError::Refused(refusal)) => return Err(refusal),
                Err(LookupError::Unknown(_) | LookupError::Large | LookupError::Slow) if behind.is_none() => {
                    return Ok(None);
                }
                Err(LookupError::Large) => lookup.read().await,
                Err(LookupError::Slow) => lookup.conditions.evaluate().await,
                Err(LookupError::Unknown(namespace)) if found => {
                    return Err(Box::new(status::namespace_not_found(&namespace)));
                }
                Err(LookupError::Unknown(namespace)) => {
                    found = true;
                    lookup.find(&namespace).await;
                }
            }
        }
    }

    /// The validating hooks this request is for. Waits only for a namespace, or a resource, that is not known
    /// yet, for large objects to be read, and for conditions that take long.
    async fn selected(self, review: &Review) -> Result<Selected<'a>, StatusError> {
        let Self { gate, caller, generation, bypass, .. } = self;
        let mut lookup = self.lookup(review, None);
        let select = |lookup: &Lookup<'_>| {
            let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
            let served = looked.as_ref().map(DiscoveryView::served);
            Selection { generation, bypass, review, caller, served }.validating(lookup)
        };
        // Twice at most: for a namespace, and for a resource, that the cluster has just got.
        let (mut found, mut discovered) = (false, false);
        loop {
            match select(&lookup) {
                Ok(selected) if selected.undiscovered && !discovered => self.discovered().await,
                Ok(selected) => {
                    selected.count_unmet();
                    return Ok(selected);
                }
                Err(LookupError::Refused(refusal)) => return Err(refusal),
                Err(LookupError::Large) => {
                    lookup.read().await;
                    continue;
                }
                Err(LookupError::Slow) => {
                    lookup.conditions.evaluate().await;
                    continue;
                }
                Err(LookupError::Unknown(namespace)) if found => {
                    return Err(Box::new(status::namespace_not_found(&namespace)));
                }
                Err(LookupError::Unknown(namespace)) => {
                    found = true;
                    lookup.find(&namespace).await;
                    continue;
                }
            }
            discovered = true;
        }
    }

    /// Has what the cluster serves read anew, within the request's time.
    async fn discovered(self) {
        /// An apiserver that takes longer is not waited for: hooks that may mean the request then fail their call.
        const LONGEST: Duration = Duration::from_secs(3);
        let Some(discovery) = &self.gate.discovery else { return };
        let until = self.caller.deadline.instant().min(now() + LONGEST);
        let _ = tokio::time::timeout_at(until.into(), discovery.refresh(now())).await;
    }

    fn refuse(self, refusal: StatusInfo, how: RequestOutcome) -> Verdict {
        self.conclude(Calls::default(), Verdict { refusal: Some(refusal), ..Verdict::default() }, how)
    }

    /// The verdict of all phases.
    fn answer(self, mutation: Mutation<'a>, initialized: Initialized, validation: Validation<'a>) -> Verdict {
        let patch = mutation.patch();
        let Mutation { turns, asked, probing, broken, unasked, refusal, .. } = mutation;
        let Validation { selected, outcomes, refusal: refused } = validation;
        if broken || selected.broken {
            self.gate.metrics.record_break_glass();
        }
        probing.iter().chain(&selected.probing).for_each(|live| live.metrics.passed_unasked());
        let probing = [probing, selected.probing]
            .map(|hooks| -> SmallVec<[Decider<'_>; 2]> { hooks.into_iter().map(Decider::from).collect() });
        let probing = [&*probing[0], &*probing[1]];
        let Combined { mut verdict, dropped } =
            combine::combine(&turns, &outcomes, probing, self.gate.patch_annotations);
        let live = |index| asked.iter().copied().chain(selected.asked.iter().map(|asked| asked.live)).nth(index);
        report(&dropped, live);
        let Initialized { runs, patched, refusal: not_initialized, denied, pending, .. } = initialized;
        initialize::report(&runs, pending, &mut verdict);
        if let Some(refusal) = refusal.or(not_initialized).or(refused) {
            verdict.refusal = Some(*refusal);
        }
        if verdict.allowed() {
            verdict.patch = patched.map_or(patch, |patched| patched.difference.clone());
        }
        let how = match how_it_ended(&turns, &outcomes, denied, &verdict) {
            RequestOutcome::Allowed if self.bypass.skips_all() => self.unasked(),
            how => how,
        };
        self.conclude(Calls { turns: &turns, unasked: Some(&unasked), runs: &runs, outcomes: &outcomes }, verdict, how)
    }

    /// The verdict with the name of the state that decided it; one metrics record and one audit record. Neither waits.
    fn conclude(self, calls: Calls<'_>, mut verdict: Verdict, how: RequestOutcome) -> Verdict {
        let Self { gate, review, caller, began, age, generation, bypass, .. } = self;
        bypass.annotate(&gate.metrics, &mut verdict);
        if generation.number > 0 {
            // A hook by our own name does not get to say it.
            verdict.audit_annotations.retain(|(key, _)| key != verdict::REVISION);
            verdict.audit_annotations.push((verdict::REVISION.to_owned(), generation.revision.to_string()));
        }
        let took = now().saturating_duration_since(began);
        gate.metrics.request(caller.worker, how, took);
        if gate.audit.enabled() {
            let said = gate.audit.has_hook_messages();
            let whose = (review, caller.audit_id.as_deref());
            gate.audit.push(audit_line::audit_line(whose, generation, bypass, age, calls, &verdict, took, said));
        }
        verdict
    }
}

/// Every annotation that is left out is counted, and one line a second is logged for each hook.
fn report<'a>(dropped: &[Dropped], live: impl Fn(usize) -> Option<&'a LiveHook>) {
    for Dropped { outcome, cause, count } in dropped {
        let Some(live) = live(*outcome) else { continue };
        live.metrics.annotations_dropped(*cause, *count as u64);
        if let Some(held_back) = live.metrics.may_log_dropped() {
            let cause = cause.as_str();
            tracing::warn!(hook = %live.hook.name, cause, count, held_back, "dropped audit annotations of an answer");
        }
    }
}

fn how_it_ended(turns: &[HookTurn<'_>], outcomes: &[Outcome<'_>], denied: bool, verdict: &Verdict) -> RequestOutcome {
    let mut all = turns.iter().map(|turn| &turn.outcome).chain(outcomes);
    if verdict.allowed() {
        RequestOutcome::Allowed
    } else if denied || all.any(Outcome::is_denial) {
        RequestOutcome::Denied
    } else {
        RequestOutcome::Failed
    }
}
