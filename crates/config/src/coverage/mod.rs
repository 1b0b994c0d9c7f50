//! Coverage: compares hooks with a registration at an apiserver. A hook is never called for a request that the
//! registration does not send.

pub mod rule_index;
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
    Endpoint, Enforcement, FailurePolicy, Hook, HookType, MatchPolicy, Operation, Protocol, Reinvocation,
    ResourceInitializers, Rule, Scope, Selector, SideEffects, Transport,
    hook::Address,
    registration::{DEDUP_CONDITION_PREFIX, Segment},
};
use gatepost_policy::Policy;

pub use self::selectors::{Atom, atoms_of};

/// Returns the path at which Gatepost takes reviews for hooks of that type.
pub const fn path(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "/validate",
        HookType::Mutating => "/mutate",
    }
}

/// Suffix of the path in entries that each send one version: only the hooks that take this version are called.
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
    /// Segment of the mutating hooks that are called; `None` for all.
    segment: Option<Segment>,
    atoms: Vec<Atom>,
    /// Name of a match condition that may exclude requests.
    condition: Option<String>,
}

/// Returns a match condition of the entry that `gatepost register` has not written, if any. It may exclude any request.
pub fn foreign_condition(entry: &Value) -> Option<&str> {
    let names = entry["matchConditions"].as_array().into_iter().flatten();
    let mut names = names.map(|condition| condition["name"].as_str().unwrap_or_default());
    names.find(|name| !name.starts_with(DEDUP_CONDITION_PREFIX))
}

/// Hook, initializers or policy for which an apiserver must send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageSubject {
    /// The hook with this number in the snapshot.
    Hook(u32),
    /// All initializers of one resource.
    Initializers,
    /// A policy.
    Policy,
}

/// A hook, or the initializers of a resource, that is compared with a registration.
#[derive(Debug)]
pub struct CoverageRequirement<'a> {
    /// Hook or initializers that need the requests.
    pub subject: CoverageSubject,
    hook: Cow<'a, Hook>,
    /// True if failures reject, now or after the rollout.
    fails_closed: bool,
    segment: Option<Segment>,
}

impl CoverageRequirement<'_> {
    /// Returns the type of the hook.
    pub fn hook_type(&self) -> HookType {
        self.hook.hook_type
    }

    /// Returns true if failures reject, now or after the rollout.
    pub fn is_closed(&self) -> bool {
        self.fails_closed
    }

    /// Returns the segment of a mutating hook; `None` for other hooks and for initializers.
    pub fn segment(&self) -> Option<Segment> {
        self.segment
    }

    /// Returns the hook, or the hook that stands for the initializers of a resource.
    pub fn into_hook(self) -> Hook {
        self.hook.into_owned()
    }
}

impl fmt::Display for CoverageRequirement<'_> {
    /// `hook "a.example.com"`, or `initializers of pods`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            CoverageSubject::Hook(_) => write!(f, "hook {:?}", self.hook.name),
            CoverageSubject::Initializers | CoverageSubject::Policy => f.write_str(&self.hook.name),
        }
    }
}

/// Requests that a hook needs and that the registration does not send as needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Hook or initializers that need the requests.
    pub subject: CoverageSubject,
    /// Index in the order of [`compared`].
    pub at: usize,
    /// Type of the hook.
    pub hook_type: HookType,
    /// `hook "a.example.com"`, or `initializers of pods`.
    pub name: String,
    /// True if requests that should be sent are not; false for any other fault of the registration.
    pub missed: bool,
    /// Missing requests.
    pub what: String,
    /// Consequence of the gap: a clause, as in a [`Problem`](crate::Problem).
    pub why: &'static str,
    /// Advice on the gap.
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

/// A gap without its hook. Gaps with `missed: false` sort first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GapDraft {
    missed: bool,
    what: String,
    why: &'static str,
    fix: &'static str,
}

const REGISTER: &str = "run `gatepost register --config PATH` and apply what it prints";

const NOT_SENT: &str = "so the hook is never asked about it";

impl Registration {
    /// Returns the webhooks in these webhook configurations that lead to Gatepost. Ignores documents of other kinds.
    ///
    /// # Errors
    /// The first problem of a configuration that an apiserver would reject.
    pub fn read(documents: impl IntoIterator<Item = Value>) -> Result<Self, String> {
        let mut entries = Vec::new();
        let kinds = [HookType::Validating, HookType::Mutating].map(webhooks_kind);
        for mut document in documents.into_iter().filter(|document| kinds.iter().any(|kind| document["kind"] == **kind))
        {
            let mut conditions = HashMap::new();
            // Our own match conditions leave requests to other entries; others cannot be evaluated here.
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

    /// Adds the webhooks of another registration.
    pub fn join(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Returns the number of webhooks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if mutating hooks are registered in several segments.
    pub fn has_segments(&self) -> bool {
        self.entries.iter().any(|entry| entry.segment.is_some_and(|segment| segment.of > 1))
    }

    /// Returns true if no webhook leads to Gatepost.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the requests that hooks need and this registration does not send as needed, in the order of the hooks.
    pub fn gaps(&self, snapshot: &Snapshot) -> Vec<Gap> {
        self.gaps_outside(snapshot, &[])
    }

    /// Returns the [gaps](Self::gaps) without requests in these namespaces, which are covered otherwise.
    pub fn gaps_outside(&self, snapshot: &Snapshot, namespaces: &[String]) -> Vec<Gap> {
        let mut found = Vec::new();
        for (at, mut one) in compared(snapshot).enumerate() {
            if !namespaces.is_empty() {
                let hook = one.hook.to_mut();
                hook.namespace_selector = without(&hook.namespace_selector, namespaces);
            }
            let hook = &*one.hook;
            let entries: Vec<_> = self.entries.iter().filter(|entry| entry.calls(&one)).collect();
            let mut gaps = gaps(hook, one.fails_closed, &entries);
            if let Some(entry) = entries.iter().find(|entry| hook.isolated && !entry.isolates(one.segment)) {
                gaps.insert(GapDraft {
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
            let gap = |GapDraft { missed, what, why, fix }| {
                let name = one.to_string();
                Gap { subject, at, hook_type, name, missed, what, why, fix }
            };
            found.extend(gaps.into_iter().map(gap));
        }
        found
    }
}

/// Returns all that a registration must cover: hooks with a rule, policies, and resources with initializers that need
/// requests.
pub fn compared(snapshot: &Snapshot) -> impl Iterator<Item = CoverageRequirement<'_>> {
    requirements(snapshot, ResourceInitializers::need_requests)
}

/// Returns every hook with a rule, every policy, and the initializers of the resources that `includes` returns true
/// for.
fn requirements(
    snapshot: &Snapshot,
    includes: fn(&ResourceInitializers) -> bool,
) -> impl Iterator<Item = CoverageRequirement<'_>> {
    let hooks = (0..).zip(snapshot.hooks.iter().map(AsRef::as_ref));
    let hooks = hooks.filter(|(_, hook): &(u32, &Hook)| !hook.rules.is_empty()).map(move |(index, hook)| {
        let declared = snapshot.origin(index).map_or(hook.failure_policy, |origin| origin.declared_policy);
        let fails_closed = hook.fails_closed(declared);
        CoverageRequirement {
            subject: CoverageSubject::Hook(index),
            hook: Cow::Borrowed(hook),
            fails_closed,
            segment: snapshot.segment(index),
        }
    });
    let policies = snapshot.policies().iter().map(|policy| {
        let hook = policy_as_a_hook(policy);
        let fails_closed = hook.fails_closed(hook.failure_policy);
        CoverageRequirement { subject: CoverageSubject::Policy, hook: Cow::Owned(hook), fails_closed, segment: None }
    });
    let hooks = hooks.chain(policies);
    let resources = snapshot.initializers().iter().filter(move |entry| includes(entry));
    hooks.chain(resources.flat_map(|entry| [Some(as_a_hook(entry)), as_a_guard(entry)]).flatten().map(|hook| {
        let fails_closed = hook.failure_policy != FailurePolicy::Ignore;
        CoverageRequirement {
            subject: CoverageSubject::Initializers,
            hook: Cow::Owned(hook),
            fails_closed,
            segment: None,
        }
    }))
}

/// Returns the gaps of one hook.
fn gaps(hook: &Hook, fails_closed: bool, entries: &[&RegisteredWebhook]) -> BTreeSet<GapDraft> {
    let mut gaps = BTreeSet::new();
    let own = atoms_of(hook);
    for atom in own.iter().flat_map(Atom::by_operation) {
        let seen = || entries.iter().copied().filter(|entry| entry.atoms.iter().any(|sent| atom.is_sent_by(sent)));
        let sent = || seen().filter(|entry| entry.atoms.iter().any(|sent| entry.sends(&atom, sent)));
        let selected = || sent().filter(|entry| entry.selects_all_of(hook));
        let whole = || selected().filter(|entry| entry.condition.is_none());
        if let Some(entry) = whole().next() {
            // At the path without the suffix, the call fails and is reported.
            let converts = |entry: &RegisteredWebhook| {
                let mut sending = entry.atoms.iter().filter(|sent| entry.sends(&atom, sent));
                !entry.one_version || sending.any(|sent| !atom.is_unconverted_by(sent, &own))
            };
            if hook.match_policy == MatchPolicy::Equivalent && !whole().any(converts) {
                let noun = atom.noun();
                gaps.insert(GapDraft {
                    missed: true,
                    what: format!("{noun} is sent by {} also in another group, unconverted", entry.hook.name),
                    why: NOT_SENT,
                    fix: REGISTER,
                });
                continue;
            }
            let open = |entry: &RegisteredWebhook| entry.hook.failure_policy == FailurePolicy::Ignore;
            if fails_closed && whole().all(open) {
                let what = "its failure policy is Fail, and the entry that sends what it sees is Ignore";
                gaps.insert(GapDraft {
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
            gaps.insert(GapDraft {
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
            (.., Some(names)) => GapDraft {
                missed: false,
                what: format!("{noun} in {} is left out by the registration", names.join(", ")),
                why: NOT_SENT,
                fix: "leave those namespaces out of the hook's namespaceSelector, too, or send them: register with \
                      --include-kube-system, or without --exclude-namespace",
            },
            (_, Some(entry), None) => GapDraft {
                missed: true,
                what: format!("{noun} is not sent where a selector of {} leaves it out", entry.hook.name),
                why: "and the hook's own selector does not leave it out",
                fix: REGISTER,
            },
            (Some(entry), None, _) => GapDraft {
                missed: true,
                what: format!("{noun} is sent by {} in other versions than it takes", entry.hook.name),
                why: NOT_SENT,
                fix: REGISTER,
            },
            (None, None, None) => {
                GapDraft { missed: true, what: format!("{noun} is sent by no entry"), why: NOT_SENT, fix: REGISTER }
            }
        });
    }
    gaps
}

impl RegisteredWebhook {
    /// Returns true if Gatepost calls the hook or initializers for the requests of this webhook.
    fn calls(&self, one: &CoverageRequirement<'_>) -> bool {
        let calls = |segment: Segment| match one.subject {
            CoverageSubject::Hook(_) => one.segment.is_none_or(|of| segment.calls(of.number, of.of)),
            // Initializers act after the last hook.
            CoverageSubject::Initializers => segment.number == segment.of,
            // Mutating policies decide before the first hook.
            CoverageSubject::Policy => segment.number == 1,
        };
        self.hook.hook_type == one.hook.hook_type && self.segment.is_none_or(calls)
    }

    /// Returns true if only the hooks of this segment are called for the requests of this webhook.
    fn isolates(&self, of: Option<Segment>) -> bool {
        of.is_none_or(|of| of.of == 1) || self.segment == of
    }

    /// Returns true if the webhook sends what `wanted` matches, whatever version clients use, in a version that it
    /// takes.
    fn sends(&self, wanted: &Atom, sent: &Atom) -> bool {
        if !wanted.is_sent_by(sent) {
            return false;
        }
        let equivalent = self.hook.match_policy == MatchPolicy::Equivalent;
        match (wanted.agrees_on_versions(sent), self.one_version) {
            (true, _) => equivalent || sent.takes("*"),
            // At the path with the suffix, a hook is not called for a version that it does not take.
            (false, true) => false,
            (false, false) => sent.takes("*") || equivalent && sent.names_no_more_than(wanted),
        }
    }

    fn selects_all_of(&self, hook: &Hook) -> bool {
        let objects = &self.hook.object_selector;
        is_within(&hook.namespace_selector, &self.hook.namespace_selector)
            && (objects.is_empty() || *objects == hook.object_selector)
    }

    /// Returns the namespaces that only the webhook excludes; `None` if it excludes anything else.
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

/// Maximum time that an apiserver waits for a webhook.
const MAX_WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a registration leaves for a policy, which may wait for its params.
const POLICY_TIMEOUT: Duration = Duration::from_secs(10);

/// Prefix of the names of hooks that stand for initializers.
const PREFIX: &str = "initializers of ";

/// Returns true if this is the name of a hook that stands for initializers. Names of other hooks have no spaces.
pub fn is_of_initializers(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns all initializers of a resource as one mutating hook, so that it can be compared with registrations. The hook
/// is never called.
pub fn as_a_hook(entry: &ResourceInitializers) -> Hook {
    let mut rules = vec![rule(entry, Operation::Create, &[""])];
    if entry.by_label {
        rules.push(rule(entry, Operation::Update, &["", "/*"]));
    }
    hook(entry, HookType::Mutating, rules)
}

/// Returns the check of other clients' writes to objects that are stored by label, as one validating hook: it follows
/// all changes. `None` if the objects are not stored by label.
pub fn as_a_guard(entry: &ResourceInitializers) -> Option<Hook> {
    let rules = || vec![rule(entry, Operation::Create, &[""]), rule(entry, Operation::Update, &["", "/*"])];
    entry.by_label.then(|| hook(entry, HookType::Validating, rules()))
}

/// Returns a rule for the operation on these subresources, in every version.
fn rule(entry: &ResourceInitializers, operation: Operation, subresources: &[&str]) -> Rule {
    Rule {
        operations: vec![operation],
        api_groups: vec![entry.api_group.clone()],
        api_versions: vec!["*".into()],
        resources: subresources.iter().map(|sub| format!("{}{sub}", entry.resource).into()).collect(),
        scope: Scope::Any,
    }
}

/// Returns a policy as a hook with its rules and selectors, so that it can be compared with registrations. The hook is
/// never called. Rules that exclude requests, and bindings, are left out, which only makes it larger.
pub fn policy_as_a_hook(policy: &Policy) -> Hook {
    let definition = &policy.definition;
    let constraints = &definition.constraints;
    Hook {
        enforcement: policy.enforcement,
        match_policy: constraints.match_policy,
        namespace_selector: constraints.namespace_selector.clone(),
        object_selector: constraints.object_selector.clone(),
        reinvocation: definition.reinvocation,
        ..stand_in(
            format!("policy \"{}\"", definition.name),
            definition.hook_type,
            constraints.rules.iter().map(|named| named.rule.clone()).collect(),
            definition.failure_policy,
            POLICY_TIMEOUT,
        )
    }
}

fn hook(entry: &ResourceInitializers, hook_type: HookType, rules: Vec<Rule>) -> Hook {
    let initializers = &entry.initializers;
    let acts = |one: &&gatepost_api::Initializer| entry.by_label || one.acts_in_flight();
    let fails_closed = initializers.iter().filter(acts).any(|one| one.failure_policy != FailurePolicy::Ignore);
    // An initializer with a longer timeout does not act while the request waits.
    let timeout = initializers.iter().map(|one| one.timeout.min(MAX_WEBHOOK_TIMEOUT)).max().unwrap_or_default();
    let policy = if fails_closed { FailurePolicy::Fail } else { FailurePolicy::Ignore };
    stand_in(format!("{PREFIX}{}", entry.noun()), hook_type, rules, policy, timeout)
}

/// Returns a hook that is never called. The list of initializers that a client writes is checked whatever their
/// selectors are, so it has none.
fn stand_in(
    name: String,
    hook_type: HookType,
    rules: Vec<Rule>,
    failure_policy: FailurePolicy,
    timeout: Duration,
) -> Hook {
    Hook {
        name: name.into(),
        hook_type,
        id: "".into(),
        rules,
        match_policy: MatchPolicy::Exact,
        sees_admission_config: false,
        endpoint: Endpoint {
            address: Address::Unix("".into()),
            tls: None,
            transport: Transport::Grpc,
            authorization: None,
        },
        protocol: Protocol::Grpc,
        takes_protobuf: false,
        failure_policy,
        enforcement: Enforcement::Deny,
        canary: None,
        timeout,
        side_effects: SideEffects::None,
        reinvocation: Reinvocation::Never,
        dispatch: None,
        after: Box::default(),
        is_transactional: false,
        isolated: false,
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    }
}
