//! Matcher: which hooks mean this request, at a cost that does not grow with the hooks that do not.
//!
//! The [`Index`] only nominates. [`MatchedRequest::seen_by`] decides, so neither a hash collision nor a rule filed under "any"
//! to save room can make a wrong match.

mod index;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::index::Index;
use gatepost_api::{Gvr, Hook, MatchPolicy, Review, Rule, RuleTarget, Served};

/// The compiled rules of all hooks.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    index: Arc<Index>,
}

impl Matcher {
    /// Files every rule of every hook.
    pub(super) fn new(hooks: &[Arc<Hook>]) -> Self {
        Self { index: Arc::new(Index::new(hooks)) }
    }

    /// The same, made from the one of the hooks before where that is sooner done.
    pub(super) fn after(former: &PreviousIndex, hooks: &[Arc<Hook>]) -> Self {
        match former.matcher.index.carried_over(&former.hooks, hooks) {
            Some(index) => Self { index: Arc::new(index) },
            None => Self::new(hooks),
        }
    }

    /// Puts the hooks that mean this request into `out`, ascending, each once; `served` is what is known of where else
    /// its objects are served. Allocates nothing while `out` has room.
    pub(super) fn matching(&self, hooks: &[Arc<Hook>], review: &Review, served: Option<&Served>, out: &mut HookSet) {
        out.clear();
        if gatepost_api::exempt::is_virtual(review) || gatepost_api::exempt::is_ours(review) {
            return;
        }
        let request = MatchedRequest::of(review, served);
        self.index.nominate(&request.made, |hook, rule| consider(hooks, &request, hook, rule, out));
        if let Some(sent) = &request.sent {
            self.index.nominate(sent, |hook, rule| consider(hooks, &request, hook, rule, out));
        }
        if gatepost_api::exempt::is_admission_config(review) {
            out.retain(|matched| hooks[matched.hook as usize].sees_admission_config);
        }
        out.sort_unstable();
        out.dedup_by_key(|matched| matched.hook);
    }
}

/// Adds the hook where its rule sees the request and nothing better is known of it yet.
fn consider(hooks: &[Arc<Hook>], request: &MatchedRequest<'_>, hook: u32, rule: u32, out: &mut HookSet) {
    /// Entries scanned for the hook, from the end; among more, it may stand twice until duplicates are removed.
    const MAX_SCANNED_ENTRIES: usize = 32;
    let few = out.len().saturating_sub(MAX_SCANNED_ENTRIES);
    let known = out[few..].iter_mut().find(|matched| matched.hook == hook);
    if known.as_ref().is_some_and(|matched| matched.how == How::AsMade) {
        return;
    }
    let asked = &hooks[hook as usize];
    let Some(how) = request.seen_by(asked.match_policy, rule, &asked.rules[rule as usize]) else { return };
    match known {
        Some(matched) => matched.how = matched.how.min(how),
        None => out.push(Matched { hook, how }),
    }
}

/// The hooks of a former snapshot, and how their rules were filed.
#[derive(Debug)]
pub(super) struct PreviousIndex {
    pub(super) hooks: Vec<Arc<Hook>>,
    pub(super) matcher: Matcher,
}

impl Default for PreviousIndex {
    fn default() -> Self {
        Self { hooks: Vec::new(), matcher: Matcher::new(&[]) }
    }
}

/// The hooks that mean a request, by their number in [`crate::Snapshot::hooks`], ascending, each once. Up to
/// 32 take no memory of their own.
pub type HookSet = smallvec::SmallVec<[Matched; 32]>;

/// A hook that means a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matched {
    /// Its number in [`crate::Snapshot::hooks`].
    pub hook: u32,
    /// Way in which its rules match the request.
    pub how: How,
}

/// Way in which a hook's rules match a request. A smaller one goes before a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A rule sees the request as its client made it, and the object is in that version.
    AsMade,
    /// The hook takes equivalent requests, and a rule sees the request as the caller has converted it.
    AsSent,
    /// The hook means the request and cannot be asked: the object is not in a version it takes.
    OtherVersion(WantedVersion),
}

/// The version in which a hook wants an object that is in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WantedVersion {
    /// The one in which the client made the request.
    AsMade,
    /// One that the hook's rule of this number names.
    OfRule(u32),
}

impl WantedVersion {
    /// The resource in the version that `hook` wants of `review`.
    pub fn resource(self, hook: &Hook, review: &Review, served: Option<&Served>) -> Gvr {
        let made = RuleTarget::as_made(review);
        match self {
            Self::OfRule(number) if let Some(rule) = hook.rules.get(number as usize) => {
                let means_it_as_made = rule.sees_elsewhere(&made, served);
                rule.elsewhere(if means_it_as_made { made.resource } else { &review.resource }, served)
            }
            _ => made.resource.clone(),
        }
    }
}

/// A request as rules see it.
#[derive(Clone, Copy)]
pub(crate) struct MatchedRequest<'a> {
    pub(crate) made: RuleTarget<'a>,
    /// Resource as it was sent, where that is not how it was made.
    pub(crate) sent: Option<RuleTarget<'a>>,
    /// Discovery: other versions in which its objects may be served.
    pub(crate) served: Option<&'a Served>,
}

impl<'a> MatchedRequest<'a> {
    pub(crate) fn of(review: &'a Review, served: Option<&'a Served>) -> Self {
        let (made, sent) = (RuleTarget::as_made(review), RuleTarget::as_sent(review));
        Self { made, sent: (made != sent).then_some(sent), served }
    }

    /// Way in which one rule of a hook, of this number, matches the request.
    pub(crate) fn seen_by(&self, policy: MatchPolicy, number: u32, rule: &Rule) -> Option<How> {
        let equivalent = policy == MatchPolicy::Equivalent;
        let as_sent = || equivalent && self.sent.is_some_and(|sent| rule.matches(&sent));
        if rule.matches(&self.made) {
            return Some(match &self.sent {
                None => How::AsMade,
                // Under any policy: the rule takes the version the object is in, too.
                Some(sent) if rule.matches(sent) => How::AsSent,
                Some(_) => How::OtherVersion(WantedVersion::AsMade),
            });
        }
        if as_sent() {
            return Some(How::AsSent);
        }
        let near = |target: &RuleTarget<'_>| rule.sees_elsewhere(target, self.served);
        let elsewhere = equivalent && (near(&self.made) || self.sent.as_ref().is_some_and(near));
        elsewhere.then_some(How::OtherVersion(WantedVersion::OfRule(number)))
    }
}
