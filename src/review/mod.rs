//! The story of one request.

mod access;
mod ahead;
mod annotations;
mod attempt;
mod audit_line;
mod bypass_decision;
mod call_record;
mod caller;
mod case;
pub mod combine;
mod conditions;
pub mod decider;
mod decode;
mod encoded;
mod freshness;
mod gate;
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

use smallvec::SmallVec;
use tracing::Instrument as _;

use crate::{
    clock::now,
    live::LiveHook,
    model::{Phase, Review, StatusInfo, Verdict, verdict},
    telemetry::RequestOutcome,
};
use access::Access;
pub use ahead::Speculation;
use audit_line::Calls;
use bypass_decision::BypassDecision;
pub use caller::{Caller, OtherVersions};
use case::Case;
use combine::{Combined, Dropped};
use decider::Decider;
pub use gate::{Gate, Reasons};
use initialize::Initialized;
use mutate::{HookTurn, Mutation};
use outcome::Outcome;
use validate::{Validation, validate};

/// Decides one review, in one generation from beginning to end.
///
/// Every way out is a verdict: a denial, a closed failure and a refusal of our own differ in their status, and none of
/// them can be mistaken for "could not ask" by the caller's failure policy.
pub async fn decide(gate: &Gate, review: &Review, caller: &Caller) -> Verdict {
    let began = now();
    // Asked before the generation is taken, which is then at least as new as what was asked about.
    let age = gate.current.age(began);
    let generation = &*gate.current.enter();
    let bypass = &BypassDecision::of(generation, gate.break_glass.open(began), review);
    let access = &Access::new(gate.authorizer.as_deref());
    let case = Case { gate, review, caller, began, age, generation, bypass, access };
    case.decide().instrument(trace::review(review, generation)).await
}

impl<'a> Case<'a> {
    /// The story of one review: bypass, freshness, mutating phase, initialization, validating phase, verdict.
    async fn decide(self) -> Verdict {
        let Self { review, caller, bypass, .. } = self;
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
            Phase::Mutate | Phase::Review if hooks && let Some(phase) = mutate::mutate(self) => phase.await,
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
