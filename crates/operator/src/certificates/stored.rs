//! State in the store: the served pair, the next pair, and the authorities that callers trust. Decides on changes of
//! the state; `store` reads and writes it.
//!
//! | file | content |
//! | --- | --- |
//! | `tls.crt`, `tls.key`, `tls-ca.crt` | the served pair, and its authority |
//! | `tls-since` | time since when the pair is served |
//! | `next.crt`, `next.key`, `next-ca.crt` | the next pair, until callers trust its authority |
//! | `next-since` | time since when every registration trusts the next pair's authority |
//! | `former-ca.crt` | authorities of pairs that a replica may still serve |
//! | `ca.crt` | all authorities, as in a registration's `caBundle` |
//!
//! An authority signs one certificate, and its key is then dropped: stolen files cannot sign anything, and each renewal
//! has a new authority. A pair is served only after every registration has trusted its authority for a while. An
//! authority is removed only once no replica serves a pair that it has signed.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use gatepost_tls::{expiry, server_config};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// Maximum number of authorities kept for former pairs.
const MAX_FORMER: usize = 4;

/// File names and contents; `None` removes the file.
pub(super) type Files = BTreeMap<&'static str, Option<String>>;

const CURRENT: [&str; 3] = ["tls.crt", "tls.key", "tls-ca.crt"];
const CURRENT_SINCE: &str = "tls-since";
const NEXT: [&str; 3] = ["next.crt", "next.key", "next-ca.crt"];
const NEXT_SINCE: &str = "next-since";
const FORMER: &str = "former-ca.crt";
pub(super) const BUNDLE: &str = "ca.crt";

/// All file names, in the order of writing: the trusted authorities, the served pair, the next pair. A writer that is
/// interrupted between two files loses no pair, and marks no untrusted pair as trusted.
pub(super) const NAMES: [&str; 10] =
    [BUNDLE, FORMER, CURRENT[2], CURRENT[0], CURRENT[1], CURRENT_SINCE, NEXT_SINCE, NEXT[2], NEXT[0], NEXT[1]];

/// A certificate, its key and its authority, as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

impl fmt::Debug for Pair {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

impl Pair {
    fn is_usable(&self) -> bool {
        let sound = server_config(self.certificate.as_bytes(), self.key.as_bytes(), None).is_ok();
        sound && self.validity().is_some() && expiry::validity(self.authority.as_bytes()).is_some()
    }

    /// Returns begin and end of the validity.
    pub(super) fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        expiry::validity(self.certificate.as_bytes())
    }
}

/// A pair, and the time since when it is served or trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatedPair {
    pub(super) pair: Pair,
    pub(super) since: Option<SystemTime>,
}

/// The stored state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredPairs {
    /// The served pair, and since when it is served.
    pub(super) current: Option<DatedPair>,
    /// The next pair, and since when every registration trusts it.
    pub(super) next: Option<DatedPair>,
    /// Authorities of former pairs.
    pub(super) former: Vec<String>,
}

/// Error for a place with a foreign certificate, which must not be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds a certificate that `gatepost certificates` has not made; name another place, or remove it")]
pub(super) struct ForeignCertificate;

impl StoredPairs {
    /// Parses the state from these files. A broken file of ours counts as missing.
    ///
    /// # Errors
    /// [`ForeignCertificate`] if there is a certificate or a key without an authority.
    pub(super) fn read(files: &BTreeMap<String, String>) -> Result<Self, ForeignCertificate> {
        let text = |name: &str| files.get(name).filter(|text| !text.trim().is_empty()).cloned();
        let [certificate, key, authority] = CURRENT.map(text);
        if (certificate.is_some() || key.is_some()) && authority.is_none() {
            return Err(ForeignCertificate);
        }
        let time = |name| text(name).and_then(|text| humantime::parse_rfc3339(text.trim()).ok());
        let pair = |[certificate, key, authority]: [Option<String>; 3], since| {
            let pair = Pair { certificate: certificate?, key: key?, authority: authority? };
            pair.is_usable().then_some(DatedPair { pair, since })
        };
        let current = pair([certificate, key, authority], time(CURRENT_SINCE));
        let next = pair(NEXT.map(text), time(NEXT_SINCE));
        Ok(Self { current, next, former: text(FORMER).map(|text| authorities(&text)).unwrap_or_default() })
    }

    /// Returns the files that store this state.
    pub(super) fn files(&self) -> Files {
        let mut files: Files = NAMES.into_iter().map(|name| (name, None)).collect();
        let pairs = [(CURRENT, CURRENT_SINCE, &self.current), (NEXT, NEXT_SINCE, &self.next)];
        for (names, since, stored) in pairs {
            let Some(DatedPair { pair, since: time }) = stored else { continue };
            let texts = [&pair.certificate, &pair.key, &pair.authority];
            files.extend(names.into_iter().zip(texts.map(|text| Some(text.clone()))));
            files.insert(since, time.map(|time| humantime::format_rfc3339_seconds(time).to_string()));
        }
        let former = self.former.concat();
        files.insert(FORMER, (!former.is_empty()).then_some(former));
        files.insert(BUNDLE, Some(self.bundle()));
        files
    }

    /// Returns all authorities that a caller must trust.
    pub(super) fn bundle(&self) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten();
        pairs.map(|stored| stored.pair.authority.as_str()).chain(self.former.iter().map(String::as_str)).collect()
    }

    /// Returns this state with `pair` served immediately, for a place without a served pair.
    pub(super) fn issued(&self, pair: Pair, now: SystemTime) -> Self {
        Self { current: Some(DatedPair { pair, since: Some(now) }), next: None, former: self.former_at(now) }
    }

    /// Returns this state with `pair` as the next pair.
    pub(super) fn prepared(&self, pair: Pair) -> Self {
        Self { next: Some(DatedPair { pair, since: None }), ..self.clone() }
    }

    /// Returns this state with the next pair's authority trusted everywhere since `now`.
    pub(super) fn trusted(&self, now: SystemTime) -> Self {
        let next = self.next.clone().map(|next| DatedPair { since: Some(now), ..next });
        Self { next, ..self.clone() }
    }

    /// Returns this state with the next pair as the served one.
    pub(super) fn promoted(&self, now: SystemTime) -> Self {
        let Some(next) = self.next.clone() else { return self.clone() };
        let mut former = Vec::new();
        let current = self.current.iter().map(|current| current.pair.authority.clone());
        for authority in self.former_at(now).into_iter().chain(current) {
            // An interrupted writer may have stored some of these already.
            if authority != next.pair.authority && !former.contains(&authority) {
                former.push(authority);
            }
        }
        let most = former.len().saturating_sub(MAX_FORMER);
        Self { current: Some(DatedPair { since: Some(now), ..next }), next: None, former: former.split_off(most) }
    }

    /// Returns this state without the authorities of former pairs.
    pub(super) fn retired(&self) -> Self {
        Self { former: Vec::new(), ..self.clone() }
    }

    /// Returns the authorities of former pairs that have not expired.
    pub(super) fn former_at(&self, now: SystemTime) -> Vec<String> {
        let ends = |authority: &&String| expiry::validity(authority.as_bytes()).is_some_and(|(_, end)| now < end);
        self.former.iter().filter(ends).cloned().collect()
    }
}

/// Splits a PEM text into its certificates.
fn authorities(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    text.split_inclusive(END).filter(|one| one.ends_with(END)).map(|one| one.trim_start().to_owned()).collect()
}

/// Tolerance for slow clocks of other machines.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// Issues a pair for these names, valid for `lifetime` from `now` on, with a new authority.
pub(super) fn issue(names: &[String], lifetime: Duration, now: SystemTime) -> Result<Pair, Error> {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = |since: Duration| date_time_ymd(1970, 1, 1) + since;
    // The pair is renewed at two thirds of its lifetime. A lifetime of minutes must therefore not begin much earlier.
    let begin = at(since_1970.saturating_sub(SKEW.min(lifetime / 10)));
    let end = at(since_1970.saturating_add(lifetime));

    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // Go finds an authority by its name, so that two authorities in one bundle need two names.
    params.distinguished_name.push(DnType::CommonName, format!("Gatepost webhook CA {}", since_1970.as_nanos()));
    (params.not_before, params.not_after) = (begin, end);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "gatepost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = (begin, end);
    let certificate = params.signed_by(&key, &authority)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), authority: authority.pem() })
}

/// Number of `settle` periods after which every replica has mounted a new pair; the kubelet syncs once a minute.
const MOUNT_SETTLES: u32 = 4;
/// Divisor of a pair's lifetime. If less than this part is left, the pair is replaced even if callers might not trust
/// the next one yet: an expired pair always fails. Short lifetimes need a larger part, to mount the next pair in time.
const LAST_RESORT_DIVISOR: u32 = 10;

/// Returns the minimum lifetime for this settling time: in its last third, the next pair settles and is mounted.
pub(super) fn shortest_lifetime(settle: Duration) -> Duration {
    settle.saturating_mul(3 * (1 + MOUNT_SETTLES))
}

/// Requirements for the certificate.
#[derive(Clone, Debug)]
pub(super) struct CertificateSpec {
    /// DNS names and IP addresses.
    pub(super) names: Vec<String>,
    /// Time in which all apiservers observe a change of the registration.
    pub(super) settle: Duration,
    /// Whether to renew now, whatever the age of the current pair.
    pub(super) renew: bool,
}

/// A change of the stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Issue a pair and serve it, as there is none.
    Issue,
    /// Issue the next pair, and publish its authority.
    Prepare,
    /// Record that the next pair's authority is trusted everywhere.
    Trust,
    /// Do nothing, as it is not known whether callers trust the next pair's authority.
    Hold,
    /// Serve the next pair.
    Promote,
    /// Remove the authorities of former pairs.
    Retire,
    /// Do nothing for this duration.
    Rest(Duration),
}

/// Callers and replicas, as last observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Observation {
    /// Whether each replica serves the current pair.
    pub(super) all_replicas_current: bool,
    /// Whether a registration did not trust all stored authorities before this round.
    pub(super) distrusted: bool,
    /// Whether a registration that must trust the authorities does not name the Service.
    pub(super) unregistered: bool,
}

/// Returns the next step, given that all existing registrations trust the stored authorities.
pub(super) fn step(stored: &StoredPairs, wanted: &CertificateSpec, seen: Observation, now: SystemTime) -> Step {
    if let Some(next) = &stored.next {
        return promotion(stored.current.as_ref(), next, wanted, seen, now);
    }
    let Some(current) = &stored.current else { return Step::Issue };
    let left = until_due(current, &wanted.names, now);
    if wanted.renew || left.is_zero() {
        return Step::Prepare;
    }
    if !stored.former.is_empty() {
        let mounted = wanted.settle * MOUNT_SETTLES;
        let served = current.since.and_then(|since| now.duration_since(since).ok());
        let all_ended = stored.former_at(now).is_empty();
        if all_ended || seen.all_replicas_current && served.is_none_or(|served| served >= mounted) {
            return Step::Retire;
        }
    }
    Step::Rest(left)
}

/// Returns the next step of a renewal in progress. If the current pair is invalid or close to its expiry, the renewal
/// continues even if a registration might not trust the next authority.
fn promotion(
    current: Option<&DatedPair>,
    next: &DatedPair,
    wanted: &CertificateSpec,
    seen: Observation,
    now: SystemTime,
) -> Step {
    let validity = current.and_then(|current| current.pair.validity());
    let (life, left) = validity.map_or_else(Default::default, |(begin, end)| {
        (end.duration_since(begin).unwrap_or_default(), end.duration_since(now).unwrap_or_default())
    });
    // A tenth of a short lifetime would be too short for replicas to get the next pair.
    let may_wait = left > (life / LAST_RESORT_DIVISOR).max(shortest_lifetime(wanted.settle) / 3);
    if seen.unregistered && may_wait {
        return Step::Hold;
    }
    // After an older bundle was restored, apiservers trust only that bundle for a while. Repeated restores can delay
    // the next pair, but only while enough of the current pair's lifetime is left.
    if seen.distrusted && may_wait {
        return Step::Trust;
    }
    match next.since.map(|since| now.duration_since(since)) {
        // Trust is not recorded yet, or the clock was set back: settle from now on.
        None | Some(Err(_)) => Step::Trust,
        Some(Ok(elapsed)) if elapsed >= wanted.settle => Step::Promote,
        Some(Ok(elapsed)) => Step::Rest(wanted.settle.saturating_sub(elapsed)),
    }
}

/// Returns the time until the pair is renewed: at two thirds of its lifetime, or now if it is invalid or does not have
/// one of the DNS names.
fn until_due(current: &DatedPair, names: &[String], now: SystemTime) -> Duration {
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
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn pair() -> Pair {
        issue(&["a.b.svc".to_owned()], HOUR, now()).unwrap()
    }

    /// State that is read after it was written over that.
    fn again(stored: &StoredPairs, before: &mut BTreeMap<String, String>) -> StoredPairs {
        for (name, text) in stored.files() {
            match text {
                Some(text) => before.insert(name.to_owned(), text),
                None => before.remove(name),
            };
        }
        StoredPairs::read(before).unwrap()
    }

    #[test]
    fn stored_certificates_are_read_back_at_every_step() {
        let mut files = BTreeMap::new();
        let (first, second) = (pair(), pair());
        let issued = StoredPairs::default().issued(first.clone(), now());
        assert_eq!((again(&issued, &mut files), issued.bundle()), (issued.clone(), first.authority.clone()));
        let prepared = issued.prepared(second.clone());
        assert_eq!(again(&prepared, &mut files), prepared);
        assert_eq!(prepared.bundle(), first.authority.clone() + &second.authority);
        assert_eq!(files["tls.key"], first.key, "the old one is served until the new one is trusted");
        let trusted = prepared.trusted(now());
        assert_eq!(again(&trusted, &mut files), trusted);
        let promoted = trusted.promoted(now());
        assert_eq!(again(&promoted, &mut files), promoted);
        assert_eq!((&files["tls.key"], files.get("next.key")), (&second.key, None));
        assert_eq!(files[BUNDLE], second.authority.clone() + &first.authority, "the old one is still trusted");
        let retired = promoted.retired();
        assert_eq!(again(&retired, &mut files), retired);
        assert_eq!((&files[BUNDLE], files.get(FORMER)), (&second.authority, None));
    }

    #[test]
    fn stored_certificates_of_others_are_refused() {
        let mut files = BTreeMap::new();
        let stored = StoredPairs::default().issued(pair(), now());
        let _ = again(&stored, &mut files);
        files.insert("tls.key".to_owned(), pair().key);
        assert_eq!(StoredPairs::read(&files).unwrap().current, None);
        files.remove("tls-ca.crt");
        assert_eq!(StoredPairs::read(&files), Err(ForeignCertificate));
        assert_eq!(StoredPairs::read(&BTreeMap::new()), Ok(StoredPairs::default()));
        let empty = [("tls.crt".to_owned(), String::new()), ("tls.key".to_owned(), String::new())].into();
        assert_eq!(StoredPairs::read(&empty), Ok(StoredPairs::default()), "a Secret that was made to be filled");
    }

    #[test]
    fn former_authorities_are_bounded_and_valid() {
        let mut stored = StoredPairs::default().issued(pair(), now());
        for _ in 0..MAX_FORMER + 2 {
            stored = stored.prepared(pair()).promoted(now());
        }
        assert_eq!(stored.former.len(), MAX_FORMER);
        assert_eq!(stored.former_at(now() + HOUR * 2), Vec::<String>::new());
        assert_eq!(again(&stored, &mut BTreeMap::new()), stored);
    }

    #[test]
    fn debug_output_of_a_pair_hides_its_key() {
        let pair = pair();
        assert_eq!(format!("{pair:?}"), "Pair { .. }");
    }

    #[test]
    fn issued_certificate_has_its_names_and_lifetime() {
        let now = now();
        let names = ["gatepost.gatepost.svc".to_owned(), "192.0.2.7".to_owned()];
        let pair = issue(&names, HOUR * 24, now).unwrap();
        assert_eq!(expiry::dns_names(pair.certificate.as_bytes()), [names[0].clone()]);
        for pem in [&pair.certificate, &pair.authority] {
            assert_eq!(expiry::validity(pem.as_bytes()), Some((now - SKEW, now + HOUR * 24)));
        }
        server_config(pair.certificate.as_bytes(), pair.key.as_bytes(), None).unwrap();
        let other = issue(&names, HOUR, now + Duration::from_nanos(1)).unwrap();
        assert_ne!(pair.authority, other.authority);
        assert!(server_config(pair.certificate.as_bytes(), other.key.as_bytes(), None).is_err());
        assert!(issue(&["not a name\u{e9}".to_owned()], HOUR, now).is_err());
    }

    const SETTLE: Duration = Duration::from_secs(30);
    const UNSEEN: Observation = Observation { all_replicas_current: false, distrusted: false, unregistered: false };
    const ALONE: Observation = Observation { all_replicas_current: true, ..UNSEEN };

    fn names() -> Vec<String> {
        vec!["a.b.svc".to_owned(), "192.0.2.1".to_owned()]
    }

    fn wanted() -> CertificateSpec {
        CertificateSpec { names: names(), settle: SETTLE, renew: false }
    }

    fn new(now: SystemTime) -> Pair {
        issue(&names(), HOUR * 30, now).unwrap()
    }

    #[test]
    fn renewal_adds_its_authority_first_and_drops_the_old_one_last() {
        let (wanted, start) = (wanted(), now());
        let mut now = start;
        assert_eq!(step(&StoredPairs::default(), &wanted, UNSEEN, now), Step::Issue);
        let mut stored = StoredPairs::default().issued(new(now), now);
        let Step::Rest(left) = step(&stored, &wanted, UNSEEN, now) else { panic!("due at once") };
        assert!(left > HOUR * 19 && left <= HOUR * 20, "two thirds of thirty HOURs: {left:?}");

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
        now += SETTLE * MOUNT_SETTLES;
        assert!(matches!(step(&stored, &wanted, UNSEEN, now), Step::Rest(_)), "a replica serves the old one");
        assert_eq!(step(&stored, &wanted, ALONE, now), Step::Retire);
        assert!(matches!(step(&stored.retired(), &wanted, ALONE, now), Step::Rest(_)));
        // Where that cannot be seen, the former certificate is retired once it has expired.
        assert!(matches!(step(&stored, &wanted, UNSEEN, start + HOUR * 29), Step::Rest(_) | Step::Prepare));
        let late =
            StoredPairs { former: stored.former.clone(), ..StoredPairs::default().issued(new(start + HOUR * 40), now) };
        assert_eq!(step(&late, &wanted, UNSEEN, start + HOUR * 41), Step::Retire);
    }

    #[test]
    fn renewal_starts_at_once_on_request_or_for_a_missing_name() {
        let (now, stored) = (now(), StoredPairs::default().issued(new(now()), now()));
        assert_eq!(step(&stored, &CertificateSpec { renew: true, ..wanted() }, UNSEEN, now), Step::Prepare);
        let more = CertificateSpec { names: vec!["other.b.svc".to_owned()], ..wanted() };
        assert_eq!(step(&stored, &more, UNSEEN, now), Step::Prepare);
        let prepared = stored.prepared(new(now)).trusted(now);
        let renew = CertificateSpec { renew: true, ..wanted() };
        assert_eq!(step(&prepared, &renew, UNSEEN, now), Step::Rest(SETTLE), "one renewal at a time");
    }

    #[test]
    fn renewal_waits_until_the_registration_trusts_it() {
        let (now, wanted) = (now(), wanted());
        let unregistered = Observation { unregistered: true, ..UNSEEN };
        let stored = StoredPairs::default().issued(new(now), now);
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
    fn renewal_settles_anew_after_trust_was_lost() {
        let (now, wanted) = (now(), wanted());
        let distrusted = Observation { distrusted: true, ..ALONE };
        let stored = StoredPairs::default().issued(new(now), now).prepared(new(now)).trusted(now);
        assert_eq!(step(&stored, &wanted, distrusted, now + SETTLE), Step::Trust);
        let stored = stored.trusted(now + SETTLE);
        assert_eq!(step(&stored, &wanted, ALONE, now + SETTLE), Step::Rest(SETTLE));
        assert_eq!(step(&stored, &wanted, distrusted, now + HOUR * 26), Step::Trust);
        assert_eq!(step(&stored, &wanted, distrusted, now + HOUR * 28), Step::Promote, "the current one ends soon");
    }

    #[test]
    fn renewal_of_a_short_lived_certificate_leaves_time_to_mount_it() {
        let (now, wanted) = (now(), wanted());
        let short = |now| issue(&names(), HOUR / 4, now).unwrap();
        let stored = StoredPairs::default().issued(short(now), now).prepared(short(now)).trusted(now);
        let (_, end) = DatedPair { pair: short(now), since: None }.pair.validity().unwrap();
        let last = end - SETTLE * (1 + MOUNT_SETTLES);
        for (seen, waits) in [
            (Observation { unregistered: true, ..UNSEEN }, Step::Hold),
            (Observation { distrusted: true, ..UNSEEN }, Step::Trust),
        ] {
            assert_eq!(step(&stored, &wanted, seen, last - SETTLE), waits);
            assert_eq!(step(&stored, &wanted, seen, last), Step::Promote);
        }
    }

    #[test]
    fn renewal_replaces_a_broken_pair_at_once() {
        let (now, wanted) = (now(), wanted());
        let next = StoredPairs::default().issued(new(now), now).prepared(new(now)).trusted(now).next;
        let broken = StoredPairs { next, ..StoredPairs::default() };
        for seen in [UNSEEN, Observation { unregistered: true, distrusted: true, all_replicas_current: false }] {
            assert_eq!(step(&broken, &wanted, seen, now + SETTLE), Step::Promote);
        }
    }

    #[test]
    fn shortest_lifetime_has_room_for_a_renewal() {
        assert_eq!(shortest_lifetime(SETTLE), Duration::from_secs(450));
        assert_eq!(shortest_lifetime(Duration::MAX), Duration::MAX);
        let (now, wanted) = (now(), wanted());
        let pair = issue(&names(), shortest_lifetime(SETTLE), now).unwrap();
        let Step::Rest(due) = step(&StoredPairs::default().issued(pair.clone(), now), &wanted, ALONE, now) else {
            panic!("due at once")
        };
        let (_, end) = DatedPair { pair, since: None }.pair.validity().unwrap();
        assert!(now + due + SETTLE * (1 + MOUNT_SETTLES) <= end, "{due:?}");
    }
}
