//! Coverage: hooks beside a registration with an apiserver. A hook is never asked about a request that the registration
//! does not send.

pub mod selectors;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt,
    time::Duration,
};

use serde_json::Value;

use self::selectors::{implies, is_within, names_left_out, without};
use super::{
    Snapshot, checked_webhook_configuration,
    document::{problem::is_reason, webhooks_kind},
};
use gatepost_api::{
    Endpoint, FailurePolicy, Hook, HookType, MatchPolicy, Operation, Protocol, Reinvocation, ResourceInitializers,
    Rule, Scope, Selector, SideEffects, Transport,
    hook::Address,
    registration::{SENT_ALREADY, Segment},
};

pub use self::selectors::{Atom, atoms_of};

/// Path at which Gatepost takes reviews for hooks of that type that are not of one version.
pub const fn path(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "/validate",
        HookType::Mutating => "/mutate",
    }
}

/// Added to it where they are.
const ONE_VERSION: &str = "/one-version";

/// Webhooks of a registration that lead to Gatepost.
#[derive(Debug, Default)]
pub struct Registration {
    entries: Vec<RegisteredWebhook>,
}

/// One webhook of a registration that leads to Gatepost.
#[derive(Debug)]
struct RegisteredWebhook {
    hook: Hook,
    one_version: bool,
    /// The mutating hooks that are asked, where not all are.
    segment: Option<Segment>,
    atoms: Vec<Atom>,
    /// Name of a match condition that may hold back whatever it sends.
    condition: Option<String>,
}

/// A match condition of that entry that `gatepost register` has not written: nobody knows which requests it holds back.
pub fn foreign_condition(entry: &Value) -> Option<&str> {
    let names = entry["matchConditions"].as_array().into_iter().flatten();
    let mut names = names.map(|condition| condition["name"].as_str().unwrap_or_default());
    names.find(|name| !name.starts_with(SENT_ALREADY))
}

/// Hook or initializers that need an apiserver to send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageSubject {
    /// The hook at this place of the snapshot.
    Hook(u32),
    /// All initializers of one resource.
    Initializers,
}

/// A hook, or the initializers of a resource, that a registration is held against.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Hook or initializers that need the requests.
    pub subject: CoverageSubject,
    hook: Cow<'a, Hook>,
    /// Its failures reject, now or once it is rolled out.
    closed: bool,
    segment: Option<Segment>,
}

impl Compared<'_> {
    /// In which phase it is asked.
    pub fn hook_type(&self) -> HookType {
        self.hook.hook_type
    }

    /// Do its failures reject, now or once it is rolled out?
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl fmt::Display for Compared<'_> {
    /// `hook "a.example.com"`, or `initializers of pods`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            CoverageSubject::Hook(_) => write!(f, "hook {:?}", self.hook.name),
            CoverageSubject::Initializers => f.write_str(&self.hook.name),
        }
    }
}

/// Something that a hook means and the registration does not send as the hook means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The hook, or initializers.
    pub subject: CoverageSubject,
    /// Its place in the order of [`compared`].
    pub at: usize,
    /// Its type.
    pub hook_type: HookType,
    /// `hook "a.example.com"`, or `initializers of pods`.
    pub name: String,
    /// Some of it is not sent at all that should be; otherwise it is left out on purpose, or fails open.
    pub missed: bool,
    /// Missing requests.
    pub what: String,
    /// Consequence: a clause, as in a [`Problem`](crate::Problem).
    pub why: &'static str,
    /// Advice on it.
    pub fix: &'static str,
}

impl fmt::Display for Gap {
    /// `hook "a.example.com": what, why; fix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, what, why, fix, .. } = self;
        debug_assert!(is_reason(why) && !fix.is_empty(), "{self:?} gives no reason, or no advice");
        write!(f, "{name}: {what}, {why}; {fix}")
    }
}

/// Gap before it is known whose it is; those that are only left out come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Missing {
    missed: bool,
    what: String,
    why: &'static str,
    fix: &'static str,
}

const REGISTER: &str = "run `gatepost register --config PATH` and apply what it prints";

const NOT_SENT: &str = "so the hook is never asked about it";

impl Registration {
    /// The webhooks in these webhook configurations, of both kinds, that lead to Gatepost; of other documents, none.
    ///
    /// # Errors
    /// The first problem of one that an apiserver would not take.
    pub fn read(documents: impl IntoIterator<Item = Value>) -> Result<Self, String> {
        let mut entries = Vec::new();
        let kinds = [HookType::Validating, HookType::Mutating].map(webhooks_kind);
        for mut document in documents.into_iter().filter(|document| kinds.iter().any(|kind| document["kind"] == **kind))
        {
            let mut conditions = HashMap::new();
            // Ours leave requests to other entries; those of others are not ours to judge.
            for webhook in document["webhooks"].as_array_mut().into_iter().flatten() {
                if let (Some(name), Some(condition)) = (webhook["name"].as_str(), foreign_condition(webhook)) {
                    conditions.insert(name.to_owned(), condition.to_owned());
                }
                webhook.as_object_mut().map(|webhook| webhook.remove("matchConditions"));
            }
            let hooks = checked_webhook_configuration("registration", &document).map_err(|problems| {
                problems.first().map_or_else(String::new, |problem| {
                    format!("{}: {}, {}; {}", problem.path, problem.what, problem.why, problem.fix)
                })
            })?;
            entries.extend(hooks.into_iter().filter_map(|hook| {
                let Protocol::Http { path, .. } = &hook.protocol else { return None };
                let (path, segment) = match Segment::split(path) {
                    Some((path, segment)) if hook.hook_type == HookType::Mutating => (path, Some(segment)),
                    _ => (&**path, None),
                };
                let rest = path.strip_prefix(self::path(hook.hook_type))?;
                let one_version = rest == ONE_VERSION;
                (one_version || rest.is_empty()).then(|| RegisteredWebhook {
                    atoms: atoms_of(&hook),
                    condition: conditions.remove(&*hook.name),
                    one_version,
                    segment,
                    hook,
                })
            }));
        }
        Ok(Self { entries })
    }

    /// The webhooks of another one as well.
    pub fn join(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Are mutating hooks registered apart?
    pub fn has_segments(&self) -> bool {
        self.entries.iter().any(|entry| entry.segment.is_some_and(|segment| segment.of > 1))
    }

    /// Does none lead to Gatepost?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Requests that hooks want and this does not send so, in the order of the hooks.
    pub fn gaps(&self, snapshot: &Snapshot) -> Vec<Gap> {
        self.gaps_but_in(snapshot, &[])
    }

    /// The same, but for requests in these namespaces, which somebody else sees to.
    pub fn gaps_but_in(&self, snapshot: &Snapshot, namespaces: &[String]) -> Vec<Gap> {
        let mut found = Vec::new();
        for (at, mut one) in compared(snapshot).enumerate() {
            if !namespaces.is_empty() {
                let hook = one.hook.to_mut();
                hook.namespace_selector = without(&hook.namespace_selector, namespaces);
            }
            let hook = &*one.hook;
            let entries: Vec<_> = self.entries.iter().filter(|entry| entry.asks(&one)).collect();
            let mut gaps = gaps(hook, one.closed, &entries);
            if let Some(entry) = entries.iter().find(|entry| hook.isolated && !entry.isolates(one.segment)) {
                gaps.insert(Missing {
                    missed: false,
                    what: format!(
                        "it is to be registered apart, and is asked together with others by {}",
                        entry.hook.name
                    ),
                    why: "so kube-apiserver decodes and defaults nothing between them",
                    fix: "run `gatepost register --kind mutating --config PATH` and apply what it prints",
                });
            }
            let (subject, hook_type) = (one.subject, hook.hook_type);
            let gap = |Missing { missed, what, why, fix }| {
                let name = one.to_string();
                Gap { subject, at, hook_type, name, missed, what, why, fix }
            };
            found.extend(gaps.into_iter().map(gap));
        }
        found
    }
}

/// All that a registration has to cover: hooks with a rule, and resources with initializers that act.
pub fn compared(snapshot: &Snapshot) -> impl Iterator<Item = Compared<'_>> {
    let hooks = (0..).zip(snapshot.hooks.iter().map(AsRef::as_ref));
    let hooks = hooks.filter(|(_, hook): &(u32, &Hook)| !hook.rules.is_empty()).map(move |(index, hook)| {
        let declared = snapshot.origin(index).map_or(hook.failure_policy, |origin| origin.declared_policy);
        let closed = declared != FailurePolicy::Ignore;
        Compared {
            subject: CoverageSubject::Hook(index),
            hook: Cow::Borrowed(hook),
            closed,
            segment: snapshot.segment(index),
        }
    });
    let resources = snapshot.initializers().iter().filter(|entry| entry.need_requests());
    hooks.chain(resources.flat_map(|entry| [Some(as_a_hook(entry)), as_a_guard(entry)]).flatten().map(|hook| {
        let closed = hook.failure_policy != FailurePolicy::Ignore;
        Compared { subject: CoverageSubject::Initializers, hook: Cow::Owned(hook), closed, segment: None }
    }))
}

/// Gaps of one hook, and whether any request of it is not sent at all.
fn gaps(hook: &Hook, closed: bool, entries: &[&RegisteredWebhook]) -> BTreeSet<Missing> {
    let mut gaps = BTreeSet::new();
    let own = atoms_of(hook);
    for atom in own.iter().flat_map(Atom::by_operation) {
        let seen = || entries.iter().copied().filter(|entry| entry.atoms.iter().any(|sent| atom.is_sent_by(sent)));
        let sent = || seen().filter(|entry| entry.atoms.iter().any(|sent| entry.sends(&atom, sent)));
        let selected = || sent().filter(|entry| entry.selects_all_of(hook));
        let whole = || selected().filter(|entry| entry.condition.is_none());
        if let Some(entry) = whole().next() {
            // Elsewhere its call fails, and is told.
            let converts = |entry: &RegisteredWebhook| {
                let mut sending = entry.atoms.iter().filter(|sent| entry.sends(&atom, sent));
                !entry.one_version || sending.any(|sent| !atom.is_unconverted_by(sent, &own))
            };
            if hook.match_policy == MatchPolicy::Equivalent && !whole().any(converts) {
                let noun = atom.noun();
                gaps.insert(Missing {
                    missed: true,
                    what: format!("{noun} is sent by {} also in another group, unconverted", entry.hook.name),
                    why: NOT_SENT,
                    fix: REGISTER,
                });
                continue;
            }
            let open = |entry: &RegisteredWebhook| entry.hook.failure_policy == FailurePolicy::Ignore;
            if closed && whole().all(open) {
                let what = "its failure policy is Fail, and the entry that sends what it sees is Ignore";
                gaps.insert(Missing {
                    missed: false,
                    what: format!("{what} ({})", entry.hook.name),
                    why: "so while Gatepost itself does not answer, such writes pass unseen",
                    fix: "register with --failure-policy Fail, or declare failurePolicy: Ignore for the hook",
                });
            }
            continue;
        }
        if let Some((entry, condition)) = selected().find_map(|entry| Some((entry, entry.condition.as_ref()?))) {
            let (noun, sender) = (atom.noun(), &entry.hook.name);
            gaps.insert(Missing {
                missed: true,
                what: format!("{noun} is sent by {sender} only where its match condition {condition} is true"),
                why: "and gatepost register has not written that",
                fix: "remove it",
            });
            continue;
        }
        let by_name = sent().find_map(|entry| entry.left_out_by_name(hook));
        let noun = atom.noun();
        gaps.insert(match (seen().next(), sent().next(), by_name) {
            (.., Some(names)) => Missing {
                missed: false,
                what: format!("{noun} in {} is left out by the registration", names.join(", ")),
                why: NOT_SENT,
                fix: "leave those namespaces out of the hook's namespaceSelector, too, or send them: register with \
                      --include-kube-system, or without --exclude-namespace",
            },
            (_, Some(entry), None) => Missing {
                missed: true,
                what: format!("{noun} is not sent where a selector of {} leaves it out", entry.hook.name),
                why: "and the hook's own selector does not leave it out",
                fix: REGISTER,
            },
            (Some(entry), None, _) => Missing {
                missed: true,
                what: format!("{noun} is sent by {} in other versions than it takes", entry.hook.name),
                why: NOT_SENT,
                fix: REGISTER,
            },
            (None, None, None) => {
                Missing { missed: true, what: format!("{noun} is sent by no entry"), why: NOT_SENT, fix: REGISTER }
            }
        });
    }
    gaps
}

impl RegisteredWebhook {
    /// Is it asked where this sends something?
    fn asks(&self, one: &Compared<'_>) -> bool {
        let asks = |segment: Segment| match one.subject {
            CoverageSubject::Hook(_) => one.segment.is_none_or(|of| segment.asks(of.number, of.of)),
            // They act behind the last hook.
            CoverageSubject::Initializers => segment.number == segment.of,
        };
        self.hook.hook_type == one.hook.hook_type && self.segment.is_none_or(asks)
    }

    /// Is only the hook of this segment asked where it sends something?
    fn isolates(&self, of: Option<Segment>) -> bool {
        of.is_none_or(|of| of.of == 1) || self.segment == of
    }

    /// Does it send what the atom means in a version that the atom's hook takes, whichever way a client has made it?
    fn sends(&self, wanted: &Atom, sent: &Atom) -> bool {
        if !wanted.is_sent_by(sent) {
            return false;
        }
        let equivalent = self.hook.match_policy == MatchPolicy::Equivalent;
        match (wanted.agrees_on_versions(sent), self.one_version) {
            (true, _) => equivalent || sent.takes("*"),
            // Elsewhere: a hook that is not sent its version there is asked by another entry, or not at all.
            (false, true) => false,
            (false, false) => sent.takes("*") || equivalent && sent.names_no_more_than(wanted),
        }
    }

    fn selects_all_of(&self, hook: &Hook) -> bool {
        let objects = &self.hook.object_selector;
        is_within(&hook.namespace_selector, &self.hook.namespace_selector)
            && (objects.is_empty() || *objects == hook.object_selector)
    }

    /// The namespaces that it leaves out and the hook does not, where that is all.
    fn left_out_by_name(&self, hook: &Hook) -> Option<Vec<String>> {
        let objects = &self.hook.object_selector;
        if !objects.is_empty() && *objects != hook.object_selector {
            return None;
        }
        let more = self.hook.namespace_selector.0.iter();
        let more = more.filter(|requirement| !implies(&hook.namespace_selector, requirement));
        let more = Selector(more.cloned().collect());
        let own = names_left_out(&hook.namespace_selector).unwrap_or_default();
        let names = names_left_out(&more)?;
        Some(names.into_iter().filter(|name| !own.contains(name)).map(str::to_owned).collect())
    }
}

/// The longest time that an apiserver waits for a webhook.
const MAX_WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The beginning of the names of such hooks.
const PREFIX: &str = "initializers of ";

/// Is this the name of such a hook? No other may be called so: names have no blanks.
pub fn is_of_initializers(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// All initializers of a resource as if they were one mutating hook, so that it is compared with registrations as a
/// hook is. It is never called.
pub fn as_a_hook(entry: &ResourceInitializers) -> Hook {
    let mut rules = vec![rule(entry, Operation::Create, &[""])];
    if entry.by_label {
        rules.push(rule(entry, Operation::Update, &["", "/*"]));
    }
    hook(entry, HookType::Mutating, rules)
}

/// The check of what others write of objects that are stored by label, as if it were one validating hook: it comes after
/// all that may change the object. `None` where they are not.
pub fn as_a_guard(entry: &ResourceInitializers) -> Option<Hook> {
    let rules = || vec![rule(entry, Operation::Create, &[""]), rule(entry, Operation::Update, &["", "/*"])];
    entry.by_label.then(|| hook(entry, HookType::Validating, rules()))
}

/// A rule for that operation on these of its subresources, in every version.
fn rule(entry: &ResourceInitializers, operation: Operation, subresources: &[&str]) -> Rule {
    Rule {
        operations: vec![operation],
        api_groups: vec![entry.api_group.clone()],
        api_versions: vec!["*".into()],
        resources: subresources.iter().map(|sub| format!("{}{sub}", entry.resource).into()).collect(),
        scope: Scope::Any,
    }
}

fn hook(entry: &ResourceInitializers, hook_type: HookType, rules: Vec<Rule>) -> Hook {
    let initializers = &entry.initializers;
    let acts = |one: &&gatepost_api::Initializer| entry.by_label || one.acts_in_flight();
    let closed = initializers.iter().filter(acts).any(|one| one.failure_policy != FailurePolicy::Ignore);
    Hook {
        name: format!("{PREFIX}{}", entry.noun()).into(),
        hook_type,
        id: "".into(),
        rules,
        match_policy: MatchPolicy::Exact,
        sees_admission_config: false,
        endpoint: Endpoint { address: Address::Unix("".into()), tls: None, transport: Transport::Grpc },
        protocol: Protocol::Grpc,
        failure_policy: if closed { FailurePolicy::Fail } else { FailurePolicy::Ignore },
        // An initializer that has more time does not act while the request waits.
        timeout: initializers.iter().map(|one| one.timeout.min(MAX_WEBHOOK_TIMEOUT)).max().unwrap_or_default(),
        side_effects: SideEffects::None,
        reinvocation: Reinvocation::Never,
        dispatch: None,
        isolated: false,
        // A list that a client writes counts whatever the selectors are.
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    }
}
