//! BypassDecision: bypass rules and break-glass that let one request past hooks, decided before the configuration's
//! freshness.
//!
//! The rules are those of the snapshot in force, however old it is: a configuration that cannot be read must not close
//! what its administrator has opened. Break-glass needs no snapshot at all.

use serde::Serialize;
use smallvec::SmallVec;

use crate::{
    live::{Generation, break_glass::Open},
    telemetry::Metrics,
};
use gatepost_api::{Bypass, BypassEffect, Review, Verdict};
use gatepost_config::Eligibility;
use gatepost_wire::groups;

/// Prefix of the annotations that name the bypass rules which applied.
const BYPASSED: &str = "bypass.gatepost.dev";
/// Prefix of the annotations that name what break-glass is open.
const BREAK_GLASS: &str = "break-glass.gatepost.dev";
/// Name under which requests about our own configuration are counted.
const OWN: &str = "own-configuration";
const OWN_REASON: &str = "changes of Gatepost's own configuration skip all hooks, also while the configuration is \
                          stale";
/// The longest warning, in characters: a longer one is cut by kube-apiserver once there are several.
const MAX_WARNING: usize = 256;

/// Bypass of one request: eligibility, matching rules, open break-glass.
#[derive(Debug)]
pub(super) struct BypassDecision<'a> {
    eligibility: Eligibility,
    generation: &'a Generation,
    /// The rules that apply, by their number in the snapshot. One that skips every hook stands alone.
    rules: SmallVec<[usize; 2]>,
    /// Break-glass that covers the request.
    break_glass: SmallVec<[Open; 1]>,
}

/// One reason for which a request was let past, as the audit log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Pass<'a> {
    name: &'a str,
    effect: &'static str,
    reason: &'a str,
}

impl<'a> BypassDecision<'a> {
    /// Decision for `review` by the bypass rules of `generation`, while `break_glass` is open.
    pub(super) fn of(generation: &'a Generation, break_glass: SmallVec<[Open; 1]>, review: &Review) -> Self {
        let eligibility = generation.snapshot.eligibility(review);
        let mut decision = Self { eligibility, generation, rules: SmallVec::new(), break_glass };
        if decision.skips_all() {
            return decision;
        }
        for (number, bypass) in generation.snapshot.bypasses().iter().enumerate() {
            if !bypass.applies(review, |wanted| groups::any_of(review, wanted)) {
                continue;
            }
            let skips_all = bypass.effect == BypassEffect::Skip && bypass.is_about_all();
            if skips_all {
                decision.rules.clear();
            }
            decision.rules.push(number);
            if skips_all {
                break;
            }
        }
        decision
    }

    /// Is no hook asked, whatever is configured for it?
    pub(super) fn skips_all(&self) -> bool {
        let skips_all = |rule: &Bypass| rule.effect == BypassEffect::Skip && rule.is_about_all();
        self.eligibility != Eligibility::Eligible || self.break_glass_covers_all() || self.rules().any(skips_all)
    }

    /// Is it let past by a rule, by break-glass or as our own configuration, and not as such requests always are?
    pub(super) fn is_bypass(&self) -> bool {
        self.eligibility == Eligibility::OwnConfig || self.break_glass_covers_all() || !self.rules.is_empty()
    }

    /// Does only a hook's own "no" reject it? Then a stale configuration does not either: its hooks are called as they
    /// were last known.
    pub(super) fn opens_everything(&self) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.is_about_all())
    }

    /// Is this hook not asked, as a rule says so?
    pub(super) fn skips(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::Skip && rule.is_about(hook))
    }

    /// Is this hook not asked, as break-glass is open for it?
    pub(super) fn break_glass_covers(&self, hook: &str) -> bool {
        self.break_glass.iter().any(|open| open.document.is_about(hook))
    }

    /// Is this hook passed over where it cannot answer, whatever its failure policy?
    pub(super) fn fails_open(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.is_about(hook))
    }

    /// Every reason there is, in order; what is opened in an emergency apart.
    pub(super) fn passes(&self) -> impl Iterator<Item = Pass<'_>> {
        let ours = Pass { name: OWN, reason: OWN_REASON, effect: BypassEffect::Skip.as_str() };
        let rule = |rule: &'a Bypass| Pass { name: &rule.name, reason: &rule.reason, effect: rule.effect.as_str() };
        (self.eligibility == Eligibility::OwnConfig).then_some(ours).into_iter().chain(self.rules().map(rule))
    }

    /// Break-glass that covers the request.
    pub(super) fn open_break_glass(&self) -> &[Open] {
        &self.break_glass
    }

    /// Counts what applies, and says it in the verdict: break-glass in every one, whatever was decided.
    pub(super) fn annotate(&self, metrics: &Metrics, verdict: &mut Verdict) {
        if self.eligibility == Eligibility::OwnConfig {
            metrics.let_ourselves_past();
        } else if self.eligibility == Eligibility::Eligible && self.break_glass_covers_all() {
            metrics.record_break_glass();
        }
        for number in &self.rules {
            let Generation { snapshot, bypassed, .. } = self.generation;
            if let (Some(bypass), Some(counters)) = (snapshot.bypasses().get(*number), bypassed.get(*number)) {
                counters.record(bypass.effect);
            }
        }
        // A hook by our own name does not get to say it.
        let ours =
            |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == BYPASSED || prefix == BREAK_GLASS);
        verdict.audit_annotations.retain(|(key, _)| !ours(key));
        for Pass { name, reason, effect } in self.passes() {
            verdict.audit_annotations.push((format!("{BYPASSED}/{name}"), format!("{effect}: {reason}")));
        }
        for (at, open) in self.break_glass.iter().enumerate() {
            let (said, warning) = annotation_and_warning(open);
            verdict.audit_annotations.push((format!("{BREAK_GLASS}/{}", open.document.name), said));
            verdict.warnings.insert(at, warning);
        }
    }

    /// Is everything open?
    fn break_glass_covers_all(&self) -> bool {
        self.break_glass.iter().any(|open| open.document.is_about_all())
    }

    fn rules(&self) -> impl Iterator<Item = &'a Bypass> {
        let bypasses = self.generation.snapshot.bypasses();
        self.rules.iter().filter_map(move |number| bypasses.get(*number)).map(AsRef::as_ref)
    }
}

/// Annotation and warning for an open break-glass.
fn annotation_and_warning(open: &Open) -> (String, String) {
    let glass = &open.document;
    let what = if glass.is_about_all() { "all hooks".to_owned() } else { glass.hooks.join(", ") };
    let said = format!("{what} until {}: {}", humantime::format_rfc3339_seconds(glass.until()), glass.reason);
    let warning = format!("gatepost: break-glass {} is open for {said}", glass.name);
    (said, warning.chars().take(MAX_WARNING).collect())
}
