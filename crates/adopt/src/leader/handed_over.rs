//! State of one leader as the next one goes on with it.

use super::*;

#[test]
fn the_next_leader_keeps_the_pause_after_announcements_in_vain() {
    let (mut leader, at) = (Leader::default(), Duration::from_secs);
    for second in [0, 6, 21, 27] {
        turn(&mut leader, second, &seen(false), true, &["b"]);
    }
    let kept = leader.kept(at(30));
    assert_eq!(kept.values().map(|kept| (kept.vain, kept.pause)).collect::<Vec<_>>(), [(2, 27)]);
    let mut next = Leader::default();
    let begin = |next: &mut Leader, kept| next.begin(at(1000), &[seen(false)], &Announcement::default(), kept);
    begin(&mut next, &kept);
    let left = Decision::Leave(Reason::NotCalled(Vec::new()));
    assert_eq!(turn(&mut next, 1000, &seen(false), false, &["b"]), left);
    assert_eq!(turn(&mut next, 1026, &seen(false), false, &["b"]), left);
    assert_eq!(turn(&mut next, 1027, &seen(false), false, &["b"]), Decision::Announce);
    assert_ne!(turn(&mut next, 1033, &seen(false), true, &["b"]), Decision::Announce);
    assert_eq!(next.kept(at(1033)).values().map(|kept| kept.pause).max(), Some(60), "twice as long");
    let odd: BTreeMap<_, _> = kept
        .keys()
        .map(|id| (id.clone(), KeptFights { vain: u32::MAX, pause: u64::MAX, ..KeptFights::default() }))
        .collect();
    begin(&mut next, &odd);
    assert_eq!(turn(&mut next, 4600, &seen(false), false, &["b"]), Decision::Announce, "an hour at most");
    assert_ne!(turn(&mut next, 4606, &seen(false), true, &["b"]), Decision::Announce);
    assert_eq!(turn(&mut next, 8300, &seen(false), true, &[]), Decision::Announce);
    assert_eq!(turn(&mut next, 8302, &seen(false), true, &[]), Decision::Take);
    assert_eq!(turn(&mut next, 8303, &seen(true), true, &[]), Decision::Keep);
    assert!(next.kept(at(8303)).is_empty(), "once it was taken");
}

#[test]
fn what_the_leader_before_has_announced_does_not_wait_for_it() {
    let (seen, stalled) = (seen(false), ["b".to_owned()]);
    let before = Announcement { epoch: 1, ids: [seen.standing.id.clone()].into(), ..Announcement::default() };
    let begun = |in_vain| {
        let mut leader = Leader::default();
        leader.begin(Duration::ZERO, std::slice::from_ref(&seen), &before, &BTreeMap::new());
        let (unconfirmed, silent) = (Vec::new(), Vec::new());
        let facts =
            Facts { seen: &seen, announced: true, unconfirmed, silent, stalled: &stalled, in_vain, missing: None };
        [0, 2].map(|second| leader.turn(Duration::from_secs(second), std::slice::from_ref(&facts), None).remove(0).1)
    };
    assert_eq!(begun(false), [Decision::Announce, Decision::Take], "it has said that it calls it");
    let left = Decision::Fence(Reason::NotCalled(stalled.to_vec()));
    assert_eq!(begun(true), [left.clone(), left]);
}

#[test]
fn what_ended_under_the_leader_before_goes_on_ending() {
    let (mut leader, seen) = (Leader::default(), SeenWebhook { in_flight: Duration::from_secs(3), ..seen(false) });
    let before = Announcement { ending: [seen.standing.id.clone()].into(), ..Announcement::default() };
    leader.begin(Duration::ZERO, std::slice::from_ref(&seen), &before, &BTreeMap::new());
    let lingers = |milliseconds| leader.lingers(&seen.standing.key, Duration::from_millis(milliseconds));
    assert_eq!((lingers(4499), lingers(4500)), (true, false));
}

#[test]
fn what_the_leader_before_may_have_taken_unseen_goes_on_ending() {
    let (mut leader, slow) = (Leader::default(), SeenWebhook { in_flight: Duration::from_secs(20), ..seen(false) });
    let before = Announcement { epoch: 1, ids: [slow.standing.id.clone()].into(), ..Announcement::default() };
    leader.begin(Duration::ZERO, std::slice::from_ref(&slow), &before, &BTreeMap::new());
    let at = Duration::from_millis;
    let lingers = |leader: &Leader, milliseconds| leader.lingers(&slow.standing.key, at(milliseconds));
    assert_eq!((lingers(&leader, 21_499), lingers(&leader, 21_500)), (true, false));
    // The fence makes it another object; until then it may be taken.
    let mut fenced = SeenWebhook { wanted: Err(Reason::Released), ..slow.clone() };
    assert_eq!(turn(&mut leader, 1, &fenced, true, &[]), Decision::Fence(Reason::Released));
    fenced.standing.version = "9".to_owned();
    assert_eq!(turn(&mut leader, 10, &fenced, true, &[]), Decision::Leave(Reason::Released));
    assert_eq!((lingers(&leader, 31_499), lingers(&leader, 31_500)), (true, false));
}

#[test]
fn leaders_that_alternate_do_not_write_for_ever() {
    let (seen, at) = (seen(false), Duration::from_secs);
    let before = Announcement { epoch: 1, ids: [seen.standing.id.clone()].into(), ..Announcement::default() };
    let (mut kept, mut takes) = (BTreeMap::new(), 0);
    for leads in 0..10 {
        let mut leader = Leader::default();
        leader.begin(at(10 * leads), std::slice::from_ref(&seen), &before, &kept);
        // Its first write gets no answer, and another one leads.
        for second in [0, 2] {
            takes += u32::from(turn(&mut leader, 10 * leads + second, &seen, true, &[]) == Decision::Take);
        }
        kept = leader.kept(at(10 * leads + 2));
    }
    assert_eq!(takes, 3);
}

#[test]
fn what_was_taken_is_no_longer_announced_by_the_leader_before() {
    let (plain, stalled) = (seen(false), ["b".to_owned()]);
    let before = Announcement { epoch: 1, ids: [plain.standing.id.clone()].into(), ..Announcement::default() };
    for is_read in [true, false] {
        let mut leader = Leader::default();
        leader.begin(Duration::ZERO, std::slice::from_ref(&plain), &before, &BTreeMap::new());
        match is_read {
            true => assert_eq!(turn(&mut leader, 1, &seen(true), true, &[]), Decision::Keep),
            false => leader.landed(&plain.standing.key, Duration::from_millis(1500)),
        }
        // Its owner drops it, and a replica stalls.
        let (unconfirmed, silent) = (stalled.to_vec(), Vec::new());
        let (seen, stalled) = (&plain, &stalled);
        let facts = Facts { seen, announced: true, unconfirmed, silent, stalled, in_vain: true, missing: None };
        let decision = leader.turn(Duration::from_secs(2), &[facts], None).remove(0).1;
        assert_eq!(decision, Decision::Announce, "the replicas call it already");
    }
}

#[test]
fn fights_are_handed_over_before_pauses() {
    let mut leader = Leader::default();
    let at = Duration::from_secs;
    let of = |name: String, carries| {
        let mut webhook = seen(carries);
        webhook.standing.key.webhook = name;
        webhook
    };
    let fought = turn(&mut leader, 0, &of("fought".to_owned(), true), true, &[]);
    assert_eq!(fought, Decision::Keep);
    let all: Vec<_> = (0..MOST_FIGHTS).map(|number| of(format!("w{number:03}"), false)).collect();
    let dropped = of("fought".to_owned(), false);
    for second in [1, 7, 22, 28] {
        let facts = |seen| Facts {
            seen,
            announced: true,
            unconfirmed: vec!["b".to_owned()],
            silent: Vec::new(),
            stalled: &[],
            in_vain: false,
            missing: None,
        };
        let mut facts: Vec<_> = all.iter().chain([&dropped]).map(facts).collect();
        facts[MOST_FIGHTS].unconfirmed.clear();
        leader.turn(at(second), &facts, None);
    }
    let kept = leader.kept(at(28));
    assert_eq!((kept.len(), kept.contains_key(&dropped.standing.key.id())), (MOST_FIGHTS, true));
}
