//! Passage: what lets one request past hooks, decided before anything is said about how fresh the configuration is.
//!
//! What applies is what the snapshot in force says, however old that is: a configuration that cannot be read must not
//! close what its administrator has opened.

use smallvec::SmallVec;

use crate::{
    live::Generation,
    model::{Bypass, BypassEffect, Review, Verdict},
    snapshot::Say,
    telemetry::Metrics,
    wire::groups,
};

/// Prefix of the annotations that name the bypass rules which applied.
const BYPASSED: &str = "bypass.gatepost.dev";
/// What requests about our own configuration are counted as.
const OWN: &str = "own-configuration";
const OWN_REASON: &str = "no hook, and no stale configuration, may hold up a change of Gatepost's own configuration";

/// What lets one request past hooks.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    say: Say,
    generation: &'a Generation,
    /// The rules that apply, by their number in the snapshot. One that skips every hook stands alone.
    rules: SmallVec<[usize; 2]>,
}

/// One reason for which a request was let past, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass<'a> {
    pub(super) name: &'a str,
    pub(super) reason: &'a str,
    pub(super) effect: BypassEffect,
}

impl<'a> Passage<'a> {
    /// What lets `review` past the hooks of `generation`.
    pub(super) fn of(generation: &'a Generation, review: &Review) -> Self {
        let mut passage = Self { say: generation.snapshot.say(review), generation, rules: SmallVec::new() };
        if passage.say != Say::Matching {
            return passage;
        }
        for (number, bypass) in generation.snapshot.bypasses().iter().enumerate() {
            if !bypass.applies(review, |wanted| groups::any_of(review, wanted)) {
                continue;
            }
            let skips_all = bypass.effect == BypassEffect::Skip && bypass.is_about_all();
            if skips_all {
                passage.rules.clear();
            }
            passage.rules.push(number);
            if skips_all {
                break;
            }
        }
        passage
    }

    /// Is no hook asked, whatever is configured for it?
    pub(super) fn asks_nobody(&self) -> bool {
        self.say != Say::Matching || self.rules().any(|rule| rule.effect == BypassEffect::Skip && rule.is_about_all())
    }

    /// Does a bypass let it past unasked, and not the nature of the request?
    pub(super) fn is_bypass(&self) -> bool {
        self.say == Say::Ourselves || !self.rules.is_empty()
    }

    /// Does nothing but a hook's own "no" reject it? Then not even a stale configuration does, whose hooks are asked as
    /// they were last known.
    pub(super) fn opens_everything(&self) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.is_about_all())
    }

    /// Is this hook not asked?
    pub(super) fn skips(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::Skip && rule.is_about(hook))
    }

    /// Is this hook passed over where it cannot answer, whatever its failure policy?
    pub(super) fn opens(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.is_about(hook))
    }

    /// Every reason there is, in order.
    pub(super) fn passes(&self) -> impl Iterator<Item = Pass<'_>> {
        let ours = Pass { name: OWN, reason: OWN_REASON, effect: BypassEffect::Skip };
        let rule = |rule: &'a Bypass| Pass { name: &rule.name, reason: &rule.reason, effect: rule.effect };
        (self.say == Say::Ourselves).then_some(ours).into_iter().chain(self.rules().map(rule))
    }

    /// Counts what applies, and says it in the verdict.
    pub(super) fn tell(&self, metrics: &Metrics, verdict: &mut Verdict) {
        if self.say == Say::Ourselves {
            metrics.let_ourselves_past();
        }
        for number in &self.rules {
            let Generation { snapshot, bypassed, .. } = self.generation;
            if let (Some(bypass), Some(counters)) = (snapshot.bypasses().get(*number), bypassed.get(*number)) {
                counters.record(bypass.effect);
            }
        }
        for Pass { name, reason, effect } in self.passes() {
            let said = format!("{}: {reason}", effect.as_str());
            verdict.audit_annotations.push((format!("{BYPASSED}/{name}"), said));
        }
    }

    fn rules(&self) -> impl Iterator<Item = &'a Bypass> {
        let bypasses = self.generation.snapshot.bypasses();
        self.rules.iter().filter_map(move |number| bypasses.get(*number)).map(AsRef::as_ref)
    }
}
