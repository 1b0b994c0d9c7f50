//! Segment moves: when mutating hooks last changed their segment of the chain.
//!
//! An apiserver sends a request to one segment after another, and each call is decided by the generation then in force.
//! A hook that changes its segment between two calls would be called twice, or not at all.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::freshness::STALE_AFTER;
use gatepost_api::registration::Segment;
use gatepost_config::Snapshot;

/// Time after a move in which a later segment may belong to a request whose earlier segment was decided before the
/// move: the longest time of a write at an apiserver, plus the longest lag between replicas.
// source: kubernetes/apiserver pkg/endpoints/handlers/rest.go, requestTimeoutUpperBound.
pub const UNSETTLED_FOR: Duration = Duration::from_secs(34).saturating_add(STALE_AFTER);

/// Time after a move in which another replica might not know of the move. That replica would call fewer hooks in the
/// later segments of a request than this one leaves to it.
pub const UNKNOWN_FOR: Duration = STALE_AFTER;

/// Segments of the mutating hooks of one configuration, by hook id.
type Segments<'a> = HashMap<&'a str, Segment>;

/// Segments of removed hooks, each with the time of its removal.
type RemovedHooks = HashMap<Box<str>, (Segment, Instant)>;

/// Last move of a mutating hook.
#[derive(Debug)]
pub(super) struct SegmentMoves {
    epoch: Instant,
    /// Nanoseconds from `epoch` to the last move, plus one; 0 before the first.
    last: AtomicU64,
    /// Hooks that were removed after the last move and within [`UNSETTLED_FOR`].
    removed: Mutex<RemovedHooks>,
}

impl SegmentMoves {
    /// Creates the state without a move; times are counted from `epoch`.
    pub(super) fn since(epoch: Instant) -> Self {
        Self { epoch, last: AtomicU64::new(0), removed: Mutex::default() }
    }

    /// Records whether the new snapshot moves a hook. Must be called before the snapshot is in force, so that every
    /// request that uses it sees the move.
    pub(super) fn record_change(&self, former: &Snapshot, new: &Snapshot, now: Instant) {
        let [before, after] = [former, new]
            .map(|snapshot| snapshot.segments().map(|(hook, segment)| (&*hook.id, segment)).collect::<Segments<'_>>());
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.retain(|_, (_, at)| now.saturating_duration_since(*at) < UNSETTLED_FOR);
        let gone = before.iter().filter(|(id, _)| !after.contains_key(**id));
        removed.extend(gone.map(|(id, segment)| (Box::from(*id), (*segment, now))));
        if have_moved(&before, &after, &removed) {
            let nanos = now.saturating_duration_since(self.epoch).as_nanos() as u64;
            self.last.fetch_max(nanos + 1, Ordering::Release);
            // The move has a longer effect than the removals.
            removed.clear();
        }
        removed.retain(|id, _| !after.contains_key(&**id));
    }

    /// Returns true if another segment of the same request may be decided by the configuration before the last move.
    pub(super) fn are_unsettled(&self, segment: Segment, now: Instant) -> bool {
        let unsettled_for = match segment {
            // The only segment is the whole request.
            Segment { of: 1, .. } => return false,
            Segment { number: 1, .. } => UNKNOWN_FOR,
            _ => UNSETTLED_FOR,
        };
        let last = self.last.load(Ordering::Acquire).checked_sub(1);
        last.is_some_and(|nanos| now < self.epoch + Duration::from_nanos(nanos) + unsettled_for)
    }
}

/// Returns true if a mutating hook has changed its segment, or if the number of segments has changed. A hook that is
/// only added or removed makes no request under way skip a hook. A hook added to a segment before that of a removed
/// hook may be the same hook with another name: a request under way would then call neither.
fn have_moved(before: &Segments<'_>, after: &Segments<'_>, removed: &RemovedHooks) -> bool {
    let of = |segments: &Segments<'_>| segments.values().next().map(|segment| segment.of);
    let renumbered = of(before).zip(of(after)).is_some_and(|(before, after)| before != after);
    let last = removed.values().map(|(segment, _)| segment.number).max();
    renumbered
        || after.iter().any(|(id, segment)| match (before.get(id), removed.get(*id)) {
            (Some(was), _) => was != segment,
            (None, Some((was, _))) if was != segment => true,
            (None, _) => last.is_some_and(|last| segment.number < last),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_config::SourceFile;

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
        gatepost_config::load(&files, &|path| std::fs::read(path)).unwrap()
    }

    /// Is a later segment unsettled once these have been in force, one a second?
    fn moved(sequence: &[&[(&str, bool)]]) -> bool {
        let epoch = Instant::now();
        let moves = SegmentMoves::since(epoch);
        let (mut former, mut now) = (Snapshot::empty(), epoch);
        for hooks in sequence {
            let new = snapshot(hooks);
            now += Duration::from_secs(1);
            moves.record_change(&former, &new, now);
            former = new;
        }
        moves.are_unsettled(LATER, now)
    }

    const LATER: Segment = Segment { number: 2, of: 3 };

    #[test]
    fn hook_in_another_segment_has_moved() {
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
        for (new, has) in cases {
            assert_eq!(moved(&[&former, new]), has, "{new:?}");
        }
        assert!(!moved(&[&former]), "nothing was in force before");
    }

    #[test]
    fn removed_hook_may_return_only_in_its_former_segment() {
        let former = [("a", false), ("b", true), ("c", false), ("d", false)];
        let without = [("a", false), ("b", true), ("d", false)];
        let cases: [(&[(&str, bool)], bool); 5] = [
            (&former, false),
            (&[("c", false), ("a", false), ("b", true), ("d", false)], true),
            (&[("x", false), ("a", false), ("b", true), ("d", false)], true),
            (&[("a", false), ("b", true), ("x", false), ("d", false)], false),
            (&without, false),
        ];
        for (new, has) in cases {
            assert_eq!(moved(&[&former, &without, new]), has, "{new:?}");
            assert_eq!(moved(&[&former, new]), has, "at once: {new:?}");
        }
        assert!(moved(&[&former, &[], &[("a", false)]]), "another number of segments, and none between");
    }

    #[test]
    fn move_settles_after_replicas_and_older_requests() {
        let epoch = Instant::now();
        let moves = SegmentMoves::since(epoch);
        let [first, whole] = [(1, 3), (1, 1)].map(|(number, of)| Segment { number, of });
        let unsettled = |at| [whole, first, LATER].map(|segment| moves.are_unsettled(segment, at));
        assert_eq!(unsettled(epoch), [false; 3]);
        let (one, two) = (snapshot(&[("a", false), ("b", false)]), snapshot(&[("a", false), ("b", true)]));
        moves.record_change(&one, &one, epoch);
        assert_eq!(unsettled(epoch), [false; 3]);
        let at = epoch + Duration::from_secs(1);
        moves.record_change(&one, &two, at);
        moves.record_change(&two, &two, at + UNSETTLED_FOR / 2);
        let just_before = |end: Duration| at + end - Duration::from_millis(1);
        assert_eq!((unsettled(at), unsettled(just_before(UNKNOWN_FOR))), ([false, true, true], [false, true, true]));
        assert_eq!(unsettled(at + UNKNOWN_FOR), [false, false, true]);
        assert_eq!(
            (unsettled(just_before(UNSETTLED_FOR)), unsettled(at + UNSETTLED_FOR)),
            ([false, false, true], [false; 3])
        );
    }

    #[test]
    fn removed_hooks_are_forgotten_with_their_requests() {
        let (former, without) = ([("a", true), ("b", true), ("c", true)], [("a", true), ("b", true)]);
        let elsewhere = snapshot(&[("c", true), ("x", true)]);
        let epoch = Instant::now();
        let moves = SegmentMoves::since(epoch);
        moves.record_change(&snapshot(&former), &Snapshot::empty(), epoch);
        moves.record_change(&Snapshot::empty(), &snapshot(&without), epoch + UNSETTLED_FOR);
        assert!(moves.removed.lock().unwrap().is_empty());
        moves.record_change(&Snapshot::empty(), &elsewhere, epoch + UNSETTLED_FOR);
        assert!(!moves.are_unsettled(LATER, epoch + UNSETTLED_FOR));
    }
}
