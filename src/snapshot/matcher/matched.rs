//! Matched: a hook that means a request, and whether it can be asked about it.
//!
//! An AdmissionReview holds the object in one version, and only its sender can convert it. Upstream converts what it
//! sends (`matchPolicy`, `docs/reference/webhook-semantics.md` §4 and §8); here a hook that means the request and
//! wants another version is still named, so that it is never passed over in silence.

use crate::model::{Gvr, Hook, MatchPolicy, Review, Rule, RuleTarget, Served};

/// The hooks that mean a request, by their number in [`crate::snapshot::Snapshot::hooks`], ascending, each once. Up to
/// 32 take no memory of their own.
pub type HookSet = smallvec::SmallVec<[Matched; 32]>;

/// A hook that means a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matched {
    /// Its number in [`crate::snapshot::Snapshot::hooks`].
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
