//! Metric families of hook calls.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use prometheus_client::encoding::DescriptorEncoder;

use super::{
    Scrape,
    samples::{by_cause, by_outcome, counter, family, histogram},
};
use crate::{
    model::{FailureKind, HookType},
    telemetry::{
        HookMetrics, HookOutcome, UnmetConditions,
        cells::Sums,
        hook::{DroppedAnnotation, Repeat},
        table,
    },
};

impl Scrape {
    /// Calls of hooks.
    pub(super) fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let hooks: Vec<_> = self.0.hooks().into_iter().map(Counted::of).collect();
        family(encoder, &table::HOOK_CALLS, |out| {
            hooks.iter().try_for_each(|hook| by_outcome(out, &hook.labels(), &HookOutcome::LABELS, &hook.sums))
        })?;
        family(encoder, &table::HOOK_CALL_FAILURES, |out| {
            for hook in &hooks {
                for (kind, cells) in FailureKind::ALL.iter().zip(&hook.counters.failures) {
                    for (policy, cell) in ["Ignore", "Fail"].iter().zip(cells) {
                        // Only what has happened: 24 zeros for each of hundreds of hooks would be all there is to see.
                        let count = cell.load(Relaxed);
                        if count > 0 {
                            let [name, hook_type] = hook.labels();
                            counter(out, &[name, hook_type, ("kind", kind.as_str()), ("policy", policy)], count)?;
                        }
                    }
                }
            }
            Ok(())
        })?;
        family(encoder, &table::HOOK_REJECTIONS, |out| {
            for hook in &hooks {
                let [name, hook_type] = hook.labels();
                for (operation, cause, code, count) in hook.counters.rejections.all() {
                    let what = [("operation", operation), ("cause", cause), ("code", &code)];
                    counter(out, &[&[name, hook_type][..], &what].concat(), count)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &table::HOOK_FAIL_OPEN, |out| {
            hooks.iter().try_for_each(|hook| counter(out, &hook.labels(), hook.sums.count(HookOutcome::OPEN)))
        })?;
        family(encoder, &table::HOOK_UNASKED, |out| {
            hooks.iter().try_for_each(|hook| counter(out, &hook.labels(), hook.counters.unasked.load(Relaxed)))
        })?;
        family(encoder, &table::HOOK_CALLS_IN_VAIN, |out| {
            let mutating = hooks.iter().filter(|hook| hook.hook_type == HookType::Mutating);
            mutating.clone().try_for_each(|hook| counter(out, &hook.labels(), hook.counters.in_vain.load(Relaxed)))
        })?;
        for (table, how) in [
            (&table::HOOK_CONDITION_EXCLUSIONS, UnmetConditions::Excluded),
            (&table::HOOK_CONDITION_ERRORS, UnmetConditions::Failed),
        ] {
            family(encoder, table, |out| {
                let count = |hook: &Counted| hook.counters.unmet[how as usize].load(Relaxed);
                hooks.iter().try_for_each(|hook| counter(out, &hook.labels(), count(hook)))
            })?;
        }
        family(encoder, &table::HOOK_CONDITION_DURATION, |out| {
            hooks.iter().try_for_each(|hook| match hook.counters.conditions.get() {
                Some(evaluations) => histogram(out, &hook.labels(), &evaluations.sums(), |_| true),
                None => Ok(()),
            })
        })?;
        // Of these, too, only what has happened.
        family(encoder, &table::HOOK_REPEATED_CALLS, |out| {
            hooks
                .iter()
                .try_for_each(|hook| by_cause(out, hook.labels(), Repeat::LABELS.iter().zip(&hook.counters.repeats)))
        })?;
        family(encoder, &table::HOOK_ANNOTATIONS_DROPPED, |out| {
            hooks.iter().try_for_each(|hook| {
                let causes = DroppedAnnotation::LABELS.iter();
                by_cause(out, hook.labels(), causes.zip(&hook.counters.annotations_dropped))
            })
        })?;
        family(encoder, &table::HOOK_DURATION, |out| {
            let ended = |outcome| outcome != HookOutcome::CANCELLED;
            hooks.iter().try_for_each(|hook| histogram(out, &hook.labels(), &hook.sums, ended))
        })?;
        family(encoder, &table::HOOK_TIMEOUT, |out| {
            hooks.iter().try_for_each(|hook| match hook.counters.timeout() {
                Some(timeout) => out.encode_family(&hook.labels().as_slice())?.encode_gauge(&timeout.as_secs_f64()),
                None => Ok(()),
            })
        })
    }
}

/// A hook's counters, added up.
struct Counted {
    hook_type: HookType,
    name: Arc<str>,
    sums: Sums<5>,
    counters: Arc<HookMetrics>,
}

impl Counted {
    fn of((hook_type, name, counters): (HookType, Arc<str>, Arc<HookMetrics>)) -> Self {
        Self { hook_type, name, sums: counters.calls.sums(), counters }
    }

    fn labels(&self) -> [(&str, &str); 2] {
        let hook_type = match self.hook_type {
            HookType::Validating => "validating",
            HookType::Mutating => "mutating",
        };
        [("hook", &self.name), ("type", hook_type)]
    }
}
