//! SegmentMoves: when mutating hooks were last put into other segments of their chain.
//!
//! An apiserver asks about one request segment by segment, and each segment is decided in the generation that is in force
//! then. A hook that changes its segment between two of these calls would be called twice, or not at all.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::current::STALE_AFTER;
use crate::{model::registration::Segment, snapshot::Snapshot};

/// For so long after a move a later segment may belong to a request of which an earlier one was decided before the move:
/// as long as an apiserver waits for one call, and by as much as replicas may differ.
pub const UNSETTLED_FOR: Duration = Duration::from_secs(30).saturating_add(STALE_AFTER);

/// The last move of a mutating hook.
#[derive(Debug)]
pub(super) struct SegmentMoves {
    epoch: Instant,
    /// Nanoseconds from `epoch` to the last move, plus one; 0 before the first.
    last: AtomicU64,
}

impl SegmentMoves {
    pub(super) fn since(epoch: Instant) -> Self {
        Self { epoch, last: AtomicU64::new(0) }
    }

    /// One snapshot is about to take another's place. Called before it does: who enters the new one finds the move.
    pub(super) fn replaced(&self, former: &Snapshot, new: &Snapshot, now: Instant) {
        if have_moved(former, new) {
            let nanos = now.saturating_duration_since(self.epoch).as_nanos() as u64;
            self.last.fetch_max(nanos + 1, Ordering::Release);
        }
    }

    /// May a request be under way of which a segment was decided before the last move?
    pub(super) fn are_unsettled(&self, now: Instant) -> bool {
        let last = self.last.load(Ordering::Acquire).checked_sub(1);
        last.is_some_and(|nanos| now < self.epoch + Duration::from_nanos(nanos) + UNSETTLED_FOR)
    }
}

/// Is a mutating hook in another segment, or is there another number of them? Hooks that come or go are in no segment that
/// a request under way could miss.
fn have_moved(former: &Snapshot, new: &Snapshot) -> bool {
    let before: HashMap<&str, Segment> = former.segments().map(|(hook, segment)| (&*hook.id, segment)).collect();
    let Some(of) = before.values().next().map(|segment| segment.of) else { return false };
    new.segments().any(|(hook, segment)| segment != *before.get(&*hook.id).unwrap_or(&Segment { of, ..segment }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{self, SourceFile};

    fn snapshot(hooks: &[(&str, bool)]) -> Snapshot {
        let entry = |(name, isolate): &(&str, bool)| {
            format!(
                "- {{name: {name}.example.com, type: Mutating, isolate: {isolate}, clientConfig: {{url: \"http://127.0.0.1:1/\"}}, \
                 rules: [{{operations: [\"*\"], apiGroups: [\"*\"], apiVersions: [\"*\"], resources: [\"*\"]}}]}}\n"
            )
        };
        let hooks = if hooks.is_empty() { "  []\n".to_owned() } else { hooks.iter().map(entry).collect() };
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
             externalAdmissionHooks:\n{hooks}"
        );
        let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
        snapshot::load(&files, &|path| std::fs::read(path)).unwrap()
    }

    #[test]
    fn a_hook_in_another_segment_has_moved_and_one_that_comes_or_goes_has_not() {
        let former = [("a", false), ("b", true), ("c", false)];
        let cases: [(&[(&str, bool)], bool); 8] = [
            (&former, false),
            (&[("a", false), ("b", true), ("c", false), ("d", false)], false),
            (&[("x", false), ("a", false), ("b", true), ("c", false)], false),
            (&[("b", true), ("c", false)], true),
            (&[("a", false), ("c", false), ("b", true)], true),
            (&[("a", false), ("b", false), ("c", false)], true),
            (&[("x", false)], true),
            (&[], false),
        ];
        for (new, moved) in cases {
            assert_eq!(have_moved(&snapshot(&former), &snapshot(new)), moved, "{new:?}");
        }
        assert!(!have_moved(&Snapshot::empty(), &snapshot(&former)), "nothing was in force before");
    }

    #[test]
    fn a_move_is_unsettled_until_every_request_from_before_it_has_ended() {
        let epoch = Instant::now();
        let moves = SegmentMoves::since(epoch);
        assert!(!moves.are_unsettled(epoch));
        let (one, two) = (snapshot(&[("a", false), ("b", false)]), snapshot(&[("a", false), ("b", true)]));
        moves.replaced(&one, &one, epoch);
        assert!(!moves.are_unsettled(epoch));
        let at = epoch + Duration::from_secs(1);
        moves.replaced(&one, &two, at);
        moves.replaced(&two, &two, at + UNSETTLED_FOR / 2);
        assert!(moves.are_unsettled(at));
        assert!(moves.are_unsettled(at + UNSETTLED_FOR - Duration::from_millis(1)));
        assert!(!moves.are_unsettled(at + UNSETTLED_FOR));
    }
}
