//! Bypass: a rule by which requests skip hooks, or are not rejected by failed calls, with its reason. BreakGlass: a
//! document that skips all or some hooks for a bounded time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Review, Rule, RuleTarget};

/// Effect of a bypass on a matching request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BypassEffect {
    /// The hooks are not called.
    Skip,
    /// The hooks are called. Their denials reject the request, but failed calls do not.
    FailOpen,
}

impl BypassEffect {
    /// Every effect, in the order of [`BypassEffect::index`].
    pub const ALL: [Self; 2] = [Self::Skip, Self::FailOpen];

    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "Skip",
            Self::FailOpen => "FailOpen",
        }
    }

    /// Returns 0 or 1, an index for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Users that a bypass applies to. A user must be in one of the lists, unless both are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFilter {
    /// Exact user names, including service accounts as `system:serviceaccount:<namespace>:<name>`.
    pub users: Vec<Box<str>>,
    /// Exact group names.
    pub groups: Vec<Box<str>>,
}

/// A rule by which requests skip hooks, or are not rejected by failed calls ([`BypassEffect`]). It applies if every
/// list that is not empty matches the request.
///
/// It reads only what the apiserver reports about the request. It reads nothing that a user may write into an object or
/// a namespace, such as labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Name in metrics, annotations and the audit log; unique in a configuration.
    pub name: Arc<str>,
    /// Reason for the rule, for the audit log.
    pub reason: Arc<str>,
    /// Effect on matching requests.
    pub effect: BypassEffect,
    /// Names of the hooks that it applies to; all hooks if empty.
    pub hooks: Vec<Box<str>>,
    /// Exact names of namespaces; if empty, any or none. A Namespace object itself is in no namespace.
    pub namespaces: Vec<Box<str>>,
    /// Users that it applies to; all users if both lists are empty.
    pub who: UserFilter,
    /// Resources and operations; all if empty.
    pub resources: Vec<Rule>,
}

impl Bypass {
    /// Returns true if the rule matches the request. `in_group` returns true if the user is in one of the groups; it is
    /// called only if everything else matches. Does not allocate.
    pub fn applies(&self, review: &Review, in_group: impl FnOnce(&[Box<str>]) -> bool) -> bool {
        let target = RuleTarget::as_made(review);
        let in_namespace = || target.is_namespaced() && holds(&self.namespaces, &review.namespace);
        (self.namespaces.is_empty() || in_namespace())
            && (self.resources.is_empty() || self.resources.iter().any(|rule| rule.matches(&target)))
            && self.who.matches(&review.username, in_group)
    }

    /// Returns true if the rule applies to every hook.
    pub fn applies_to_all_hooks(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Returns true if the rule applies to the hook of this name.
    pub fn applies_to_hook(&self, hook: &str) -> bool {
        self.applies_to_all_hooks() || holds(&self.hooks, hook)
    }
}

impl UserFilter {
    /// Returns true if the user matches. `in_group` is called last, and only if groups are listed.
    pub fn matches(&self, user: &str, in_group: impl FnOnce(&[Box<str>]) -> bool) -> bool {
        let anybody = self.users.is_empty() && self.groups.is_empty();
        // A review without a user has the name "", which matches no user.
        let named = || !user.is_empty() && holds(&self.users, user);
        anybody || named() || (!self.groups.is_empty() && in_group(&self.groups))
    }
}

fn holds(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|entry| **entry == *wanted)
}

/// Maximum time that a break-glass document is open. In a longer emergency, somebody must open it again.
pub const MAX_OPEN_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A break-glass document. It contains its opening time and its duration, so that it closes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakGlass {
    /// Name in warnings, logs and the audit log.
    pub name: Arc<str>,
    /// Time of the opening, by the clock of the user's machine.
    pub opened: SystemTime,
    /// Time that it is open; at most [`MAX_OPEN_TIME`].
    pub duration: Duration,
    /// Reason, visible to everybody.
    pub reason: Arc<str>,
    /// Names of the hooks that are skipped; all hooks if empty.
    pub hooks: Vec<Box<str>>,
    /// Name of the user who opened it, as that user wrote it; "" if not given.
    pub opened_by: Box<str>,
}

impl BreakGlass {
    /// Returns the time at which it closes, by the clock of the user's machine.
    pub fn until(&self) -> SystemTime {
        self.opened + self.duration
    }

    /// Returns true if it skips every hook.
    pub fn applies_to_all_hooks(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Returns true if it skips the hook of this name.
    pub fn applies_to_hook(&self, hook: &str) -> bool {
        self.applies_to_all_hooks() || self.hooks.iter().any(|name| **name == *hook)
    }
}
