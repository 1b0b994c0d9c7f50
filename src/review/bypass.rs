//! BypassDecision: the bypass rules and break-glass that apply to one request. They are decided before the
//! configuration's freshness is checked.
//!
//! The rules are those of the snapshot in force, however old it is: if the configuration cannot be read, bypasses that
//! its administrator has configured must still apply. Break-glass needs no snapshot.

use serde::Serialize;
use smallvec::SmallVec;

use crate::{
    live::{Generation, break_glass::OpenDocument},
    telemetry::Metrics,
};
use gatepost_api::{Bypass, BypassEffect, Review, Verdict};
use gatepost_config::Eligibility;
use gatepost_wire::groups;

/// Prefix of the annotations that name the bypass rules which applied.
const BYPASSED: &str = "bypass.gatepost.dev";
/// Prefix of the annotations that name open break-glass documents.
const BREAK_GLASS: &str = "break-glass.gatepost.dev";
/// Name in annotations and the audit log for requests about Gatepost's own configuration.
const OWN: &str = "own-configuration";
const OWN_REASON: &str = "changes of Gatepost's own configuration skip all hooks, also while the configuration is \
                          stale";
/// Maximum number of characters of a warning. kube-apiserver cuts longer ones if there are several.
const MAX_WARNING: usize = 256;

/// Bypass of one request: its eligibility, the rules that match, and open break-glass.
#[derive(Debug)]
pub(super) struct BypassDecision<'a> {
    eligibility: Eligibility,
    generation: &'a Generation,
    /// Indexes in the snapshot of the rules that apply. A rule that skips every hook is the only one.
    rules: SmallVec<[usize; 2]>,
    /// Break-glass documents that are open.
    break_glass: SmallVec<[OpenDocument; 1]>,
}

/// Bypass that applied to a request, for annotations and the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AppliedBypass<'a> {
    name: &'a str,
    effect: &'static str,
    reason: &'a str,
}

impl<'a> BypassDecision<'a> {
    /// Decides about `review` by the bypass rules of `generation` and the open `break_glass`.
    pub(super) fn of(generation: &'a Generation, break_glass: SmallVec<[OpenDocument; 1]>, review: &Review) -> Self {
        let eligibility = generation.snapshot.eligibility(review);
        let mut decision = Self { eligibility, generation, rules: SmallVec::new(), break_glass };
        if decision.skips_all() {
            return decision;
        }
        for (number, bypass) in generation.snapshot.bypasses().iter().enumerate() {
            if !bypass.applies(review, |wanted| groups::any_of(review, wanted)) {
                continue;
            }
            let skips_all = bypass.effect == BypassEffect::Skip && bypass.applies_to_all_hooks();
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

    /// Returns true if no hook is called, regardless of the configuration.
    pub(super) fn skips_all(&self) -> bool {
        let skips_all = |rule: &Bypass| rule.effect == BypassEffect::Skip && rule.applies_to_all_hooks();
        self.eligibility != Eligibility::Eligible || self.break_glass_covers_all() || self.rules().any(skips_all)
    }

    /// Returns true if a rule applies, break-glass is open for all hooks, or the request is about Gatepost's own
    /// configuration. Returns false for other requests that hooks never see.
    pub(super) fn is_bypass(&self) -> bool {
        self.eligibility == Eligibility::OwnConfig || self.break_glass_covers_all() || !self.rules.is_empty()
    }

    /// Returns true if a rule makes every hook fail open. Then only a hook's denial rejects the request. A stale
    /// configuration does not reject it: the hooks of the last known configuration are called.
    pub(super) fn all_fail_open(&self) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.applies_to_all_hooks())
    }

    /// Returns true if a rule skips this hook.
    pub(super) fn skips(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::Skip && rule.applies_to_hook(hook))
    }

    /// Returns true if break-glass skips this hook.
    pub(super) fn break_glass_covers(&self, hook: &str) -> bool {
        self.break_glass.iter().any(|open| open.document.applies_to_hook(hook))
    }

    /// Returns true if a rule makes this hook fail open, regardless of its failure policy.
    pub(super) fn fails_open(&self, hook: &str) -> bool {
        self.rules().any(|rule| rule.effect == BypassEffect::FailOpen && rule.applies_to_hook(hook))
    }

    /// Returns every bypass that applied, in order, without break-glass.
    pub(super) fn applied(&self) -> impl Iterator<Item = AppliedBypass<'_>> {
        let ours = AppliedBypass { name: OWN, reason: OWN_REASON, effect: BypassEffect::Skip.as_str() };
        let rule =
            |rule: &'a Bypass| AppliedBypass { name: &rule.name, reason: &rule.reason, effect: rule.effect.as_str() };
        (self.eligibility == Eligibility::OwnConfig).then_some(ours).into_iter().chain(self.rules().map(rule))
    }

    /// Returns the break-glass documents that are open.
    pub(super) fn open_break_glass(&self) -> &[OpenDocument] {
        &self.break_glass
    }

    /// Counts the bypasses that applied.
    pub(super) fn count(&self, metrics: &Metrics) {
        if self.eligibility == Eligibility::OwnConfig {
            metrics.record_own_configuration();
        } else if self.eligibility == Eligibility::Eligible && self.break_glass_covers_all() {
            metrics.record_break_glass();
        }
        for number in &self.rules {
            let Generation { snapshot, bypassed, .. } = self.generation;
            if let (Some(bypass), Some(counters)) = (snapshot.bypasses().get(*number), bypassed.get(*number)) {
                counters.record(bypass.effect);
            }
        }
    }

    /// Adds the bypasses that applied to the verdict. Break-glass is added to every verdict, allowed or denied.
    pub(super) fn annotate(&self, verdict: &mut Verdict) {
        // Removes annotations of hooks under Gatepost's own prefixes.
        let ours =
            |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefix == BYPASSED || prefix == BREAK_GLASS);
        verdict.audit_annotations.retain(|(key, _)| !ours(key));
        for AppliedBypass { name, reason, effect } in self.applied() {
            verdict.audit_annotations.push((format!("{BYPASSED}/{name}"), format!("{effect}: {reason}")));
        }
        for (at, open) in self.break_glass.iter().enumerate() {
            let (said, warning) = annotation_and_warning(open);
            verdict.audit_annotations.push((format!("{BREAK_GLASS}/{}", open.document.name), said));
            verdict.warnings.insert(at, warning);
        }
    }

    /// Returns true if break-glass skips every hook.
    fn break_glass_covers_all(&self) -> bool {
        self.break_glass.iter().any(|open| open.document.applies_to_all_hooks())
    }

    fn rules(&self) -> impl Iterator<Item = &'a Bypass> {
        let bypasses = self.generation.snapshot.bypasses();
        self.rules.iter().filter_map(move |number| bypasses.get(*number)).map(AsRef::as_ref)
    }
}

/// Returns the annotation and the warning for an open break-glass document.
fn annotation_and_warning(open: &OpenDocument) -> (String, String) {
    let break_glass = &open.document;
    let what = if break_glass.applies_to_all_hooks() { "all hooks".to_owned() } else { break_glass.hooks.join(", ") };
    let said =
        format!("{what} until {}: {}", humantime::format_rfc3339_seconds(break_glass.until()), break_glass.reason);
    let warning = format!("gatepost: break-glass {} is open for {said}", break_glass.name);
    (said, warning.chars().take(MAX_WARNING).collect())
}
