//! Stored: the pair that is served, the one that follows it, and the authorities that callers trust meanwhile.
//!
//! | file | holds |
//! | --- | --- |
//! | `tls.crt`, `tls.key`, `tls-ca.crt` | the pair that is served, and its authority |
//! | `tls-since` | when it began to be served |
//! | `next.crt`, `next.key`, `next-ca.crt` | the pair that is served next, while its authority is made known |
//! | `next-since` | when every registration was seen to trust that authority |
//! | `former-ca.crt` | authorities of pairs that some replica may still serve |
//! | `ca.crt` | all authorities: what a registration's `caBundle` has |

use std::{collections::BTreeMap, fmt, time::SystemTime};

use crate::tls::{expiry, server_config};

/// The most authorities that are kept for pairs served before.
const MOST_FORMER: usize = 4;

/// Names and contents; `None` is a file that is to go.
pub(super) type Files = BTreeMap<&'static str, Option<String>>;

const CURRENT: [&str; 3] = ["tls.crt", "tls.key", "tls-ca.crt"];
const CURRENT_SINCE: &str = "tls-since";
const NEXT: [&str; 3] = ["next.crt", "next.key", "next-ca.crt"];
const NEXT_SINCE: &str = "next-since";
const FORMER: &str = "former-ca.crt";
pub(super) const BUNDLE: &str = "ca.crt";

/// All names there are, in the order in which files are written: what callers trust, then what is served, then what
/// follows that. A writer that is cut short between two of them has lost no pair, and left none for trusted that is not.
pub(super) const NAMES: [&str; 10] = [
    BUNDLE,
    FORMER,
    "tls-ca.crt",
    "tls.crt",
    "tls.key",
    CURRENT_SINCE,
    NEXT_SINCE,
    "next-ca.crt",
    "next.crt",
    "next.key",
];

/// A certificate, its key and its authority, as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

impl fmt::Debug for Pair {
    /// Not a byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

impl Pair {
    fn is_usable(&self) -> bool {
        let sound = server_config(self.certificate.as_bytes(), self.key.as_bytes(), None).is_ok();
        sound && self.validity().is_some() && expiry::validity(self.authority.as_bytes()).is_some()
    }

    /// Begin and end of its validity.
    pub(super) fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        expiry::validity(self.certificate.as_bytes())
    }
}

/// A pair, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Since {
    pub(super) pair: Pair,
    pub(super) since: Option<SystemTime>,
}

/// All that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// The pair that is served, and since when.
    pub(super) current: Option<Since>,
    /// The pair that is served next, and since when every registration trusts it.
    pub(super) next: Option<Since>,
    /// Authorities of pairs that were served before.
    pub(super) former: Vec<String>,
}

/// Refusal to replace a certificate of somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds a certificate that `gatepost certificates` has not made; name another place, or remove it")]
pub(super) struct Foreign;

impl Stored {
    /// State in these files. A part of ours that is broken counts as missing.
    ///
    /// # Errors
    /// [`Foreign`], where a certificate lies there that has no authority beside it.
    pub(super) fn read(files: &BTreeMap<String, String>) -> Result<Self, Foreign> {
        let text = |name: &str| files.get(name).filter(|text| !text.trim().is_empty()).cloned();
        let [certificate, key, authority] = CURRENT.map(text);
        if (certificate.is_some() || key.is_some()) && authority.is_none() {
            return Err(Foreign);
        }
        let time = |name| text(name).and_then(|text| humantime::parse_rfc3339(text.trim()).ok());
        let pair = |parts: [Option<String>; 3], since| {
            let [certificate, key, authority] = parts;
            let pair = Pair { certificate: certificate?, key: key?, authority: authority? };
            pair.is_usable().then_some(Since { pair, since })
        };
        let former = text(FORMER).map(|text| authorities(&text)).unwrap_or_default();
        Ok(Self {
            current: pair([certificate, key, authority], time(CURRENT_SINCE)),
            next: pair(NEXT.map(text), time(NEXT_SINCE)),
            former,
        })
    }

    /// Files that store this state.
    pub(super) fn files(&self) -> Files {
        let mut files: Files = NAMES.into_iter().map(|name| (name, None)).collect();
        let pairs = [(CURRENT, CURRENT_SINCE, &self.current), (NEXT, NEXT_SINCE, &self.next)];
        for (names, since, stored) in pairs {
            let Some(Since { pair, since: time }) = stored else { continue };
            let texts = [&pair.certificate, &pair.key, &pair.authority];
            files.extend(names.into_iter().zip(texts.map(|text| Some(text.clone()))));
            files.insert(since, time.map(|time| humantime::format_rfc3339_seconds(time).to_string()));
        }
        let former = self.former.concat();
        files.insert(FORMER, (!former.is_empty()).then_some(former));
        files.insert(BUNDLE, Some(self.bundle()));
        files
    }

    /// All authorities that a caller has to trust.
    pub(super) fn bundle(&self) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten();
        pairs.map(|stored| stored.pair.authority.as_str()).chain(self.former.iter().map(String::as_str)).collect()
    }

    /// This state with that pair being served at once: for a place that has none.
    pub(super) fn issued(&self, pair: Pair, now: SystemTime) -> Self {
        Self { current: Some(Since { pair, since: Some(now) }), next: None, former: self.former_at(now) }
    }

    /// This state with that pair to be served next.
    pub(super) fn prepared(&self, pair: Pair) -> Self {
        Self { next: Some(Since { pair, since: None }), ..self.clone() }
    }

    /// This state with the next pair's authority trusted everywhere since then.
    pub(super) fn trusted(&self, now: SystemTime) -> Self {
        let next = self.next.clone().map(|next| Since { since: Some(now), ..next });
        Self { next, ..self.clone() }
    }

    /// This state with the next pair being served.
    pub(super) fn promoted(&self, now: SystemTime) -> Self {
        let Some(next) = self.next.clone() else { return self.clone() };
        let mut former = Vec::new();
        let current = self.current.iter().map(|current| current.pair.authority.clone());
        for authority in self.former_at(now).into_iter().chain(current) {
            // A writer that was cut short has stored some of this already.
            if authority != next.pair.authority && !former.contains(&authority) {
                former.push(authority);
            }
        }
        let most = former.len().saturating_sub(MOST_FORMER);
        Self { current: Some(Since { since: Some(now), ..next }), next: None, former: former.split_off(most) }
    }

    /// This state without the authorities of former pairs.
    pub(super) fn retired(&self) -> Self {
        Self { former: Vec::new(), ..self.clone() }
    }

    /// Authorities of former pairs that have not ended.
    pub(super) fn former_at(&self, now: SystemTime) -> Vec<String> {
        let ends = |authority: &&String| expiry::validity(authority.as_bytes()).is_some_and(|(_, end)| now < end);
        self.former.iter().filter(ends).cloned().collect()
    }
}

/// The certificates in a PEM text, each as one.
fn authorities(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    text.split_inclusive(END).filter(|one| one.ends_with(END)).map(|one| one.trim_start().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::issue::issue, *};

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn pair() -> Pair {
        issue(&["a.b.svc".to_owned()], HOUR, now()).unwrap()
    }

    /// State that is read after it was written over that.
    fn again(stored: &Stored, before: &mut BTreeMap<String, String>) -> Stored {
        for (name, text) in stored.files() {
            match text {
                Some(text) => before.insert(name.to_owned(), text),
                None => before.remove(name),
            };
        }
        Stored::read(before).unwrap()
    }

    #[test]
    fn what_is_written_is_read_at_every_step_of_a_renewal() {
        let mut files = BTreeMap::new();
        let (first, second) = (pair(), pair());
        let issued = Stored::default().issued(first.clone(), now());
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
    fn what_is_broken_is_made_anew_and_what_is_foreign_is_left_alone() {
        let mut files = BTreeMap::new();
        let stored = Stored::default().issued(pair(), now());
        let _ = again(&stored, &mut files);
        files.insert("tls.key".to_owned(), pair().key);
        assert_eq!(Stored::read(&files).unwrap().current, None);
        files.remove("tls-ca.crt");
        assert_eq!(Stored::read(&files), Err(Foreign));
        assert_eq!(Stored::read(&BTreeMap::new()), Ok(Stored::default()));
        let empty = [("tls.crt".to_owned(), String::new()), ("tls.key".to_owned(), String::new())].into();
        assert_eq!(Stored::read(&empty), Ok(Stored::default()), "a Secret that was made to be filled");
    }

    #[test]
    fn former_authorities_are_few_and_none_has_ended() {
        let mut stored = Stored::default().issued(pair(), now());
        for _ in 0..MOST_FORMER + 2 {
            stored = stored.prepared(pair()).promoted(now());
        }
        assert_eq!(stored.former.len(), MOST_FORMER);
        assert_eq!(stored.former_at(now() + HOUR * 2), Vec::<String>::new());
        assert_eq!(again(&stored, &mut BTreeMap::new()), stored);
    }

    #[test]
    fn a_pair_shows_nothing_of_its_key() {
        let pair = pair();
        assert_eq!(format!("{pair:?}"), "Pair { .. }");
    }
}
