//! Plan: the next step of a renewal. Nothing is served before every registration has trusted its authority for a while,
//! and no authority goes while a replica may serve what it has signed.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use super::stored::{Since, Stored};
use crate::tls::expiry;

/// Settling times after which every replica has a new pair: the kubelet looks once a minute.
const MOUNTED_AFTER: u32 = 4;
/// The part of its life, as a divisor, that a pair has left when it is replaced although nobody is known to trust the
/// next one: expired, it fails for certain. More of a short life, so that the next one is mounted in time.
const AT_LAST: u32 = 10;

/// Shortest life of a certificate with this settling time: in its last third the next one settles and is mounted.
pub(super) fn shortest(settle: Duration) -> Duration {
    settle.saturating_mul(3 * (1 + MOUNTED_AFTER))
}

/// Certificate as it should be.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// DNS names and addresses.
    pub(super) names: Vec<String>,
    /// Time in which all apiservers see a change of the registration.
    pub(super) settle: Duration,
    /// A new one, whatever the age of the old one.
    pub(super) renew: bool,
}

/// One change of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a pair and serve it: there is none.
    Issue,
    /// Make the next pair, and its authority known.
    Prepare,
    /// Note that the next pair's authority is trusted everywhere.
    Trust,
    /// Nothing: nobody is known to trust the next pair's authority.
    Hold,
    /// Serve the next pair.
    Promote,
    /// Forget authorities of former pairs.
    Retire,
    /// Nothing, for so long.
    Rest(Duration),
}

/// Callers and replicas, as they were just seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Each replica serves the current pair.
    pub(super) alone: bool,
    /// Until a moment ago some registration did not trust all that is stored.
    pub(super) distrusted: bool,
    /// Some registration that has to trust it does not name the Service.
    pub(super) unregistered: bool,
}

/// The next step, with every registration that there is trusting what is stored.
pub(super) fn step(stored: &Stored, wanted: &Wanted, seen: Seen, now: SystemTime) -> Step {
    if let Some(next) = &stored.next {
        return promotion(stored.current.as_ref(), next, wanted, seen, now);
    }
    let Some(current) = &stored.current else { return Step::Issue };
    let left = until_due(current, &wanted.names, now);
    if wanted.renew || left.is_zero() {
        return Step::Prepare;
    }
    if !stored.former.is_empty() {
        let mounted = wanted.settle * MOUNTED_AFTER;
        let served = current.since.and_then(|since| now.duration_since(since).ok());
        let all_ended = stored.former_at(now).is_empty();
        if all_ended || seen.alone && served.is_none_or(|served| served >= mounted) {
            return Step::Retire;
        }
    }
    Step::Rest(left)
}

/// The next step of a renewal that has begun. A current pair that is broken, or has ended, waits for nobody's trust.
fn promotion(current: Option<&Since>, next: &Since, wanted: &Wanted, seen: Seen, now: SystemTime) -> Step {
    let validity = current.and_then(|current| current.pair.validity());
    let (life, left) = validity.map_or_else(Default::default, |(begin, end)| {
        (end.duration_since(begin).unwrap_or_default(), end.duration_since(now).unwrap_or_default())
    });
    // In a tenth of a short life no replica would have the next one before this one ends.
    let may_wait = left > (life / AT_LAST).max(shortest(wanted.settle) / 3);
    if seen.unregistered && may_wait {
        return Step::Hold;
    }
    // Once an older bundle was put back, apiservers trust nothing but that for a while. Doing so again and again does
    // not keep the next one back until this one has ended.
    if seen.distrusted && may_wait {
        return Step::Trust;
    }
    match next.since.map(|since| now.duration_since(since)) {
        // The clock was set back: count anew.
        None | Some(Err(_)) => Step::Trust,
        Some(Ok(elapsed)) if elapsed >= wanted.settle => Step::Promote,
        Some(Ok(elapsed)) => Step::Rest(wanted.settle.saturating_sub(elapsed)),
    }
}

/// Time until that pair is renewed: at two thirds of its life, or at once where it lacks a name.
fn until_due(current: &Since, names: &[String], now: SystemTime) -> Duration {
    let Some((begin, end)) = current.pair.validity() else { return Duration::ZERO };
    let has = expiry::dns_names(current.pair.certificate.as_bytes());
    if names.iter().any(|name| name.parse::<IpAddr>().is_err() && !has.contains(name)) {
        return Duration::ZERO;
    }
    let life = end.duration_since(begin).unwrap_or_default();
    (begin + life * 2 / 3).duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::issue::issue, *};

    const HOUR: Duration = Duration::from_secs(3600);
    const SETTLE: Duration = Duration::from_secs(30);
    const UNSEEN: Seen = Seen { alone: false, distrusted: false, unregistered: false };
    const ALONE: Seen = Seen { alone: true, ..UNSEEN };

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn names() -> Vec<String> {
        vec!["a.b.svc".to_owned(), "192.0.2.1".to_owned()]
    }

    fn wanted() -> Wanted {
        Wanted { names: names(), settle: SETTLE, renew: false }
    }

    fn new(now: SystemTime) -> super::super::stored::Pair {
        issue(&names(), HOUR * 30, now).unwrap()
    }

    #[test]
    fn a_renewal_makes_its_authority_known_first_and_forgets_the_old_one_last() {
        let (wanted, mut now) = (wanted(), start());
        assert_eq!(step(&Stored::default(), &wanted, UNSEEN, now), Step::Issue);
        let mut stored = Stored::default().issued(new(now), now);
        let Step::Rest(left) = step(&stored, &wanted, UNSEEN, now) else { panic!("due at once") };
        assert!(left > HOUR * 19 && left <= HOUR * 20, "two thirds of thirty hours: {left:?}");

        now += left;
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Prepare);
        stored = stored.prepared(new(now));
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Trust);
        stored = stored.trusted(now);
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Rest(SETTLE));
        assert_eq!(step(&stored, &wanted, ALONE, now - HOUR), Step::Trust, "the clock was set back");
        now += SETTLE;
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Promote);
        stored = stored.promoted(now);
        assert!(matches!(step(&stored, &wanted, ALONE, now), Step::Rest(_)), "a replica may not have it yet");
        now += SETTLE * MOUNTED_AFTER;
        assert!(matches!(step(&stored, &wanted, UNSEEN, now), Step::Rest(_)), "a replica serves the old one");
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Retire);
        assert!(matches!(step(&stored.retired(), &wanted, ALONE, now), Step::Rest(_)));
        // Where that cannot be seen, the former certificate is retired once it has expired.
        assert!(matches!(step(&stored, &wanted, UNSEEN, start() + HOUR * 29), Step::Rest(_) | Step::Prepare));
        let late = Stored { former: stored.former.clone(), ..Stored::default().issued(new(start() + HOUR * 40), now) };
        assert_eq!(step(&late, &wanted, UNSEEN, start() + HOUR * 41), Step::Retire);
    }

    #[test]
    fn a_pair_is_renewed_at_once_where_it_is_wanted_or_lacks_a_name() {
        let (now, stored) = (start(), Stored::default().issued(new(start()), start()));
        assert_eq!(step(&stored, &Wanted { renew: true, ..wanted() }, UNSEEN, now), Step::Prepare);
        let more = Wanted { names: vec!["other.b.svc".to_owned()], ..wanted() };
        assert_eq!(step(&stored, &more, UNSEEN, now), Step::Prepare);
        let prepared = stored.prepared(new(now)).trusted(now);
        let renew = Wanted { renew: true, ..wanted() };
        assert_eq!(step(&prepared, &renew, UNSEEN, now), Step::Rest(SETTLE), "one renewal at a time");
    }

    #[test]
    fn nothing_is_served_that_nobody_is_known_to_trust() {
        let (now, wanted) = (start(), wanted());
        let unregistered = Seen { unregistered: true, ..UNSEEN };
        let stored = Stored::default().issued(new(now), now);
        assert!(matches!(step(&stored, &wanted, unregistered, now), Step::Rest(_)), "nothing is registered yet");
        let prepared = stored.prepared(new(now));
        let trusted = prepared.trusted(now);
        for stored in [&prepared, &trusted] {
            assert_eq!(step(stored, &wanted, unregistered, now + SETTLE), Step::Hold);
        }
        assert_eq!(step(&trusted, &wanted, unregistered, now + HOUR * 26), Step::Hold);
        assert_eq!(step(&trusted, &wanted, unregistered, now + HOUR * 28), Step::Promote, "the current one ends soon");
        assert_eq!(step(&prepared, &wanted, unregistered, now + HOUR * 28), Step::Trust);
        assert_eq!(step(&trusted, &wanted, UNSEEN, now + SETTLE), Step::Promote);
    }

    #[test]
    fn trust_that_was_taken_away_is_counted_anew() {
        let (now, wanted) = (start(), wanted());
        let distrusted = Seen { distrusted: true, ..ALONE };
        let stored = Stored::default().issued(new(now), now).prepared(new(now)).trusted(now);
        assert_eq!(step(&stored, &wanted, distrusted, now + SETTLE), Step::Trust);
        let stored = stored.trusted(now + SETTLE);
        assert_eq!(step(&stored, &wanted, ALONE, now + SETTLE), Step::Rest(SETTLE));
        assert_eq!(step(&stored, &wanted, distrusted, now + HOUR * 26), Step::Trust);
        assert_eq!(step(&stored, &wanted, distrusted, now + HOUR * 28), Step::Promote, "the current one ends soon");
    }

    #[test]
    fn of_a_short_life_enough_is_left_for_the_next_one_to_be_mounted() {
        let (now, wanted) = (start(), wanted());
        let short = |now| issue(&names(), HOUR / 4, now).unwrap();
        let stored = Stored::default().issued(short(now), now).prepared(short(now)).trusted(now);
        let (_, end) = Since { pair: short(now), since: None }.pair.validity().unwrap();
        let last = end - SETTLE * (1 + MOUNTED_AFTER);
        for (seen, waits) in
            [(Seen { unregistered: true, ..UNSEEN }, Step::Hold), (Seen { distrusted: true, ..UNSEEN }, Step::Trust)]
        {
            assert_eq!(step(&stored, &wanted, seen, last - SETTLE), waits);
            assert_eq!(step(&stored, &wanted, seen, last), Step::Promote);
        }
    }

    #[test]
    fn a_broken_pair_is_followed_by_the_next_one_and_not_by_an_unknown_one() {
        let (now, wanted) = (start(), wanted());
        let next = Stored::default().issued(new(now), now).prepared(new(now)).trusted(now).next;
        let broken = Stored { next, ..Stored::default() };
        for seen in [UNSEEN, Seen { unregistered: true, distrusted: true, alone: false }] {
            assert_eq!(step(&broken, &wanted, seen, now + SETTLE), Step::Promote);
        }
    }

    #[test]
    fn the_shortest_life_has_room_for_a_renewal() {
        assert_eq!(shortest(SETTLE), Duration::from_secs(450));
        assert_eq!(shortest(Duration::MAX), Duration::MAX);
        let (now, wanted) = (start(), wanted());
        let pair = issue(&names(), shortest(SETTLE), now).unwrap();
        let Step::Rest(due) = step(&Stored::default().issued(pair.clone(), now), &wanted, ALONE, now) else {
            panic!("due at once")
        };
        let (_, end) = Since { pair, since: None }.pair.validity().unwrap();
        assert!(now + due + SETTLE * (1 + MOUNTED_AFTER) <= end, "{due:?}");
    }
}
