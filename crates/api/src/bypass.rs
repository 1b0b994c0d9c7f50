//! Bypass: the requests that skip hooks, and why. BreakGlass: all hooks, or single ones, skipped for a bounded time in
//! an emergency.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Review, Rule, RuleTarget};

/// Effect of a bypass on a request that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BypassEffect {
    /// No hook is asked.
    Skip,
    /// Hooks are asked, and only their "no" rejects: what keeps one from answering does not.
    FailOpen,
}

impl BypassEffect {
    /// Every effect, in the order of [`BypassEffect::index`].
    pub const ALL: [Self; 2] = [Self::Skip, Self::FailOpen];

    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "Skip",
            Self::FailOpen => "FailOpen",
        }
    }

    /// 0 or 1, for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Users that a bypass is for. One list that holds the request's user is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// User names, exactly; service accounts among them, as `system:serviceaccount:<namespace>:<name>`.
    pub users: Vec<Box<str>>,
    /// Groups, exactly.
    pub groups: Vec<Box<str>>,
}

/// One rule that lets requests past hooks. It applies where every list that is not empty holds the request.
///
/// All that it looks at is what the apiserver says of the request; nothing that a user may write into an object or
/// onto a namespace, labels least of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Name in metrics, annotations and the audit log; unique in a configuration.
    pub name: Arc<str>,
    /// Reason for its existence, for the audit log.
    pub reason: Arc<str>,
    /// Effect on requests.
    pub effect: BypassEffect,
    /// The hooks it is about, by name; empty: all of them.
    pub hooks: Vec<Box<str>>,
    /// Namespaces, exactly; empty: any, and none. A Namespace object itself is in no namespace.
    pub namespaces: Vec<Box<str>>,
    /// Users; both lists empty: anybody.
    pub who: Who,
    /// Resources and operations; empty: anything.
    pub resources: Vec<Rule>,
}

impl Bypass {
    /// Does it apply? `in_group` says whether the user is in a group of that name, and is only asked where all else
    /// has matched. Allocates nothing.
    pub fn applies(&self, review: &Review, in_group: impl FnOnce(&[Box<str>]) -> bool) -> bool {
        let target = RuleTarget::as_made(review);
        let in_namespace = || target.is_namespaced() && holds(&self.namespaces, &review.namespace);
        (self.namespaces.is_empty() || in_namespace())
            && (self.resources.is_empty() || self.resources.iter().any(|rule| rule.matches(&target)))
            && self.who.is(&review.username, in_group)
    }

    /// Is it about every hook?
    pub fn is_about_all(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Is it about the hook of this name?
    pub fn is_about(&self, hook: &str) -> bool {
        self.is_about_all() || holds(&self.hooks, hook)
    }
}

impl Who {
    /// Is this user meant? `in_group` is asked last, and only where groups are named.
    pub fn is(&self, user: &str, in_group: impl FnOnce(&[Box<str>]) -> bool) -> bool {
        let anybody = self.users.is_empty() && self.groups.is_empty();
        // A review without a user has the name "", which matches no user.
        let named = || !user.is_empty() && holds(&self.users, user);
        anybody || named() || (!self.groups.is_empty() && in_group(&self.groups))
    }
}

fn holds(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|entry| **entry == *wanted)
}

/// The longest that one may be open: an emergency that lasts longer is opened again by somebody.
pub const MAX_OPEN_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// One document that opens something. It says when it was opened and for how long, so that it closes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakGlass {
    /// Name in warnings, logs and the audit log.
    pub name: Arc<str>,
    /// Time of the opening, by the clock of the user's machine.
    pub opened: SystemTime,
    /// For how long; at most [`MAX_OPEN_TIME`].
    pub lasts: Duration,
    /// Reason, for everybody's eyes.
    pub reason: Arc<str>,
    /// The hooks that are not asked; empty: all of them.
    pub hooks: Vec<Box<str>>,
    /// User who opened it, in his own words; "" where he did not say.
    pub by: Box<str>,
}

impl BreakGlass {
    /// Time at which it closes, by the clock of the user's machine.
    pub fn until(&self) -> SystemTime {
        self.opened + self.lasts
    }

    /// Does it open everything?
    pub fn is_about_all(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Does it open the hook of this name?
    pub fn is_about(&self, hook: &str) -> bool {
        self.is_about_all() || self.hooks.iter().any(|name| **name == *hook)
    }
}
