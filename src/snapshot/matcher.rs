//! Matcher: which hooks mean this request, at a cost that does not grow with the hooks that do not.
//!
//! The [`Index`] only nominates. [`MatchedRequest::seen_by`] decides, so neither a hash collision nor a rule filed under "any"
//! to save room can make a wrong match.

mod index;
pub(crate) mod matched;

use std::sync::Arc;

use self::{
    index::Index,
    matched::{HookSet, Matched, MatchedRequest},
};
use crate::model::{Hook, Review, Served};

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
        if crate::model::exempt::is_virtual(review) || crate::model::exempt::is_ours(review) {
            return;
        }
        let request = MatchedRequest::of(review, served);
        self.index.nominate(&request.made, |hook, rule| consider(hooks, &request, hook, rule, out));
        if let Some(sent) = &request.sent {
            self.index.nominate(sent, |hook, rule| consider(hooks, &request, hook, rule, out));
        }
        if crate::model::exempt::is_admission_config(review) {
            out.retain(|matched| hooks[matched.hook as usize].sees_admission_config);
        }
        out.sort_unstable();
        out.dedup_by_key(|matched| matched.hook);
    }
}

/// Adds the hook where its rule sees the request and nothing better is known of it yet.
fn consider(hooks: &[Arc<Hook>], request: &MatchedRequest<'_>, hook: u32, rule: u32, out: &mut HookSet) {
    /// Entries scanned for the hook, from the end; among more, it may stand twice until duplicates are removed.
    const FEW: usize = 32;
    let few = out.len().saturating_sub(FEW);
    let known = out[few..].iter_mut().find(|matched| matched.hook == hook);
    if known.as_ref().is_some_and(|matched| matched.how == super::How::AsMade) {
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

#[cfg(test)]
mod tests;
