//! Mutation: the phase of the hooks that may change the object.
//!
//! Each counts in configuration order, about what those before it have made of the object
//! (`docs/reference/webhook-semantics.md` §12). Most of them change nothing, and then it makes no difference whether they
//! are asked one by one. So those without side effects are asked together, in a round. Answers are taken in order; the
//! first that changes the object ends the round, and the hooks behind it are asked about the new object. N hooks of which
//! P change something take about 1 + P rounds.
//!
//! ```text
//!            ┌──────── the object changed: what follows is about the new one ────────┐
//!            v                                                                       │
//!  next hooks ──> which of them are asked? ──> one round ──> answers, in order ──────┤
//!            ^                                                                       │
//!            └──────── all taken, more hooks ────────────────────────────────────────┘
//! ```
//!
//! Behind the last hook those with `reinvocationPolicy: IfNeeded` that were asked before a change are asked once more (§12.1).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::timeout_at;

use super::{
    Caller, Case,
    lookup::Lookup,
    now,
    outcome::Outcome,
    round::{self, Until},
    select::{Asked, Role},
    status,
};
use crate::{
    live::LiveHook,
    model::{FailureKind, FailurePolicy, HookType, ProposedPatch, Reinvocation, Review, Rope, StatusInfo},
    offload::{self, LARGE},
    patch::{Document, IdentityField, Limits, Patch},
    snapshot::{HookSet, Matched},
    telemetry::HookOutcome,
    wire::encodings,
};

/// One call of a mutating hook that counted.
#[derive(Debug)]
pub struct Turn<'a> {
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// 0; 1 where the hook was asked once more.
    pub round: u8,
    /// The hook's place among all mutating hooks of the configuration.
    pub place: usize,
    /// Change that came of the patch it sent.
    pub change: Change,
}

/// Change of the object in one turn.
#[derive(Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The patch, which changed it.
    Patched(Bytes),
    /// The patch cannot be applied: the request is rejected, whatever the hook's failure policy.
    Refused(Box<StatusInfo>),
}

/// Hooks that are asked together.
#[derive(Default)]
struct Batch<'a> {
    asked: SmallVec<[Asked<'a>; 8]>,
    /// Their places in `Phase::matching`.
    at: SmallVec<[usize; 8]>,
    /// Hooks between them that are still being probed, each with its place.
    probing: SmallVec<[(usize, &'a LiveHook); 2]>,
    /// The first place at which break-glass leaves a hook out.
    broken: Option<usize>,
}

/// After so many changes of one object, hooks are asked one by one: what is asked in vain stays in bounds.
const MOST_CHANGES_AHEAD: usize = 4;
const MIB: usize = 1 << 20;

/// Result of the phase.
#[derive(Debug, Default)]
pub(super) struct Mutation<'a> {
    /// The calls that counted, in order.
    pub(super) turns: Vec<Turn<'a>>,
    /// The hooks of these calls.
    pub(super) asked: Vec<&'a LiveHook>,
    /// Hooks that are still being probed; they are only named.
    pub(super) probing: SmallVec<[&'a LiveHook; 2]>,
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    pub(super) broken: bool,
    /// The review about the object as it is now, where something changed it.
    pub(super) review: Option<Review>,
    /// One patch that makes of the object as it arrived what it is now.
    pub(super) patch: Option<Bytes>,
    /// The object, where something has changed it.
    pub(super) patched: Option<Arc<Patched>>,
    /// Why the request is rejected, where no hook's answer says so.
    pub(super) refusal: Option<Box<StatusInfo>>,
}

impl Mutation<'_> {
    /// Is the request rejected?
    pub(super) fn rejects(&self) -> bool {
        self.refusal.is_some() || self.turns.last().is_some_and(Turn::rejects)
    }
}

impl Turn<'_> {
    /// Does this alone reject the request?
    pub fn rejects(&self) -> bool {
        self.outcome.rejects() || matches!(self.change, Change::Refused(_))
    }
}

/// Asks the mutating hooks that this request is for.
pub(super) async fn mutate<'a>(case: Case<'a>) -> Mutation<'a> {
    let mut phase = Phase {
        case,
        matching: case.matching(HookType::Mutating),
        next: 0,
        round: 0,
        asked_before: BTreeSet::new(),
        asked_again: BTreeSet::new(),
        changes: 0,
        discovered: false,
        late: false,
        patched: None,
        mutation: Mutation::default(),
    };
    let mut found = None;
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
    let Phase { patched, mutation, .. } = phase;
    match patched {
        Some(patched) => {
            let (review, patch) = (Some(patched.review.clone()), patched.difference.clone());
            Mutation { review, patch, patched: Some(patched), ..mutation }
        }
        None => mutation,
    }
}

/// The phase under way.
struct Phase<'a> {
    case: Case<'a>,
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
    /// How often the object was changed.
    changes: usize,
    /// What the cluster serves was read anew for this request.
    discovered: bool,
    /// The request's time ended while a hook was waited for that fails open.
    late: bool,
    /// The object, where something has changed it.
    patched: Option<Arc<Patched>>,
    mutation: Mutation<'a>,
}

impl<'a> Phase<'a> {
    /// Asks the next hooks about this object, round by round, until all have been asked, the request is rejected, or one
    /// changes the object: then the review about the new one.
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

    /// The hooks that are asked together next; `None` where no hook is left, or one cannot be decided, which rejects the
    /// request when it is that hook's turn.
    async fn batch(&mut self, review: &Review, lookup: &mut Lookup<'_>) -> Option<Batch<'a>> {
        let mut batch = Batch::default();
        let mut at = self.next;
        while let Some(matched) = self.matching.get(at).copied() {
            if self.round > 0 && !self.asked_again.contains(&matched.hook) {
                at += 1;
                continue;
            }
            // No hook waits for what is to be found out for one behind it.
            match self.case.role(review, lookup, matched, batch.asked.is_empty()).await {
                Ok(None) => break,
                Ok(Some(Role::None)) => {}
                Ok(Some(Role::Broken)) => batch.broken = batch.broken.or(Some(at)),
                Ok(Some(Role::Probing(live))) => batch.probing.push((at, live)),
                Ok(Some(Role::Asked(_, true))) if !self.discovered => {
                    if !batch.asked.is_empty() {
                        break;
                    }
                    self.discover(matched.hook).await;
                    (at, batch) = (self.next, Batch::default());
                    continue;
                }
                Ok(Some(Role::Asked(asked, _))) => {
                    let together = self.changes < MOST_CHANGES_AHEAD && may_be_asked_early(&asked, review);
                    if !batch.asked.is_empty() && !together {
                        break;
                    }
                    batch.asked.push(asked);
                    batch.at.push(at);
                    if !together {
                        break;
                    }
                }
                Err(_) if !batch.asked.is_empty() => break,
                Err(refusal) => {
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

    /// Names those of a batch that are only named, as far as it came.
    fn adopt(&mut self, batch: Batch<'a>) {
        self.mutation.broken |= batch.broken.is_some_and(|at| at < self.next);
        for (_, live) in batch.probing.into_iter().filter(|(at, _)| *at < self.next) {
            if !self.mutation.probing.iter().any(|known| std::ptr::eq(*known, live)) {
                self.mutation.probing.push(live);
            }
        }
    }

    /// Takes the answers in order, up to the first that changes the object or rejects the request. What stands behind it
    /// was asked about an object that is no more, and is asked again.
    async fn take(
        &mut self,
        batch: &Batch<'a>,
        outcomes: Vec<Outcome<'a>>,
        review: &Review,
        before: Option<&Arc<Patched>>,
    ) -> Option<Arc<Patched>> {
        for ((at, Asked { live, .. }), outcome) in batch.at.iter().copied().zip(&batch.asked).zip(outcomes) {
            if outcome.is_cancelled() {
                break;
            }
            self.next = at + 1;
            let (change, changed) = apply(&outcome, review, before, self.case.caller).await;
            let failed_open = outcome.is_failed_open();
            let place = self.place(self.matching[at]);
            self.mutation.asked.push(live);
            self.mutation.turns.push(Turn { outcome, round: self.round, place, change });
            if self.mutation.rejects() {
                return None;
            }
            // Upstream ends the chain here, whoever else has answered.
            if failed_open && self.case.caller.deadline.left(now()).is_zero() {
                self.late = true;
                return None;
            }
            if changed.is_some() {
                self.changes += 1;
                self.asked_again.append(&mut self.asked_before);
            }
            if live.hook.reinvocation == Reinvocation::IfNeeded {
                self.asked_before.insert(self.matching[at].hook);
            }
            if changed.is_some() {
                return changed;
            }
        }
        None
    }

    /// Behind the last hook: are some asked once more?
    fn turn_round(&mut self) -> bool {
        let again = self.round == 0 && !self.asked_again.is_empty() && !self.late && !self.mutation.rejects();
        if again {
            (self.round, self.next) = (1, 0);
        }
        again
    }

    /// The request's time is over. Upstream then ends the request, whatever the failure policies are; each hook whose turn
    /// does not come any more counts as one that has run out of time. Where a bypass opens every hook, only a "no" rejects.
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
            }
            self.next = unasked.at.last().map_or(self.next, |at| at + 1);
            self.adopt(unasked);
            batch = self.batch(review, lookup).await;
        }
        if !self.case.bypass.opens_everything() {
            self.mutation.refusal = Some(Box::new(status::out_of_time()));
        }
    }

    fn place(&self, matched: Matched) -> usize {
        let hooks = &self.case.generation.hooks[..matched.hook as usize];
        hooks.iter().filter(|live| live.hook.hook_type == HookType::Mutating).count()
    }
}

/// May it be asked before it is its turn, about an object that may not come to it? Only where a call changes nothing.
fn may_be_asked_early(asked: &Asked<'_>, review: &Review) -> bool {
    asked.live.target.side_effects().none_for(review.dry_run)
}

/// Applies the patch of an answer, within the request's time. The object as it is then, where the patch changed it.
async fn apply(
    outcome: &Outcome<'_>,
    review: &Review,
    before: Option<&Arc<Patched>>,
    caller: &Caller,
) -> (Change, Option<Arc<Patched>>) {
    let Some(ProposedPatch { text, .. }) = outcome.patch() else { return (Change::None, None) };
    // What is gone through: all that the review holds, what patches have opened before, and what this one may copy.
    let held = before.map_or(0, |before| before.document.held() + before.document.rope().len());
    let copies = if text.windows(6).any(|word| word == b"\"copy\"") { 3 * MIB } else { 0 };
    let size = review.bytes.len() + text.len() + held + copies;
    let applied = if size < LARGE {
        patched(review, before, text.clone())
    } else {
        let (review, before, text) = (review.clone(), before.cloned(), text.clone());
        let applying = offload::run(size, move || patched(&review, before.as_ref(), text));
        match timeout_at(caller.deadline.instant().into(), applying).await {
            Ok(applied) => applied,
            Err(_) => return (Change::Refused(Box::new(status::out_of_time())), None),
        }
    };
    match applied {
        Ok(None) => (Change::None, None),
        Ok(Some(changed)) => (Change::Patched(text.clone()), Some(Arc::new(changed))),
        Err(why) => (Change::Refused(Box::new(status::patch_refused(outcome.decider.name, &why))), None),
    }
}

/// An object, and all that patches have made of it.
#[derive(Debug)]
pub(super) struct Patched {
    pub(super) document: Document,
    /// One patch that makes of the object as it arrived what it is now.
    pub(super) difference: Option<Bytes>,
    /// The review about the object as it is now.
    pub(super) review: Review,
}

/// Applies a patch to the object of a review, which is what `before` has made of it, if anything. `None`: nothing changes.
///
/// # Errors
/// Why the patch cannot be applied.
pub(super) fn patched(review: &Review, before: Option<&Arc<Patched>>, patch: Bytes) -> Result<Option<Patched>, String> {
    let patch = Patch::parse(patch).map_err(|error| error.to_string())?;
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(place) = review.object.clone() else {
        return Err("it patches the object, and there is none".to_owned());
    };
    let default = Limits::default();
    // An object that arrived larger may be patched as well, and not grow.
    let limits = Limits { object: default.object.max(place.len()), ..default };
    let document = match before {
        Some(before) => before.document.patched(&patch, limits),
        None => Document::new(Rope::new(review.bytes.shared(place).collect::<Vec<_>>()))
            .and_then(|document| document.patched(&patch, limits)),
    };
    let document = document.map_err(|error| error.to_string())?;
    let known_by = |field: &IdentityField| match field {
        IdentityField::Root | IdentityField::ApiVersion | IdentityField::Kind | IdentityField::Uid => true,
        // A hook may name what the apiserver would find a name for.
        IdentityField::Name => !review.name.is_empty(),
        // The apiserver refuses what does not fit the request.
        IdentityField::Namespace => false,
    };
    if let Some(field) = document.changed_identity().into_iter().find(known_by) {
        return Err(format!("it changes {field}, which identifies the object"));
    }
    let difference = document.difference().map(|rope| rope.copy_of(0..rope.len()));
    if difference == before.and_then(|before| before.difference.clone()) {
        return Ok(None);
    }
    let review = encodings::with_object(review, document.rope()).map_err(|failure| failure.to_string())?;
    Ok(Some(Patched { document, difference, review }))
}
