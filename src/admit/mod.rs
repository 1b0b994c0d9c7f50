//! The story of one request.

mod annotations;
mod audit_line;
pub mod combine;
mod conditions;
mod fanout;
mod lookup;
pub mod outcome;
mod passage;
mod select;
mod slot;
mod status;
mod warnings;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    live::{Current, Discovery, Generation, Namespaces, current::STALE_AFTER, discovery::Looked},
    model::{Deadline, Hops, Labels, Phase, Review, StatusInfo, Verdict, verdict},
    telemetry::{Audit, Metrics, RequestOutcome},
};
use lookup::{Held, Lookup};
use outcome::Outcome;
use passage::Passage;
use select::Selected;
use status::Refusal;

/// How many reasons a rejection gives.
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
    /// What is in force.
    pub current: Arc<Current>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// How many reasons a rejection gives.
    pub reasons: Reasons,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// What that cluster serves.
    pub discovery: Option<Arc<Discovery>>,
}

/// What is to become of hooks that want a review's object in a version that it is not in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherVersions {
    /// Their call fails: nobody else will ask them, and they must not be passed over in silence.
    #[default]
    Fail,
    /// They are passed over: the caller asks about each version in a review of its own.
    AskedApart,
}

/// What the front knows of one call besides the review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Which of the service's calls was made.
    pub phase: Phase,
    /// By when the verdict must be there.
    pub deadline: Deadline,
    /// The worker (0..n) on whose thread this runs; it picks the lane to each hook.
    pub worker: usize,
    /// Hooks that want the object in another version.
    pub other_versions: OtherVersions,
    /// The Gateposts that the review has passed through before.
    pub hops: Hops,
    /// Labels of the request's namespace, where the caller sent them.
    pub namespace_labels: Option<Labels>,
    /// The same as they came (base64), passed on to the hooks so that sidecars chain.
    pub namespace_labels_text: Option<Bytes>,
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
    let passage = &Passage::of(generation, gate.current.break_glass().open(began), review);
    let case = Case { gate, review, caller, began, age, generation, passage };

    if passage.asks_nobody() {
        let how = if passage.is_bypass() { RequestOutcome::Bypassed } else { RequestOutcome::Allowed };
        return case.conclude(&[], Verdict::default(), how);
    }
    if age.is_none_or(|age| age >= STALE_AFTER) && !passage.opens_everything() {
        let rejected = age.is_none().then(|| gate.current.rejected()).flatten();
        return case.refuse(status::stale(age, rejected.as_deref()), RequestOutcome::Stale);
    }
    let selected = match case.selected().await {
        Ok(selected) => selected,
        Err(refusal) => return case.refuse(*refusal, RequestOutcome::Failed),
    };
    if selected.broken {
        gate.metrics.let_past_broken_glass();
    }
    let outcomes = if selected.asked.is_empty() {
        Vec::new()
    } else if caller.deadline.left(began).is_zero() && !passage.opens_everything() {
        return case.refuse(status::out_of_time(), RequestOutcome::Failed);
    } else {
        fanout::ask_all(gate, &selected.asked, review, caller).await
    };
    selected.probing.iter().for_each(|live| live.metrics.passed_unasked());
    let verdict = combine::combine(&outcomes, &selected.probing);
    let how = how_it_ended(&outcomes, &verdict);
    case.conclude(&outcomes, verdict, how)
}

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
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
    /// How old the configuration was when it was asked about.
    age: Option<Duration>,
    generation: &'a Generation,
    passage: &'a Passage<'a>,
}

impl<'a> Case<'a> {
    /// The hooks this request is for. Waits only for a namespace, or a resource, that is not known
    /// yet, for large objects to be read, and for conditions that take long.
    async fn selected(self) -> Result<Selected<'a>, Refusal> {
        let Self { gate, review, caller, began, generation, passage, .. } = self;
        let mut lookup = Lookup::new(generation, gate.namespaces.as_deref(), review, caller, began);
        let select = |lookup: &Lookup<'_>| {
            let looked = gate.discovery.as_ref().and_then(|discovery| discovery.look(now()));
            let served = looked.as_ref().and_then(Looked::served);
            select::select(generation, passage, review, caller, lookup, served)
        };
        // Twice at most: for a namespace, and for a resource, that the cluster has just got.
        let (mut found, mut discovered) = (false, false);
        loop {
            match select(&lookup) {
                Ok(selected) if selected.undiscovered && !discovered => self.discovered().await,
                Ok(selected) => return Ok(selected),
                Err(Held::Refused(refusal)) => return Err(refusal),
                Err(Held::Large) => {
                    lookup.read().await;
                    continue;
                }
                Err(Held::Slow) => {
                    lookup.conditions.evaluate().await;
                    continue;
                }
                Err(Held::Unknown(namespace)) if found => {
                    return Err(Box::new(status::namespace_not_found(&namespace)));
                }
                Err(Held::Unknown(namespace)) => {
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
        self.conclude(&[], Verdict { refusal: Some(refusal), ..Verdict::default() }, how)
    }

    /// The verdict with the name of the state that decided it; one metrics record and one audit record. Neither waits.
    fn conclude(self, outcomes: &[Outcome<'_>], mut verdict: Verdict, how: RequestOutcome) -> Verdict {
        let Self { gate, review, caller, began, age, generation, passage } = self;
        passage.tell(&gate.metrics, &mut verdict);
        if generation.number > 0 {
            // A hook by our own name does not get to say it.
            verdict.audit_annotations.retain(|(key, _)| key != verdict::REVISION);
            verdict.audit_annotations.push((verdict::REVISION.to_owned(), generation.revision.to_string()));
        }
        let took = now().saturating_duration_since(began);
        gate.metrics.request(caller.worker, how, took);
        if gate.audit.enabled() {
            let said = gate.audit.has_hook_messages();
            gate.audit.push(audit_line::audit_line(review, generation, passage, age, outcomes, &verdict, took, said));
        }
        verdict
    }
}

fn how_it_ended(outcomes: &[Outcome<'_>], verdict: &Verdict) -> RequestOutcome {
    if verdict.allowed() {
        RequestOutcome::Allowed
    } else if outcomes.iter().any(Outcome::is_denial) {
        RequestOutcome::Denied
    } else {
        RequestOutcome::Failed
    }
}
