//! Mutation: the phase of the hooks that may change the object.
//!
//! Each counts in configuration order, about what those before it have made of the object
//! (`docs/reference/webhook-semantics.md` §12). Most of them change nothing, and then it makes no difference whether
//! they are asked one by one. So those without side effects are asked together, in a round. Answers are taken in order;
//! the first that changes the object ends the round, and the hooks behind it are asked about the new object. N hooks of
//! which P change something take about 1 + P rounds.
//!
//! ```text
//!            ┌──────── the object changed: what follows is about the new one ────────┐
//!            v                                                                       │
//!  next hooks ──> which of them are asked? ──> one round ──> answers, in order ──────┤
//!            ^                                                                       │
//!            └──────── all taken, more hooks ────────────────────────────────────────┘
//! ```
//!
//! Behind the last hook those with `reinvocationPolicy: IfNeeded` that were asked before a change are asked once more
//! (§12.1).

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use smallvec::SmallVec;

pub use super::patched::Change;
use super::{
    ahead::Ahead,
    call_record::{CountedAnyway, record},
    case::Case,
    lookup::Lookup,
    outcome::{Ending, Outcome},
    patched::{Patched, apply},
    round::{self, Until},
    select::{Asked, Role, Unmet},
    status,
    unasked::Unasked,
};
use crate::{
    clock::now,
    live::LiveHook,
    model::{FailureKind, FailurePolicy, HookType, Reinvocation, Review, StatusInfo},
    snapshot::HookSet,
    telemetry::{HookOutcome, RejectionCause},
};

/// One call of a mutating hook that counted.
#[derive(Debug)]
pub struct HookTurn<'a> {
    /// End of its call.
    pub outcome: Outcome<'a>,
    /// 0; 1 where the hook was asked once more.
    pub round: u8,
    /// The hook's place among all mutating hooks of the configuration.
    pub place: usize,
    /// Change that came of the patch it sent.
    pub change: Change,
}

/// Hooks that are asked together.
#[derive(Default)]
struct Batch<'a> {
    asked: SmallVec<[Asked<'a>; 8]>,
    /// Their places in `MutatingPhase::matching`.
    at: SmallVec<[usize; 8]>,
    /// Hooks between them that are still being probed, each with its place.
    probing: SmallVec<[(usize, &'a LiveHook); 2]>,
    /// Hooks between them that their conditions leave out, each with its place.
    unmet: SmallVec<[(usize, Unmet<'a>); 4]>,
    /// The first place at which break-glass leaves a hook out.
    broken: Option<usize>,
}

/// Result of the phase.
#[derive(Debug, Default)]
pub(super) struct Mutation<'a> {
    /// The calls that counted, in order.
    pub(super) turns: Vec<HookTurn<'a>>,
    /// The hooks of these calls.
    pub(super) asked: Vec<&'a LiveHook>,
    /// Hooks that are still being probed; they are only named.
    pub(super) probing: SmallVec<[&'a LiveHook; 2]>,
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    pub(super) broken: bool,
    /// Hooks whose turn did not come in time.
    pub(super) unasked: Unasked<'a>,
    /// The object as it is now, where something changed it. Its room in the memory budget is kept with it.
    pub(super) patched: Option<Arc<Patched>>,
    /// Rejection, where no hook's answer gives one.
    pub(super) refusal: Option<Box<StatusInfo>>,
}

impl Mutation<'_> {
    /// The review about the object as it is now, where something changed it.
    pub(super) fn review(&self) -> Option<&Review> {
        self.patched.as_ref().map(|patched| &patched.review)
    }

    /// One patch that makes of the object as it arrived what it is now.
    pub(super) fn patch(&self) -> Option<Bytes> {
        self.patched.as_ref()?.difference.clone()
    }

    /// Is the request rejected?
    pub(super) fn rejects(&self) -> bool {
        self.refusal.is_some() || self.turns.last().is_some_and(HookTurn::rejects)
    }
}

impl HookTurn<'_> {
    /// Does this alone reject the request?
    pub fn rejects(&self) -> bool {
        self.outcome.rejects() || matches!(self.change, Change::Refused(_))
    }
}

/// The phase, where the rules of a mutating hook mean the request. In a box: most requests have no such phase, and need
/// no room for it.
pub(super) fn mutate<'a>(case: Case<'a>) -> Option<Pin<Box<impl Future<Output = Mutation<'a>>>>> {
    let matching = case.matching(HookType::Mutating);
    (!matching.is_empty()).then(|| Box::pin(run(case, matching)))
}

/// Asks the mutating hooks that this request is for.
async fn run<'a>(case: Case<'a>, matching: HookSet) -> Mutation<'a> {
    let mut phase = MutatingPhase {
        case,
        ahead: Ahead::new(case.gate.speculation, case.review, matching.len()),
        matching,
        next: 0,
        round: 0,
        asked_before: BTreeSet::new(),
        asked_again: BTreeSet::new(),
        discovered: false,
        late: false,
        patched: None,
        mutation: Mutation::default(),
    };
    let (mut found, began) = (None, now());
    while !phase.matching.is_empty() && !phase.mutation.rejects() {
        let patched = phase.patched.take();
        let review = patched.as_ref().map_or(case.review, |patched| &patched.review);
        let mut lookup = case.lookup(review, found.take());
        let changed = phase.about(review, patched.as_ref(), &mut lookup).await;
        found = lookup.into_found();
        let is_over = changed.is_none() && !phase.turn_round();
        phase.patched = changed.or(patched);
        if is_over {
            break;
        }
    }
    case.gate.metrics.mutation(case.caller.worker, now().saturating_duration_since(began));
    let MutatingPhase { patched, mutation, .. } = phase;
    Mutation { patched, ..mutation }
}

/// The phase under way.
struct MutatingPhase<'a> {
    case: Case<'a>,
    /// Calls that are made before it is the hook's turn.
    ahead: Ahead,
    /// The mutating hooks whose rules mean this request.
    matching: HookSet,
    /// The first of these whose turn has not come.
    next: usize,
    /// 0; 1 while hooks are asked once more.
    round: u8,
    /// Hooks that want to be asked once more if something changes the object after them.
    asked_before: BTreeSet<u32>,
    /// Hooks that are asked once more.
    asked_again: BTreeSet<u32>,
    /// Discovery was refreshed for this request.
    discovered: bool,
    /// The request's time ended while a hook was waited for that fails open.
    late: bool,
    /// The object, where something has changed it.
    patched: Option<Arc<Patched>>,
    mutation: Mutation<'a>,
}

impl<'a> MutatingPhase<'a> {
    /// Asks the next hooks about this object, round by round, until all have been asked, the request is rejected, or
    /// one changes the object: then the review about the new one.
    async fn about(
        &mut self,
        review: &Review,
        before: Option<&Arc<Patched>>,
        lookup: &mut Lookup<'_>,
    ) -> Option<Arc<Patched>> {
        loop {
            let batch = self.batch(review, lookup).await?;
            if self.case.caller.deadline.left(now()).is_zero() {
                self.out_of_time(batch, review, lookup).await;
                return None;
            }
            let outcomes = round::ask(&batch.asked, review, self.case.caller, Until::Changed).await;
            let changed = self.take(&batch, outcomes, review, before).await;
            self.adopt(batch);
            if self.late {
                self.out_of_time(Batch::default(), review, lookup).await;
            }
            if changed.is_some() || self.late || self.mutation.rejects() {
                return changed;
            }
        }
    }

    /// The hooks that are asked together next; `None` where no hook is left, or one cannot be decided, which rejects
    /// the request when it is that hook's turn.
    async fn batch(&mut self, review: &Review, lookup: &mut Lookup<'_>) -> Option<Batch<'a>> {
        let (mut batch, mut row) = (Batch::default(), self.ahead.row());
        let mut at = self.next;
        while let Some(matched) = self.matching.get(at).copied() {
            if self.round > 0 && !self.asked_again.contains(&matched.hook) {
                at += 1;
                continue;
            }
            // No hook waits for what is to be found out for one behind it.
            let behind = batch.asked.is_empty().then(|| &self.matching[at + 1..]);
            match self.case.role(review, lookup, matched, behind).await {
                Ok(None) => break,
                Ok(Some(Role::None)) => {}
                Ok(Some(Role::Unmet(unmet))) => batch.unmet.push((at, unmet)),
                Ok(Some(Role::Broken)) => batch.broken = batch.broken.or(Some(at)),
                Ok(Some(Role::Probing(live))) => batch.probing.push((at, live)),
                Ok(Some(Role::Asked(_, true))) if !self.discovered => {
                    if !batch.asked.is_empty() {
                        break;
                    }
                    self.discover(matched.hook).await;
                    (at, batch, row) = (self.next, Batch::default(), self.ahead.row());
                    continue;
                }
                Ok(Some(Role::Asked(asked, _))) => {
                    let (is_first, shares) = (batch.asked.is_empty(), self.ahead.shares(asked.live));
                    let joins = is_first || shares && self.ahead.goes_on(&row);
                    if !joins {
                        break;
                    }
                    self.ahead.join(&mut row, asked.live, is_first);
                    batch.asked.push(asked);
                    batch.at.push(at);
                    if !shares {
                        break;
                    }
                }
                Err(_) if !batch.asked.is_empty() => break,
                Err(refusal) => {
                    lookup.conditions.count_rejection(self.case.generation);
                    self.mutation.refusal = Some(refusal);
                    self.next = at;
                    self.adopt(batch);
                    return None;
                }
            }
            at += 1;
        }
        if batch.asked.is_empty() {
            self.next = at;
            self.adopt(batch);
            return None;
        }
        Some(batch)
    }

    /// Has what the cluster serves read anew, and the hooks matched once more: one is newer than what was known.
    async fn discover(&mut self, hook: u32) {
        self.discovered = true;
        let turn = self.matching.get(self.next).map_or(hook, |matched| matched.hook);
        self.case.discovered().await;
        self.matching = self.case.matching(HookType::Mutating);
        self.next = self.matching.partition_point(|matched| matched.hook < turn);
    }

    /// Names those of a batch that are only named, and counts those that are only counted, as far as it came.
    fn adopt(&mut self, batch: Batch<'a>) {
        batch.unmet.iter().filter(|(at, _)| *at < self.next).for_each(|(_, unmet)| unmet.count());
        self.mutation.broken |= batch.broken.is_some_and(|at| at < self.next);
        for (_, live) in batch.probing.into_iter().filter(|(at, _)| *at < self.next) {
            if !self.mutation.probing.iter().any(|known| std::ptr::eq(*known, live)) {
                self.mutation.probing.push(live);
            }
        }
    }

    /// Takes the answers in order, up to the first that changes the object or rejects the request. Later hooks were
    /// asked about an object that is no more, and are asked again.
    async fn take(
        &mut self,
        batch: &Batch<'a>,
        outcomes: Vec<Outcome<'a>>,
        review: &Review,
        before: Option<&Arc<Patched>>,
    ) -> Option<Arc<Patched>> {
        let mut in_vain = 0;
        let mut changed = None;
        let mut is_over = false;
        for ((at, asked), mut outcome) in batch.at.iter().copied().zip(&batch.asked).zip(outcomes) {
            let Asked { live, unable, opened } = asked;
            is_over |= outcome.is_cancelled();
            // Where a bypass opens every hook, nothing but a "no" ends a request that is out of time.
            let is_no = self.late && outcome.is_denial() && self.case.bypass.opens_everything();
            let is_no = is_no && !self.mutation.rejects();
            if is_over && !is_no {
                if unable.is_none() {
                    in_vain += 1;
                    live.metrics.asked_in_vain();
                    if !outcome.is_cancelled() {
                        live.metrics.record(self.case.caller.worker, HookOutcome::Cancelled, outcome.took);
                    }
                }
                continue;
            }
            self.next = at + 1;
            if self.round == 0 && matches!(outcome.ending, Ending::Answered(_)) {
                self.ahead.learn(live, outcome.patch().is_some());
            }
            let change;
            let counts = CountedAnyway::new(live, self.case.caller, &outcome);
            (change, changed) = apply(&mut outcome, *opened, review, before, self.case).await;
            counts.end();
            record(live, self.case.caller, review, &outcome);
            // Without room (503) or time (504) to apply it, the patch is not at fault.
            if let Change::Refused(refusal) = &change
                && refusal.code == 500
            {
                live.metrics.rejected(review.operation, RejectionCause::PatchRefused, refusal.code);
            }
            let failed_open = outcome.is_failed_open();
            let place = self.case.generation.snapshot.mutating_before(self.matching[at].hook);
            self.mutation.asked.push(live);
            self.mutation.turns.push(HookTurn { outcome, round: self.round, place, change });
            if self.mutation.rejects() {
                changed = None;
                is_over = true;
                continue;
            }
            // Upstream ends the chain here, whoever else has answered.
            if failed_open && self.case.caller.deadline.left(now()).is_zero() {
                self.late = true;
                is_over = true;
                continue;
            }
            if changed.is_some() {
                self.asked_again.append(&mut self.asked_before);
            }
            if live.hook.reinvocation == Reinvocation::IfNeeded {
                self.asked_before.insert(self.matching[at].hook);
            }
            is_over |= changed.is_some();
        }
        self.ahead.spend(in_vain);
        changed
    }

    /// Behind the last hook: are some asked once more?
    fn turn_round(&mut self) -> bool {
        let again = self.round == 0 && !self.asked_again.is_empty() && !self.late && !self.mutation.rejects();
        if again {
            (self.round, self.next) = (1, 0);
        }
        again
    }

    /// The request's time is over. Upstream then ends the request, whatever the failure policies are; each hook whose
    /// turn does not come any more counts as one that has run out of time, and is named. Where a bypass opens every hook, only a "no"
    /// rejects.
    async fn out_of_time(&mut self, first: Batch<'a>, review: &Review, lookup: &mut Lookup<'_>) {
        self.late = true;
        let mut batch = Some(first);
        while let Some(unasked) = batch {
            for Asked { live, opened, .. } in &unasked.asked {
                let opens = *opened || live.hook.failure_policy == FailurePolicy::Ignore;
                let outcome = if opens {
                    HookOutcome::FailedOpen(FailureKind::Timeout)
                } else {
                    HookOutcome::FailedClosed(FailureKind::Timeout)
                };
                live.metrics.record(self.case.caller.worker, outcome, Duration::ZERO);
                self.mutation.unasked.add(&live.hook.name, outcome);
            }
            self.next = unasked.at.last().map_or(self.next, |at| at + 1);
            self.adopt(unasked);
            batch = self.batch(review, lookup).await;
        }
        if !self.case.bypass.opens_everything() {
            let causes = self.mutation.unasked.causes();
            self.mutation.refusal = Some(Box::new(StatusInfo { causes, ..status::out_of_time() }));
        }
    }
}
