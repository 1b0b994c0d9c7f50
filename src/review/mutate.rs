//! Mutation: the phase of the hooks that may change the object.
//!
//! Hooks take effect in configuration order, each on the object as the hooks before it have changed it
//! (`docs/reference/webhook-semantics.md` §12). Most hooks change nothing, and then calling them together gives the
//! same result as calling them one by one. So hooks without side effects are called together, in a round. Answers are
//! accepted in order; the first that changes the object ends the round, and the hooks behind it are called with the new
//! object. N hooks of which P change something take about 1 + P rounds.
//!
//! ```text
//!            ┌──────── the object changed: later hooks get the new object ───────────┐
//!            v                                                                       │
//!  next hooks ──> select the hooks to call ──> one round ──> answers, in order ──────┤
//!            ^                                                                       │
//!            └──────── all accepted, more hooks ─────────────────────────────────────┘
//! ```
//!
//! After the last hook, hooks with `reinvocationPolicy: IfNeeded` that were called before a change are called once more
//! (§12.1).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    context::{ReviewContext, ServedView},
    draft::{Draft, Flow},
    facts::Facts,
    failure,
    object::{PatchFailure, PatchedObject},
    record::{CallRecord, Change, Ending},
    rejection,
    round::{self, Until},
    select::{self, Role, SelectedHook, Selection},
};
use crate::{hooks::RequestKind, live::LiveHook};
use gatepost_api::{CallFailure, Dispatch, HookType, ProposedPatch, Reinvocation, Review, StatusCause, StatusInfo};
use gatepost_base::clock::now;
use gatepost_config::MatchSet;

/// Hooks that are called together, and the hooks between them that are not called.
struct Batch<'a> {
    selection: Selection<'a>,
    /// Probability that none of the hooks patches.
    no_patch_probability: f32,
    /// Number of calls that are discarded if the first hook patches.
    discarded_if_first_patches: usize,
}

impl Batch<'_> {
    fn new() -> Self {
        Self { selection: Selection::default(), no_patch_probability: 1.0, discarded_if_first_patches: 0 }
    }

    fn is_empty(&self) -> bool {
        self.selection.hooks.is_empty()
    }
}

/// Calls the mutating hooks that match this request.
pub(super) async fn mutate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    if draft.skips_hooks || !ctx.mutates() {
        return Flow::Continue(());
    }
    let matching = select::matching(ctx, HookType::Mutating);
    if matching.is_empty() {
        return Flow::Continue(());
    }
    let phase = MutatingPhase {
        ctx,
        draft: &mut *draft,
        kind: RequestKind::of(ctx.review),
        spare_calls: matching.len(),
        matching,
        next: 0,
        round: 0,
        reinvocation_candidates: BTreeSet::new(),
        reinvoked: BTreeSet::new(),
        discovery_refreshed: false,
        is_late: false,
        rejects_late: false,
    };
    // Boxed, as most requests have no such phase and should not reserve memory for it.
    Box::pin(phase.run()).await;
    draft.flow()
}

/// State of the phase.
struct MutatingPhase<'a, 'd> {
    ctx: &'a ReviewContext<'a>,
    draft: &'d mut Draft<'a>,
    /// Kind of the request, for the patch rates of the hooks.
    kind: RequestKind,
    /// Number of speculative calls that may still be discarded: at first, the number of hooks.
    spare_calls: usize,
    /// Mutating hooks whose rules match this request, each with its index in the snapshot (`hook`).
    matching: MatchSet,
    /// Index in `matching` of the first hook whose turn has not come.
    next: usize,
    /// 0, or 1 while hooks are called once more.
    round: u8,
    /// Indexes in the snapshot of the hooks to be called once more if a later hook changes the object.
    reinvocation_candidates: BTreeSet<u32>,
    /// Indexes in the snapshot of the hooks that are called once more.
    reinvoked: BTreeSet<u32>,
    /// True if discovery was refreshed for this request.
    discovery_refreshed: bool,
    /// True if the request's deadline has passed: before a round, or during the call of a hook that fails open.
    is_late: bool,
    /// True if a hook enforces that was not called in time, or whose call has ended too late.
    rejects_late: bool,
}

impl<'a> MutatingPhase<'a, '_> {
    async fn run(mut self) {
        let ctx = self.ctx;
        let (mut namespace_answer, began) = (None, now());
        while !self.draft.is_rejected {
            let object = self.draft.object.clone();
            let review = ctx.current_review(object.as_ref());
            let mut facts = Facts::new(ctx, review, namespace_answer.take());
            let changed = self.run_on_object(&mut facts, object.as_ref()).await;
            namespace_answer = facts.into_namespace_answer();
            match changed {
                Some(changed) => self.draft.object = Some(changed),
                None if self.start_reinvocation() => {}
                None => break,
            }
        }
        ctx.deps.metrics.mutation(ctx.caller.worker, now().saturating_duration_since(began));
    }

    /// Calls the next hooks with the current object, round by round. Returns the new object once a hook changes it;
    /// `None` once no hook is left or the request is rejected.
    async fn run_on_object(
        &mut self,
        facts: &mut Facts<'a, '_>,
        before: Option<&Arc<PatchedObject>>,
    ) -> Option<Arc<PatchedObject>> {
        loop {
            let batch = self.batch(facts).await?;
            if self.ctx.is_out_of_time() {
                self.end_out_of_time(batch, facts).await;
                return None;
            }
            let records = round::call_hooks(self.ctx, &batch.selection.hooks, facts.review, Until::Changed).await;
            let changed = self.accept_answers(&batch.selection.hooks, records, facts.review, before).await;
            batch.selection.conclude(self.ctx, self.draft, self.next);
            if self.is_late {
                self.end_out_of_time(Batch::new(), facts).await;
            }
            if changed.is_some() || self.is_late || self.draft.is_rejected {
                return changed;
            }
        }
    }

    /// Returns the hooks to call together next; `None` if no hook is left, or if the role of the next one cannot be
    /// decided, which rejects the request.
    async fn batch(&mut self, facts: &mut Facts<'a, '_>) -> Option<Batch<'a>> {
        let mut batch = Batch::new();
        let mut at = self.next;
        while let Some(matched) = self.matching.get(at).copied() {
            if self.round > 0 && !self.reinvoked.contains(&matched.index) {
                at += 1;
                continue;
            }
            if batch.is_empty() {
                select::resolve(facts, &[matched], &self.matching[at + 1..]).await;
            } else if !select::is_resolved(facts, matched) {
                // No hook waits for the labels or conditions of a hook behind it.
                break;
            }
            let role = {
                let served = self.ctx.served();
                select::role(facts, matched, served.as_ref().map(ServedView::served))
            };
            match role {
                Ok(Role::Selected(hook)) if hook.is_undiscovered && !self.discovery_refreshed => {
                    if !batch.is_empty() {
                        break;
                    }
                    self.discover(matched.index).await;
                    (at, batch) = (self.next, Batch::new());
                    continue;
                }
                Ok(Role::Selected(hook)) => {
                    let is_shared = self.may_share_batch(hook.live);
                    if !(batch.is_empty() || is_shared && self.may_grow(&batch)) {
                        break;
                    }
                    self.add_to_batch(&mut batch, hook, at);
                    if !is_shared {
                        break;
                    }
                }
                Ok(role) => batch.selection.add(at, role),
                Err(_) if !batch.is_empty() => break,
                Err(error) => {
                    let _ = self.draft.refuse(error.count());
                    break;
                }
            }
            at += 1;
        }
        if batch.is_empty() {
            self.next = at;
            batch.selection.conclude(self.ctx, self.draft, self.next);
            return None;
        }
        Some(batch)
    }

    /// Returns true if the hook may share a batch with others: the call has no side effects, and the configuration does
    /// not want the hook called alone.
    fn may_share_batch(&self, live: &LiveHook) -> bool {
        let ReviewContext { deps, review, .. } = self.ctx;
        live.hook.dispatch.unwrap_or(deps.speculation.dispatch) == Dispatch::Speculative
            && live.target.entry.side_effects.none_for(review.dry_run)
    }

    /// Returns true if one more hook may be called behind this batch. Returns false if the call would probably be
    /// discarded, by the patch rates of the hooks before it ([`PatchRates`](crate::hooks::PatchRates)).
    fn may_grow(&self, batch: &Batch<'_>) -> bool {
        let patches = 100.0 * (1.0 - batch.no_patch_probability);
        patches <= f32::from(self.ctx.deps.speculation.max_chance)
            && batch.discarded_if_first_patches < self.spare_calls
    }

    /// Adds the hook at index `at` of `matching` to the batch.
    fn add_to_batch(&self, batch: &mut Batch<'a>, hook: SelectedHook<'a>, at: usize) {
        batch.no_patch_probability *=
            1.0 - hook.live.target.patch_rates.as_ref().map_or(0.0, |rates| rates.chance(self.kind));
        batch.discarded_if_first_patches += usize::from(!batch.is_empty());
        batch.selection.add(at, Role::Selected(hook));
    }

    /// Refreshes discovery, which does not know the resource yet, and matches the hooks once more. `hook` is the index
    /// in the snapshot of the hook that needs it.
    async fn discover(&mut self, hook: u32) {
        self.discovery_refreshed = true;
        let turn = self.matching.get(self.next).map_or(hook, |matched| matched.index);
        self.ctx.refresh_discovery().await;
        self.matching = select::matching(self.ctx, HookType::Mutating);
        self.next = self.matching.partition_point(|matched| matched.index < turn);
    }

    /// Accepts the answers in order, up to the first that changes the object or rejects the request. Later calls are
    /// discarded: they had an outdated object, or the request is decided.
    async fn accept_answers(
        &mut self,
        hooks: &[SelectedHook<'a>],
        records: Vec<CallRecord<'a>>,
        review: &Review,
        before: Option<&Arc<PatchedObject>>,
    ) -> Option<Arc<PatchedObject>> {
        let ctx = self.ctx;
        let mut discarded = 0;
        let mut changed = None;
        let mut is_over = false;
        for (hook, mut record) in hooks.iter().zip(records) {
            let SelectedHook { live, unable, fail_open_override, at, .. } = hook;
            is_over |= record.is_cancelled();
            // If a bypass makes every hook fail open, a denial still ends a request that is out of time.
            let is_final_denial = self.is_late && record.is_denial() && ctx.bypass.all_fail_open();
            if is_over && (!is_final_denial || self.draft.is_rejected) {
                discarded += usize::from(unable.is_none());
                record.discard(unable.is_none());
                continue;
            }
            self.next = at + 1;
            if self.round == 0
                && matches!(record.ending, Ending::Answered(_))
                && let Some(rates) = &live.target.patch_rates
            {
                rates.record(self.kind, record.patch().is_some());
            }
            changed = apply(ctx, &mut record, *fail_open_override, review, before).await;
            record.count();
            let snapshot_index = self.matching[*at].index;
            (record.round, record.index) = (self.round, ctx.generation.snapshot.mutating_before(snapshot_index));
            let has_failed = record.failure().is_some();
            self.draft.add(record);
            if self.draft.is_rejected {
                changed = None;
                is_over = true;
                continue;
            }
            // Upstream ends the phase here, even if later hooks have answered.
            if has_failed && ctx.is_out_of_time() {
                self.is_late = true;
                self.rejects_late |= live.hook.enforcement.denies();
                is_over = true;
                continue;
            }
            if changed.is_some() {
                self.reinvoked.append(&mut self.reinvocation_candidates);
            }
            if live.hook.reinvocation == Reinvocation::IfNeeded {
                self.reinvocation_candidates.insert(snapshot_index);
            }
            is_over |= changed.is_some();
        }
        self.spare_calls = self.spare_calls.saturating_sub(discarded);
        changed
    }

    /// Starts the second round after the last hook if hooks are to be called once more. Returns true if so.
    fn start_reinvocation(&mut self) -> bool {
        let again = self.round == 0 && !self.reinvoked.is_empty() && !self.is_late && !self.draft.is_rejected;
        if again {
            (self.round, self.next) = (1, 0);
        }
        again
    }

    /// Ends the phase after the request's deadline. As in upstream, the request is rejected regardless of the failure
    /// policies, unless no late hook enforces. Each hook that is no longer called is recorded as timed out, and named.
    /// If a bypass makes every hook fail open, only a denial rejects.
    async fn end_out_of_time(&mut self, first: Batch<'a>, facts: &mut Facts<'a, '_>) {
        self.is_late = true;
        let mut batch = Some(first);
        while let Some(uncalled) = batch {
            for SelectedHook { live, fail_open_override, .. } in &uncalled.selection.hooks {
                self.rejects_late |= live.hook.enforcement.denies();
                let outcome = failure::out_of_time(live.hook.failure_policy, *fail_open_override);
                self.draft.add_out_of_time(CallRecord::of(self.ctx, live, Ending::OutOfTime(outcome)));
            }
            self.next = uncalled.selection.hooks.last().map_or(self.next, |hook| hook.at + 1);
            uncalled.selection.conclude(self.ctx, self.draft, self.next);
            batch = self.batch(facts).await;
        }
        if self.round == 0 {
            // These would have been called once more.
            let hooks = &self.ctx.generation.hooks;
            let denies = |index: &u32| hooks.get(*index as usize).is_some_and(|live| live.hook.enforcement.denies());
            self.rejects_late |= self.reinvoked.iter().any(denies);
        }
        if self.rejects_late && !self.ctx.bypass.all_fail_open() {
            let causes = self.out_of_time_causes();
            let _ = self.draft.refuse(Box::new(StatusInfo { causes, ..rejection::out_of_time() }));
        }
    }

    /// Returns the causes of the rejection: each hook that was not called, and the number of those that are not named.
    fn out_of_time_causes(&self) -> Vec<StatusCause> {
        let cause = |field: &str, message| StatusCause { reason: "Timeout".into(), message, field: field.to_owned() };
        let is_late = |call: &&CallRecord<'_>| matches!(call.ending, Ending::OutOfTime(_));
        let late = self.draft.calls.iter().filter(is_late);
        let each = late.map(|call| cause(call.decider.name(), rejection::NOT_CALLED_IN_TIME.to_owned()));
        let more = Some(self.draft.unnamed_out_of_time_calls()).filter(|more| *more > 0);
        let more = more.map(|more| cause("", format!("{more} more hooks {}", rejection::NOT_CALLED_IN_TIME)));
        each.chain(more).collect()
    }
}

/// Applies the patch of an answer, until the request's deadline. Returns the object if the patch changed it. If the
/// patch exceeds the size limit, the call counts as failed. `fail_open_override` is true if a bypass makes the hook
/// fail open.
async fn apply(
    ctx: &ReviewContext<'_>,
    record: &mut CallRecord<'_>,
    fail_open_override: bool,
    review: &Review,
    before: Option<&Arc<PatchedObject>>,
) -> Option<Arc<PatchedObject>> {
    let proposed = record.change.take().map(|change| *change);
    let ProposedPatch { text, .. } = record.patch().cloned()?;
    let (name, size) = (record.decider.name(), text.len());
    let refused = |why: &str| Change::Refused(Box::new(rejection::patch_refused(name, why)));
    let (change, changed) = match proposed {
        Some(Change::Proposed(Ok(patch))) => match ctx.apply(patch, size, review, before).await {
            Ok(Ok(None)) => (Change::Unchanged(text), None),
            Ok(Ok(Some(changed))) => (Change::Patched(text), Some(Arc::new(changed))),
            Ok(Err(PatchFailure::NoRoom)) => {
                let patch = format!("patch of admission webhook \"{name}\"");
                (Change::Refused(Box::new(rejection::no_room(&patch))), None)
            }
            Ok(Err(PatchFailure::Inapplicable(why))) => (refused(&why), None),
            Ok(Err(PatchFailure::TooLarge(which))) => {
                record.turn_into_failure(fail_open_override, CallFailure::PatchOverLimit(which));
                return None;
            }
            Err(out_of_time) => (Change::Refused(out_of_time), None),
        },
        Some(Change::Proposed(Err(error))) => (refused(&error.to_string()), None),
        _ => return None,
    };
    record.change = Some(Box::new(change));
    changed
}
