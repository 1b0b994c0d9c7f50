//! Matcher: finds the entries (hooks or policies) that match a request, at a cost that does not grow with the number of
//! other entries.
//!
//! The [`Index`] only nominates rules. [`MatchedRequest::seen_by`] decides, so neither a hash collision nor a rule
//! filed under "any" to save memory can cause a wrong match.

mod index;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use self::index::Index;
use gatepost_api::{Gvr, Hook, MatchPolicy, Review, Rule, RuleTarget, Served};
use gatepost_policy::Policy;

/// A hook or policy, as far as its rules select requests.
pub trait Ruled {
    /// Returns the rule of this number; `None` beyond the last one.
    fn rule(&self, number: usize) -> Option<&Rule>;

    /// Returns true if the rule of this number takes objects of this name.
    fn takes_name(&self, _number: usize, _name: &str) -> bool {
        true
    }

    /// Returns the treatment of requests in other versions.
    fn match_policy(&self) -> MatchPolicy;

    /// Returns true if its rules also select requests about the configuration of admission.
    fn sees_admission_config(&self) -> bool;
}

impl Ruled for Hook {
    fn rule(&self, number: usize) -> Option<&Rule> {
        self.rules.get(number)
    }

    fn match_policy(&self) -> MatchPolicy {
        self.match_policy
    }

    fn sees_admission_config(&self) -> bool {
        self.sees_admission_config
    }
}

impl Ruled for Policy {
    fn rule(&self, number: usize) -> Option<&Rule> {
        self.definition.constraints.rules.get(number).map(|named| &named.rule)
    }

    fn takes_name(&self, number: usize, name: &str) -> bool {
        self.definition.constraints.rules.get(number).is_some_and(|named| named.names(name))
    }

    fn match_policy(&self) -> MatchPolicy {
        self.definition.constraints.match_policy
    }

    // As in upstream: a policy that could deny its own removal could not be repaired.
    fn sees_admission_config(&self) -> bool {
        false
    }
}

/// The compiled rules of all entries.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    index: Arc<Index>,
}

impl Matcher {
    /// Indexes every rule of every entry.
    pub(super) fn new<T: Ruled>(entries: &[Arc<T>]) -> Self {
        Self { index: Arc::new(Index::new(entries)) }
    }

    /// Indexes every rule of every hook, from the index of the previous hooks if that is faster.
    pub(super) fn from_previous(former: &PreviousIndex, hooks: &[Arc<Hook>]) -> Self {
        match former.matcher.index.carried_over(&former.hooks, hooks) {
            Some(index) => Self { index: Arc::new(index) },
            None => Self::new(hooks),
        }
    }

    /// Replaces the content of `out` by the entries that match this request, ascending, each once. `served` has what is
    /// known of other versions in which its objects are served. Allocates nothing while `out` has room.
    pub(super) fn matching<T: Ruled>(
        &self,
        entries: &[Arc<T>],
        review: &Review,
        served: Option<&Served>,
        out: &mut MatchSet,
    ) {
        out.clear();
        if gatepost_api::exempt::is_virtual(review) || gatepost_api::exempt::is_ours(review) {
            return;
        }
        let request = MatchedRequest::of(review, served);
        self.index.nominate(&request.made, |index, rule| consider(entries, &request, index, rule, out));
        if let Some(sent) = &request.sent {
            self.index.nominate(sent, |index, rule| consider(entries, &request, index, rule, out));
        }
        if gatepost_api::exempt::is_admission_config(review) {
            out.retain(|matched| entries[matched.index as usize].sees_admission_config());
        }
        out.sort_unstable();
        out.dedup_by_key(|matched| matched.index);
    }
}

/// Adds the entry if its rule matches the request and no better match is known.
fn consider<T: Ruled>(entries: &[Arc<T>], request: &MatchedRequest<'_>, index: u32, number: u32, out: &mut MatchSet) {
    /// Maximum number of matches scanned for the entry, from the end. In a larger set, duplicates are removed later.
    const MAX_SCANNED_MATCHES: usize = 32;
    let few = out.len().saturating_sub(MAX_SCANNED_MATCHES);
    let known = out[few..].iter_mut().find(|matched| matched.index == index);
    if known.as_ref().is_some_and(|matched| matched.how == MatchKind::AsMade) {
        return;
    }
    let candidate = &entries[index as usize];
    let Some(rule) = candidate.rule(number as usize) else { return };
    let Some(how) = request.seen_by(candidate.match_policy(), number, rule) else { return };
    match known {
        Some(matched) => matched.how = matched.how.min(how),
        None => out.push(Match { index, how }),
    }
}

/// Hooks of the previous snapshot, and the index of their rules.
#[derive(Debug)]
pub(super) struct PreviousIndex {
    pub(super) hooks: Vec<Arc<Hook>>,
    pub(super) matcher: Matcher,
}

impl Default for PreviousIndex {
    fn default() -> Self {
        Self { hooks: Vec::new(), matcher: Matcher::new::<Hook>(&[]) }
    }
}

/// Hooks or policies that match a request, ascending by their index, each once. Up to 32 are stored inline.
pub type MatchSet = smallvec::SmallVec<[Match; 32]>;

/// A hook or policy that matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Its index in [`crate::Snapshot::hooks`] or [`crate::Snapshot::policies`].
    pub index: u32,
    /// How its rules match the request.
    pub how: MatchKind,
}

/// How an entry's rules match a request, the best way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchKind {
    /// A rule matches the request as its client made it, and the object is in that version.
    AsMade,
    /// A rule matches the request as the caller converted it, and the hook's match policy allows this.
    AsSent,
    /// A rule matches, but the hook cannot be called: the object is not in a version that it takes.
    OtherVersion(WantedVersion),
}

/// Version that a hook or policy needs of an object in another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WantedVersion {
    /// Version in which the client made the request.
    AsMade,
    /// A version in the rule of this number.
    OfRule(u32),
}

impl WantedVersion {
    /// Returns the resource in the version that the hook or policy needs of `review`.
    pub fn resource(self, entry: &impl Ruled, review: &Review, served: Option<&Served>) -> Gvr {
        let made = RuleTarget::as_made(review);
        match self {
            Self::OfRule(number) if let Some(rule) = entry.rule(number as usize) => {
                let means_it_as_made = rule.matches_equivalent(&made, served);
                rule.elsewhere(if means_it_as_made { made.resource } else { &review.resource }, served)
            }
            _ => made.resource.clone(),
        }
    }
}

/// A request as rules compare it.
#[derive(Clone, Copy)]
pub(crate) struct MatchedRequest<'a> {
    pub(crate) made: RuleTarget<'a>,
    /// The request as sent, if it differs from `made`.
    pub(crate) sent: Option<RuleTarget<'a>>,
    /// Other versions in which its objects may be served, from discovery.
    pub(crate) served: Option<&'a Served>,
}

impl<'a> MatchedRequest<'a> {
    pub(crate) fn of(review: &'a Review, served: Option<&'a Served>) -> Self {
        let (made, sent) = (RuleTarget::as_made(review), RuleTarget::as_sent(review));
        Self { made, sent: (made != sent).then_some(sent), served }
    }

    /// Returns how a rule of a hook matches the request, if it does. `number` is the number of the rule.
    pub(crate) fn seen_by(&self, policy: MatchPolicy, number: u32, rule: &Rule) -> Option<MatchKind> {
        let equivalent = policy == MatchPolicy::Equivalent;
        let as_sent = || equivalent && self.sent.is_some_and(|sent| rule.matches(&sent));
        if rule.matches(&self.made) {
            return Some(match &self.sent {
                None => MatchKind::AsMade,
                // Under any policy: the rule also takes the version of the object.
                Some(sent) if rule.matches(sent) => MatchKind::AsSent,
                Some(_) => MatchKind::OtherVersion(WantedVersion::AsMade),
            });
        }
        if as_sent() {
            return Some(MatchKind::AsSent);
        }
        let near = |target: &RuleTarget<'_>| rule.matches_equivalent(target, self.served);
        let elsewhere = equivalent && (near(&self.made) || self.sent.as_ref().is_some_and(near));
        elsewhere.then_some(MatchKind::OtherVersion(WantedVersion::OfRule(number)))
    }
}
