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
    /// Serve the next pair.
    Promote,
    /// Forget authorities of former pairs.
    Retire,
    /// Nothing, for so long.
    Rest(Duration),
}

/// The next step, with every registration trusting what is stored. `alone` says that each replica was seen to serve the
/// current pair.
pub(super) fn step(stored: &Stored, wanted: &Wanted, alone: bool, now: SystemTime) -> Step {
    let Some(current) = &stored.current else { return Step::Issue };
    if let Some(next) = &stored.next {
        return match next.since.map(|since| now.duration_since(since)) {
            // The clock was set back: count anew.
            None | Some(Err(_)) => Step::Trust,
            Some(Ok(elapsed)) if elapsed >= wanted.settle => Step::Promote,
            Some(Ok(elapsed)) => Step::Rest(wanted.settle.saturating_sub(elapsed)),
        };
    }
    let left = until_due(current, &wanted.names, now);
    if wanted.renew || left.is_zero() {
        return Step::Prepare;
    }
    if !stored.former.is_empty() {
        let mounted = wanted.settle * MOUNTED_AFTER;
        let served = current.since.and_then(|since| now.duration_since(since).ok());
        let all_ended = stored.former_at(now).is_empty();
        if all_ended || alone && served.is_none_or(|served| served >= mounted) {
            return Step::Retire;
        }
    }
    Step::Rest(left)
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
        assert_eq!(step(&Stored::default(), &wanted, false, now), Step::Issue);
        let mut stored = Stored::default().issued(new(now), now);
        let Step::Rest(left) = step(&stored, &wanted, false, now) else { panic!("due at once") };
        assert!(left > HOUR * 19 && left <= HOUR * 20, "two thirds of thirty hours: {left:?}");

        now += left;
        assert_eq!(step(&stored, &wanted, true, now), Step::Prepare);
        stored = stored.prepared(new(now));
        assert_eq!(step(&stored, &wanted, true, now), Step::Trust);
        stored = stored.trusted(now);
        assert_eq!(step(&stored, &wanted, true, now), Step::Rest(SETTLE));
        assert_eq!(step(&stored, &wanted, true, now - HOUR), Step::Trust, "the clock was set back");
        now += SETTLE;
        assert_eq!(step(&stored, &wanted, true, now), Step::Promote);
        stored = stored.promoted(now);
        assert!(matches!(step(&stored, &wanted, true, now), Step::Rest(_)), "a replica may not have it yet");
        now += SETTLE * MOUNTED_AFTER;
        assert!(matches!(step(&stored, &wanted, false, now), Step::Rest(_)), "a replica serves the old one");
        assert_eq!(step(&stored, &wanted, true, now), Step::Retire);
        assert!(matches!(step(&stored.retired(), &wanted, true, now), Step::Rest(_)));
        // Where that cannot be seen, the former certificate is retired once it has expired.
        assert!(matches!(step(&stored, &wanted, false, start() + HOUR * 29), Step::Rest(_) | Step::Prepare));
        let late = Stored { former: stored.former.clone(), ..Stored::default().issued(new(start() + HOUR * 40), now) };
        assert_eq!(step(&late, &wanted, false, start() + HOUR * 41), Step::Retire);
    }

    #[test]
    fn a_pair_is_renewed_at_once_where_it_is_wanted_or_lacks_a_name() {
        let (now, stored) = (start(), Stored::default().issued(new(start()), start()));
        assert_eq!(step(&stored, &Wanted { renew: true, ..wanted() }, false, now), Step::Prepare);
        let more = Wanted { names: vec!["other.b.svc".to_owned()], ..wanted() };
        assert_eq!(step(&stored, &more, false, now), Step::Prepare);
        let prepared = stored.prepared(new(now)).trusted(now);
        let renew = Wanted { renew: true, ..wanted() };
        assert_eq!(step(&prepared, &renew, false, now), Step::Rest(SETTLE), "one renewal at a time");
    }
}
