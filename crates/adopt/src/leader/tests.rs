//! Decisions on one webhook, turn by turn.

mod handed_over;

use serde_json::json;

use super::*;
use crate::webhooks_of;
use gatepost_api::HookType;

fn seen(carries: bool) -> AssessedEntry {
    let mut entry = json!({"name": "w"});
    if carries {
        entry["matchConditions"] = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
    }
    let object = json!({"metadata": {"name": "c"}, "webhooks": [entry]});
    let standing = webhooks_of(HookType::Validating, &object).remove(0);
    AssessedEntry::sound(standing)
}

fn turn(leader: &mut Leader, second: u64, seen: &AssessedEntry, announced: bool, missing: &[&str]) -> Decision {
    let missing: Vec<_> = missing.iter().map(|name| (*name).to_owned()).collect();
    let facts = Facts {
        seen,
        announced,
        unconfirmed: missing.clone(),
        not_claiming: missing,
        stalled: &[],
        unconfirmed_by_stalled: false,
        missing: None,
    };
    leader.turn(Duration::from_secs(second), &[facts], None).remove(0).1
}

#[test]
fn webhook_is_taken_once_every_replica_calls_it() {
    let mut leader = Leader::default();
    assert_eq!(turn(&mut leader, 0, &seen(false), false, &[]), Decision::Announce, "nobody has read it yet");
    assert_eq!(turn(&mut leader, 1, &seen(false), true, &["b"]), Decision::Announce);
    assert_eq!(turn(&mut leader, 2, &seen(false), true, &[]), Decision::Take);
    assert_eq!(turn(&mut leader, 3, &seen(true), true, &[]), Decision::Keep);
    assert_eq!(turn(&mut leader, 4, &seen(false), true, &[]), Decision::Take, "the owner dropped it");
    assert_eq!(leader.drops, 1);
}

#[test]
fn webhook_that_a_replica_does_not_call_is_left_after_the_announcement() {
    let mut leader = Leader::default();
    assert_eq!(turn(&mut leader, 0, &seen(false), true, &["b"]), Decision::Announce);
    let left = Decision::Leave(Reason::NotCalled(vec!["b".to_owned()]));
    assert_eq!(turn(&mut leader, 6, &seen(false), true, &["b"]), left);
    assert_eq!(turn(&mut leader, 20, &seen(false), true, &[]), left);
    assert_eq!(turn(&mut leader, 21, &seen(false), false, &["b"]), Decision::Announce);
    assert_eq!(turn(&mut leader, 27, &seen(false), true, &["b"]), left);
    assert_eq!(turn(&mut leader, 56, &seen(false), true, &[]), left, "twice as long");
    assert_eq!(turn(&mut leader, 57, &seen(false), true, &[]), Decision::Announce);
}

#[test]
fn nothing_is_announced_to_a_replica_that_does_not_answer() {
    let (mut leader, seen, stalled) = (Leader::default(), seen(false), ["b".to_owned()]);
    let mut turn = |second, stalled| {
        let (unconfirmed, not_claiming) = (vec!["b".to_owned()], Vec::new());
        let facts = Facts {
            seen: &seen,
            announced: false,
            unconfirmed,
            not_claiming,
            stalled,
            unconfirmed_by_stalled: false,
            missing: None,
        };
        leader.turn(Duration::from_secs(second), &[facts], None).remove(0).1
    };
    assert_eq!(turn(0, &stalled), Decision::Leave(Reason::NotCalled(stalled.to_vec())));
    assert_eq!(turn(1, &[]), Decision::Announce, "as soon as it has ended, or answers");
    assert_eq!(turn(2, &stalled), Decision::Announce, "what is announced stays so for a while");
}

#[test]
fn changed_webhook_is_taken_once_every_replica_has_read_the_change() {
    let mut leader = Leader::default();
    let mut changed = seen(false);
    changed.standing.content["rules"] = json!([{}]);
    assert_eq!(turn(&mut leader, 0, &seen(false), true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 2, &changed, true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 3, &changed, true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 4, &changed, true, &[]), Decision::Take);
}

#[test]
fn webhook_that_changes_at_every_turn_is_left_as_unservable() {
    let mut leader = Leader::default();
    let mut last = Decision::Keep;
    for second in 0..7 {
        let mut changed = seen(false);
        changed.standing.content["timeoutSeconds"] = second.into();
        last = turn(&mut leader, second, &changed, true, &[]);
    }
    let Decision::Leave(Reason::Unservable(why)) = last else { panic!("{last:?}") };
    assert!(why.contains("changes all the time"));
}

#[test]
fn webhook_is_not_taken_without_finalizer_on_the_registration() {
    let mut leader = Leader::default();
    let open = AssessedEntry { guarded: false, ..seen(false) };
    assert_eq!(turn(&mut leader, 0, &open, true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 2, &open, true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 3, &seen(false), true, &[]), Decision::Take);
}

#[test]
fn webhook_with_a_write_in_flight_is_fenced() {
    let mut leader = Leader::default();
    let released = AssessedEntry { wanted: Err(Reason::Released), ..seen(false) };
    let (fence, leave) = (Decision::Fence(Reason::Released), Decision::Leave(Reason::Released));
    assert_eq!(turn(&mut leader, 0, &seen(false), true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 1, &released, true, &[]), leave, "nothing was written");
    assert_eq!(turn(&mut leader, 2, &seen(false), true, &[]), Decision::Announce);
    assert_eq!(turn(&mut leader, 4, &seen(false), true, &[]), Decision::Take);
    assert_eq!(turn(&mut leader, 5, &released, true, &[]), fence);
    let mut other = released.clone();
    other.standing.version = "8".to_owned();
    assert_eq!(turn(&mut leader, 6, &other, true, &[]), leave);
    let before = Announcement { epoch: 1, ids: [released.standing.id.clone()].into(), ..Default::default() };
    leader.begin(Duration::from_secs(7), std::slice::from_ref(&released), &before, &BTreeMap::new());
    assert_eq!(turn(&mut leader, 7, &released, true, &[]), fence, "of the leader before us");
    assert_eq!(turn(&mut leader, 100, &released, true, &[]), fence, "until it is another object");
    leader.on_refusal(&released.standing.key, "422".to_owned(), Duration::from_secs(101));
    assert_eq!(turn(&mut leader, 102, &released, true, &[]), leave, "which takes no such write either");
}

#[test]
fn taken_webhook_that_a_replica_does_not_call_is_given_back() {
    let mut leader = Leader::default();
    assert_eq!(turn(&mut leader, 0, &seen(true), true, &["b"]), Decision::Keep);
    assert_eq!(turn(&mut leader, 3, &seen(true), true, &[]), Decision::Keep);
    assert_eq!(turn(&mut leader, 4, &seen(true), true, &["b"]), Decision::Keep);
    assert!(matches!(turn(&mut leader, 10, &seen(true), true, &["b"]), Decision::GiveBack(_)));
    let broken = AssessedEntry { reason_not_to_adopt: Some(Reason::Hazard("x".to_owned())), ..seen(true) };
    assert_eq!(
        turn(&mut leader, 11, &broken, true, &[]),
        Decision::GiveBack(Reason::Hazard("x".to_owned())),
        "at once"
    );
    assert!(matches!(
        turn(&mut leader, 12, &AssessedEntry { reason_not_to_adopt: None, ..seen(false) }, false, &[]),
        Decision::Leave(_)
    ));
    assert_eq!(leader.drops, 0, "we gave it back ourselves");
}

#[test]
fn release_ends_a_fight() {
    let mut leader = Leader::default();
    for second in 0..8 {
        turn(&mut leader, second, &seen(second % 2 == 0), true, &[]);
    }
    let fought = |decision: &Decision| matches!(decision, Decision::Leave(Reason::Fought(_)));
    let last = turn(&mut leader, 8, &seen(false), true, &[]);
    assert!(fought(&last), "{last:?}");
    let released = AssessedEntry { wanted: Err(Reason::Released), ..seen(false) };
    assert_eq!(turn(&mut leader, 9, &released, true, &[]), Decision::Leave(Reason::Released));
    assert_eq!(turn(&mut leader, 10, &seen(false), true, &[]), Decision::Announce);
}

#[test]
fn giving_back_by_a_starting_replica_is_not_a_drop_by_the_owner() {
    let mut leader = Leader::default();
    let mut given_back = seen(false);
    given_back.standing.given_back = true;
    for second in (0..40).step_by(10) {
        assert_eq!(turn(&mut leader, second, &seen(true), true, &[]), Decision::Keep);
        assert_eq!(turn(&mut leader, second + 1, &given_back, true, &["b"]), Decision::Announce, "{second}");
        assert_eq!(turn(&mut leader, second + 2, &seen(false), true, &[]), Decision::Announce, "not at once");
        assert_eq!(turn(&mut leader, second + 3, &seen(false), true, &[]), Decision::Take);
    }
    assert_eq!(leader.drops, 0);
}

#[test]
fn rejected_write_pauses_a_webhook_that_keeps_the_condition() {
    let mut leader = Leader::default();
    let key = seen(true).standing.key;
    let is_paused = |leader: &Leader, second| leader.is_paused(&key, Duration::from_secs(second));
    assert_eq!(turn(&mut leader, 0, &seen(true), true, &[]), Decision::Keep);
    assert!(!is_paused(&leader, 0));
    leader.on_refusal(&key, "422".to_owned(), Duration::from_secs(1));
    assert_eq!(turn(&mut leader, 2, &seen(true), true, &[]), Decision::Keep, "as it is");
    assert_eq!((is_paused(&leader, 2), is_paused(&leader, 60), is_paused(&leader, 61)), (true, true, false));
}

#[test]
fn webhook_is_left_if_full_fought_refused_or_the_apiserver_is_old() {
    let mut leader = Leader::default();
    let mut full = seen(false);
    full.standing.other_conditions = 64;
    assert_eq!(turn(&mut leader, 0, &full, true, &[]), Decision::Leave(Reason::Full));
    let (unconfirmed, not_claiming) = (Vec::new(), Vec::new());
    let facts = Facts {
        seen: &seen(false),
        announced: true,
        unconfirmed,
        not_claiming,
        stalled: &[],
        unconfirmed_by_stalled: false,
        missing: None,
    };
    let old = leader.turn(Duration::ZERO, std::slice::from_ref(&facts), Some("1.27")).remove(0).1;
    assert_eq!(old, Decision::Leave(Reason::NoConditions("1.27".to_owned())));
    for second in 0..4 {
        assert_eq!(turn(&mut leader, 10 + 2 * second, &seen(true), true, &[]), Decision::Keep);
        let after = turn(&mut leader, 11 + 2 * second, &seen(false), true, &[]);
        match second {
            0..3 => assert_eq!(after, Decision::Take),
            _ => assert_eq!(after, Decision::Leave(Reason::Fought(4))),
        }
    }
    leader.on_refusal(&seen(false).standing.key, "422".to_owned(), Duration::from_secs(1000));
    assert_eq!(
        turn(&mut leader, 1001, &seen(false), true, &[]),
        Decision::Leave(Reason::ConditionNotApplied("422".to_owned()))
    );
}

#[test]
fn missing_receiver_prevents_taking_and_gives_back_when_overdue() {
    let mut leader = Leader::default();
    let mut turn = |second, carries, missing| {
        let (unconfirmed, not_claiming) = (Vec::new(), Vec::new());
        let facts = Facts {
            seen: &seen(carries),
            announced: true,
            unconfirmed,
            not_claiming,
            stalled: &[],
            unconfirmed_by_stalled: false,
            missing,
        };
        leader.turn(Duration::from_secs(second), &[facts], None).remove(0).1
    };
    let reason = || Reason::ReplicaMissing("b".to_owned());
    assert_eq!(turn(0, false, Some(("b", false))), Decision::Leave(reason()));
    assert_eq!(turn(1, false, None), Decision::Announce);
    assert_eq!(turn(3, false, None), Decision::Take);
    assert_eq!(turn(4, false, Some(("b", false))), Decision::Fence(reason()), "a write may be on its way");
    assert_eq!(turn(5, true, Some(("b", false))), Decision::Keep, "a restart");
    assert_eq!(turn(6, true, Some(("b", true))), Decision::GiveBack(reason()));
    assert_eq!(turn(7, false, None), Decision::Leave(reason()), "for a while");
    assert_eq!(turn(66, false, None), Decision::Announce);
}

#[test]
fn foreign_condition_of_our_name_is_the_reason_even_if_not_wanted() {
    let mut leader = Leader::default();
    let mut odd = seen(false);
    (odd.unservable, odd.wanted) = (Some(Reason::ForeignCondition), Err(Reason::NotWanted));
    assert_eq!(turn(&mut leader, 0, &odd, true, &[]), Decision::Leave(Reason::ForeignCondition));
}

#[test]
fn announcement_counts_from_its_write() {
    let mut leader = Leader::default();
    assert_eq!(turn(&mut leader, 0, &seen(false), false, &[]), Decision::Announce);
    leader.on_announced(Duration::ZERO, Duration::from_millis(600));
    assert_eq!(turn(&mut leader, 2, &seen(false), true, &[]), Decision::Announce, "a replica may not have read it");
    leader.on_announced(Duration::from_secs(2), Duration::from_millis(2600));
    assert_eq!(turn(&mut leader, 3, &seen(false), true, &[]), Decision::Take);
}

#[test]
fn unanswered_writes_are_tried_three_times() {
    let mut leader = Leader::default();
    let mut takes = 0;
    for second in 0..20 {
        takes += u32::from(turn(&mut leader, second, &seen(false), true, &[]) == Decision::Take);
    }
    assert_eq!(takes, 3);
}

#[test]
fn webhook_with_a_failed_write_is_ending_for_the_in_flight_time() {
    let (mut leader, at) = (Leader::default(), Duration::from_millis);
    let slow = AssessedEntry { in_flight: Duration::from_secs(20), ..seen(false) };
    for (second, decision) in [(0, Decision::Announce), (2, Decision::Take)] {
        assert_eq!(turn(&mut leader, second, &slow, true, &[]), decision);
    }
    // It has no answer; the owner has replaced the object; and now it is wanted no longer.
    let mut replaced = AssessedEntry { wanted: Err(Reason::Released), ..slow };
    replaced.standing.version = "9".to_owned();
    assert_eq!(turn(&mut leader, 3, &replaced, true, &[]), Decision::Leave(Reason::Released));
    let is_ending = |milliseconds| leader.is_ending(&replaced.standing.key, at(milliseconds));
    assert_eq!((is_ending(24_499), is_ending(24_500)), (true, false));
}

#[test]
fn release_ends_a_pause() {
    let mut leader = Leader::default();
    assert_eq!(turn(&mut leader, 0, &seen(false), true, &["b"]), Decision::Announce);
    assert!(matches!(turn(&mut leader, 6, &seen(false), true, &["b"]), Decision::Leave(Reason::NotCalled(_))));
    let released = AssessedEntry { wanted: Err(Reason::Released), ..seen(false) };
    assert_eq!(turn(&mut leader, 7, &released, true, &[]), Decision::Leave(Reason::Released));
    assert_eq!(turn(&mut leader, 8, &seen(false), true, &["b"]), Decision::Announce);
    assert!(matches!(turn(&mut leader, 14, &seen(false), true, &["b"]), Decision::Leave(Reason::NotCalled(_))));
    assert_eq!(turn(&mut leader, 29, &seen(false), true, &["b"]), Decision::Announce, "a first pause again");
}
