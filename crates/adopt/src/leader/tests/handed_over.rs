//! State of one leader as the next one goes on with it.

use super::*;

#[test]
fn next_leader_continues_the_pause_after_failed_announcements() {
    let (mut leader, at) = (Leader::default(), Duration::from_secs);
    for second in [0, 6, 21, 27] {
        turn(&mut leader, second, &seen(false), true, &["b"]);
    }
    let records = leader.records(at(30));
    assert_eq!(
        records.values().map(|records| (records.failures, records.failure_pause_left_secs)).collect::<Vec<_>>(),
        [(2, 27)]
    );
    let mut next = Leader::default();
    let begin = |next: &mut Leader, records| next.begin(at(1000), &[seen(false)], &Announcement::default(), records);
    begin(&mut next, &records);
    let left = Decision::Leave(Reason::NotCalled(Vec::new()));
    assert_eq!(turn(&mut next, 1000, &seen(false), false, &["b"]), left);
    assert_eq!(turn(&mut next, 1026, &seen(false), false, &["b"]), left);
    assert_eq!(turn(&mut next, 1027, &seen(false), false, &["b"]), Decision::Announce);
    assert_ne!(turn(&mut next, 1033, &seen(false), true, &["b"]), Decision::Announce);
    assert_eq!(
        next.records(at(1033)).values().map(|records| records.failure_pause_left_secs).max(),
        Some(60),
        "twice as long"
    );
    let odd: BTreeMap<_, _> = records
        .keys()
        .map(|id| {
            (
                id.clone(),
                FightRecord { failures: u32::MAX, failure_pause_left_secs: u64::MAX, ..FightRecord::default() },
            )
        })
        .collect();
    begin(&mut next, &odd);
    assert_eq!(turn(&mut next, 4600, &seen(false), false, &["b"]), Decision::Announce, "an hour at most");
    assert_ne!(turn(&mut next, 4606, &seen(false), true, &["b"]), Decision::Announce);
    assert_eq!(turn(&mut next, 8300, &seen(false), true, &[]), Decision::Announce);
    assert_eq!(turn(&mut next, 8302, &seen(false), true, &[]), Decision::Take);
    assert_eq!(turn(&mut next, 8303, &seen(true), true, &[]), Decision::Keep);
    assert!(next.records(at(8303)).is_empty(), "once it was taken");
}

#[test]
fn next_leader_takes_an_announced_webhook_without_waiting_for_the_former_leader() {
    let (seen, stalled) = (seen(false), ["b".to_owned()]);
    let before = Announcement { epoch: 1, ids: [seen.standing.id.clone()].into(), ..Announcement::default() };
    let begun = |unconfirmed_by_stalled| {
        let mut leader = Leader::default();
        leader.begin(Duration::ZERO, std::slice::from_ref(&seen), &before, &BTreeMap::new());
        let (unconfirmed, not_claiming) = (Vec::new(), Vec::new());
        let facts = Facts {
            seen: &seen,
            announced: true,
            unconfirmed,
            not_claiming,
            stalled: &stalled,
            unconfirmed_by_stalled,
            missing: None,
        };
        [0, 2].map(|second| leader.turn(Duration::from_secs(second), std::slice::from_ref(&facts), None).remove(0).1)
    };
    assert_eq!(begun(false), [Decision::Announce, Decision::Take], "it has said that it calls it");
    let left = Decision::Fence(Reason::NotCalled(stalled.to_vec()));
    assert_eq!(begun(true), [left.clone(), left]);
}

#[test]
fn next_leader_continues_ending_webhooks() {
    let (mut leader, seen) = (Leader::default(), AssessedEntry { in_flight: Duration::from_secs(3), ..seen(false) });
    let before = Announcement { ending: [seen.standing.id.clone()].into(), ..Announcement::default() };
    leader.begin(Duration::ZERO, std::slice::from_ref(&seen), &before, &BTreeMap::new());
    let is_ending = |milliseconds| leader.is_ending(&seen.standing.key, Duration::from_millis(milliseconds));
    assert_eq!((is_ending(4499), is_ending(4500)), (true, false));
}

#[test]
fn next_leader_continues_ending_of_webhooks_that_may_have_been_taken() {
    let (mut leader, slow) = (Leader::default(), AssessedEntry { in_flight: Duration::from_secs(20), ..seen(false) });
    let before = Announcement { epoch: 1, ids: [slow.standing.id.clone()].into(), ..Announcement::default() };
    leader.begin(Duration::ZERO, std::slice::from_ref(&slow), &before, &BTreeMap::new());
    let at = Duration::from_millis;
    let is_ending = |leader: &Leader, milliseconds| leader.is_ending(&slow.standing.key, at(milliseconds));
    assert_eq!((is_ending(&leader, 21_499), is_ending(&leader, 21_500)), (true, false));
    // The fence makes it another object; until then it may be taken.
    let mut fenced = AssessedEntry { wanted: Err(Reason::Released), ..slow.clone() };
    assert_eq!(turn(&mut leader, 1, &fenced, true, &[]), Decision::Fence(Reason::Released));
    fenced.standing.version = "9".to_owned();
    assert_eq!(turn(&mut leader, 10, &fenced, true, &[]), Decision::Leave(Reason::Released));
    assert_eq!((is_ending(&leader, 31_499), is_ending(&leader, 31_500)), (true, false));
}

#[test]
fn leaders_that_alternate_do_not_write_for_ever() {
    let (seen, at) = (seen(false), Duration::from_secs);
    let before = Announcement { epoch: 1, ids: [seen.standing.id.clone()].into(), ..Announcement::default() };
    let (mut records, mut takes) = (BTreeMap::new(), 0);
    for leads in 0..10 {
        let mut leader = Leader::default();
        leader.begin(at(10 * leads), std::slice::from_ref(&seen), &before, &records);
        // Its first write gets no answer, and another one leads.
        for second in [0, 2] {
            takes += u32::from(turn(&mut leader, 10 * leads + second, &seen, true, &[]) == Decision::Take);
        }
        records = leader.records(at(10 * leads + 2));
    }
    assert_eq!(takes, 3);
}

#[test]
fn taken_webhook_is_no_longer_inherited_from_the_former_leader() {
    let (plain, stalled) = (seen(false), ["b".to_owned()]);
    let before = Announcement { epoch: 1, ids: [plain.standing.id.clone()].into(), ..Announcement::default() };
    for is_read in [true, false] {
        let mut leader = Leader::default();
        leader.begin(Duration::ZERO, std::slice::from_ref(&plain), &before, &BTreeMap::new());
        match is_read {
            true => assert_eq!(turn(&mut leader, 1, &seen(true), true, &[]), Decision::Keep),
            false => leader.on_taken(&plain.standing.key, Duration::from_millis(1500)),
        }
        // Its owner drops it, and a replica stalls.
        let (unconfirmed, not_claiming) = (stalled.to_vec(), Vec::new());
        let (seen, stalled) = (&plain, &stalled);
        let facts = Facts {
            seen,
            announced: true,
            unconfirmed,
            not_claiming,
            stalled,
            unconfirmed_by_stalled: true,
            missing: None,
        };
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
        webhook.standing.key.name = name;
        webhook
    };
    let fought = turn(&mut leader, 0, &of("fought".to_owned(), true), true, &[]);
    assert_eq!(fought, Decision::Keep);
    let all: Vec<_> = (0..MAX_FIGHTS).map(|number| of(format!("w{number:03}"), false)).collect();
    let dropped = of("fought".to_owned(), false);
    for second in [1, 7, 22, 28] {
        let facts = |seen| Facts {
            seen,
            announced: true,
            unconfirmed: vec!["b".to_owned()],
            not_claiming: Vec::new(),
            stalled: &[],
            unconfirmed_by_stalled: false,
            missing: None,
        };
        let mut facts: Vec<_> = all.iter().chain([&dropped]).map(facts).collect();
        facts[MAX_FIGHTS].unconfirmed.clear();
        leader.turn(at(second), &facts, None);
    }
    let records = leader.records(at(28));
    assert_eq!((records.len(), records.contains_key(&dropped.standing.key.id())), (MAX_FIGHTS, true));
}
