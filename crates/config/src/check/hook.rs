//! Checks and compiles one entry of `externalAdmissionHooks`.

use std::{collections::HashSet, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    bypass::listed,
    client_config::{self, HookLocation},
    names::{self, is_dns_1035_label},
    rules, selector,
};
use crate::{
    Note, Origin, ReadFile,
    document::{
        Dialect,
        node::{Node, UNCLEAR, Value, given},
        problem::{one_of, quoted},
    },
};
use gatepost_api::{
    Canary, Dispatch, Endpoint, Enforcement, FailurePolicy, Hook, HookType, HttpForm, MatchPolicy, OnProbeFailure,
    Protocol, Reinvocation, ReviewVersion, Rollout, SideEffects, Transport, initialization::order,
};
use gatepost_cel::Condition;

pub(crate) const KEYS: [&str; 23] = [
    "name",
    "type",
    "clientConfig",
    "protocol",
    "objectEncoding",
    "admissionReviewVersions",
    "rules",
    "matchPolicy",
    "failurePolicy",
    "enforcement",
    "canary",
    "phase",
    "after",
    "timeout",
    "timeoutSeconds",
    "sideEffects",
    "reinvocationPolicy",
    "dispatch",
    "isolate",
    "namespaceSelector",
    "objectSelector",
    "matchConditions",
    "rollout",
];

pub(crate) const TYPES: [(&str, HookType); 2] =
    [("Validating", HookType::Validating), ("Mutating", HookType::Mutating)];

pub(crate) const POLICIES: [(&str, FailurePolicy); 3] =
    [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore), ("Retry", FailurePolicy::Retry)];

/// Values of `enforcement`, also as an annotation.
pub(crate) const ENFORCEMENTS: [(&str, Enforcement); 4] = [
    ("Deny", Enforcement::Deny),
    ("Warn", Enforcement::Warn),
    ("Audit", Enforcement::Audit),
    ("Shadow", Enforcement::Shadow),
];

pub(crate) const MATCH_POLICIES: [(&str, MatchPolicy); 2] =
    [("Exact", MatchPolicy::Exact), ("Equivalent", MatchPolicy::Equivalent)];

pub(crate) const SIDE_EFFECTS: [(&str, SideEffects); 4] = [
    ("None", SideEffects::None),
    ("NoneOnDryRun", SideEffects::NoneOnDryRun),
    ("Some", SideEffects::Some),
    ("Unknown", SideEffects::Unknown),
];

/// Maximum number of hooks that wait for each other of which `after` is ignored alone; beyond it that of all hooks is. It
/// bounds the time of a configuration with many such hooks.
const MAX_WAITING_HOOKS: usize = 100;

/// Values of `objectEncoding`: whether the hook takes objects in protobuf.
pub(crate) const OBJECT_ENCODINGS: [(&str, bool); 2] = [("JSON", false), ("Protobuf", true)];

/// Values of `phase`.
pub(crate) const PHASES: [(&str, bool); 1] = [("Transactional", true)];

/// Values of `reinvocationPolicy`.
pub(crate) const REINVOCATIONS: [(&str, Reinvocation); 2] =
    [("Never", Reinvocation::Never), ("IfNeeded", Reinvocation::IfNeeded)];

/// Values of `dispatch`.
pub(crate) const DISPATCHES: [(&str, Dispatch); 2] =
    [("Serial", Dispatch::Serial), ("Speculative", Dispatch::Speculative)];

/// Default timeout of a hook, as in upstream.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Range of a hook's timeout.
const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30);

/// A hook, and the parts of its entry that [`Hook`] does not have.
pub(crate) struct CheckedHook {
    pub(crate) hook: Hook,
    /// Failure policy as written. The hook's own is `Ignore` while the entry has `rollout.createAs: Ignore`.
    pub(crate) declared_policy: FailurePolicy,
    /// True if the entry has `rollout.createAs: Ignore`.
    pub(crate) rolling_out: bool,
    pub(crate) rollout: Rollout,
    /// Conditions that a request must meet before the hook is called.
    pub(crate) conditions: Arc<[Condition]>,
    /// State of the entry, from the annotation [`crate::ENTRY_STATES`], if any.
    pub(crate) state: Option<Box<str>>,
    /// File of the entry, and its path in the file.
    pub(crate) place: (String, String),
}

/// Checks one entry and reports its problems.
pub(crate) fn check(at: &Node<'_>, read: ReadFile<'_>) -> Option<CheckedHook> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let name = name(&at.key("name"));
    let hook_type = given(at.key("type")).map_or(Some(HookType::Validating), |at| at.choice(&TYPES));
    let client = client_config::check(&at.key("clientConfig"), Dialect::Gatepost, read);
    let target = client.and_then(|client| check_protocol(at, client));
    let protocol = target.as_ref().map(|(_, protocol)| protocol);
    let takes_protobuf = takes_protobuf(&at.key("objectEncoding"), hook_type, protocol);
    let rules = rule_list(&at.key("rules"));
    let match_policy = match_policy(&at.key("matchPolicy"));
    let side_effects =
        given(at.key("sideEffects")).map_or(Some(SideEffects::Undeclared), |at| at.choice(&SIDE_EFFECTS));
    let declared_policy = given(at.key("failurePolicy")).map_or(Some(FailurePolicy::Fail), |at| at.choice(&POLICIES));
    if declared_policy == Some(FailurePolicy::Retry) && side_effects.is_some_and(|effects| !effects.none_for(false)) {
        at.key("failurePolicy").problem(
            "Retry may call the hook twice",
            "and the hook is not declared free of side effects",
            "declare sideEffects: None if that is true (NoneOnDryRun is not enough), or use Fail or Ignore",
        );
    }
    let enforcement = given(at.key("enforcement")).map_or(Some(Enforcement::Deny), |at| at.choice(&ENFORCEMENTS));
    let canary = given(at.key("canary")).and_then(|at| canary(&at, enforcement));
    let timeout = timeout(at);
    let reinvocation = given(at.key("reinvocationPolicy")).map_or(Some(Reinvocation::Never), |at| {
        if hook_type == Some(HookType::Validating) {
            at.problem(
                "only a hook of type Mutating is called again",
                "so it would have no effect",
                "remove it, or make the hook Mutating",
            );
        }
        at.choice(&REINVOCATIONS)
    });
    let dispatch = given(at.key("dispatch")).and_then(|at| {
        if hook_type == Some(HookType::Validating) {
            at.problem(
                "validating hooks are always called concurrently",
                "so it would have no effect",
                "remove it, or make the hook Mutating",
            );
        }
        let dispatch = at.choice(&DISPATCHES);
        if dispatch == Some(Dispatch::Speculative) && side_effects.is_some_and(|effects| !effects.none_for(true)) {
            at.problem(
                "may call the hook with objects it would not receive in serial mode",
                "and the hook is not declared free of side effects",
                "declare sideEffects: None or NoneOnDryRun if that is true, or remove dispatch",
            );
        }
        dispatch
    });
    let is_transactional = given(at.key("phase")).map_or(Some(false), |at| {
        if hook_type == Some(HookType::Mutating) {
            at.problem(
                "only a hook of type Validating can be called after all others",
                "since what a mutating hook changes is validated behind it",
                "remove it, or make the hook Validating",
            );
        }
        at.choice(&PHASES)
    });
    let after = given(at.key("after")).map_or_else(Vec::new, |at| {
        if hook_type == Some(HookType::Validating) && is_transactional == Some(false) {
            at.problem(
                "validating hooks are called together",
                "so it would have no effect",
                "remove it, or make the hook Mutating, or write phase: Transactional",
            );
        }
        listed(&at, "the name of a hook", names::is_dns_subdomain, names::SUBDOMAIN)
    });
    let isolated = given(at.key("isolate")).is_some_and(|at| {
        if hook_type == Some(HookType::Validating) {
            at.problem(
                "only a hook of type Mutating can be registered apart",
                "so it would have no effect",
                "remove it, or make the hook Mutating",
            );
        }
        at.boolean() == Some(true)
    });
    let namespace_selector = selector::check(&at.key("namespaceSelector"), Dialect::Gatepost);
    let object_selector = selector::check(&at.key("objectSelector"), Dialect::Gatepost);
    let conditions = selector::check_match_conditions(&at.key("matchConditions"));
    let (create_as, rollout) = check_rollout(&at.key("rollout"));
    if at.problems() > before {
        return None;
    }
    let (declared_policy, (endpoint, protocol)) = (declared_policy?, target?);
    let hook = Hook {
        name: name?.into(),
        hook_type: hook_type?,
        id: "".into(),
        rules,
        match_policy: match_policy?,
        sees_admission_config: false,
        endpoint,
        protocol,
        takes_protobuf: takes_protobuf?,
        failure_policy: create_as.unwrap_or(declared_policy),
        enforcement: enforcement?,
        canary,
        timeout: timeout?,
        side_effects: side_effects?,
        reinvocation: reinvocation?,
        dispatch,
        after: after.into(),
        is_transactional: is_transactional?,
        isolated,
        namespace_selector,
        object_selector,
    };
    let (rolling_out, place) = (create_as.is_some(), at.place());
    Some(CheckedHook { hook, declared_policy, rolling_out, rollout, conditions, state: None, place })
}

/// Reads the annotation [`Enforcement::ANNOTATION`] of an object with this metadata.
pub(crate) fn annotated_enforcement(metadata: &Node<'_>) -> Option<Enforcement> {
    given(metadata.key("annotations").key(Enforcement::ANNOTATION)).and_then(|at| at.choice(&ENFORCEMENTS))
}

/// Reads the annotation [`Canary::ANNOTATION`] of an object with this metadata, whose enforcement this is.
pub(crate) fn annotated_canary(metadata: &Node<'_>, enforcement: Option<Enforcement>) -> Option<Canary> {
    given(metadata.key("annotations").key(Canary::ANNOTATION)).and_then(|at| canary(&at, enforcement))
}

/// Reads the text of a canary with this enforcement.
fn canary(at: &Node<'_>, enforcement: Option<Enforcement>) -> Option<Canary> {
    if enforcement.is_some_and(|enforcement| !enforcement.denies()) {
        at.problem(
            "only what has the enforcement Deny takes a share of the requests",
            "since nothing else would reject these",
            "remove it, or the enforcement",
        );
    }
    let text = at.text()?;
    let canary = Canary::parse(text).filter(|canary| names::is_dns_subdomain(&canary.replaces));
    if canary.is_none() {
        at.problem(
            format!("{} is no share of the requests", quoted(text)),
            "so how many it decides would be a guess",
            "write a percentage between 0 and 100 and the name that it is to replace, such as 5% of NAME",
        );
    }
    canary
}

/// Moves each hook behind those that its `after` names, and leaves the order as it is otherwise. Adds notes on names that
/// no hook has, and on hooks that wait for each other: their `after` has no effect.
pub(crate) fn sort(hooks: &mut Vec<Arc<Hook>>, origins: &mut Vec<Arc<Origin>>, notes: &mut Vec<Note>) {
    if hooks.iter().all(|hook| hook.after.is_empty()) {
        return;
    }
    let note = |at: usize, what: String, why: &str, fix: &str| Note {
        file: origins[at].file.clone(),
        path: format!("{}.after", origins[at].path),
        what,
        why: why.to_owned(),
        fix: fix.to_owned(),
    };
    let known: HashSet<&str> = hooks.iter().map(|hook| &*hook.name).collect();
    for (at, hook) in hooks.iter().enumerate() {
        for unknown in hook.after.iter().filter(|name| !known.contains(&***name)) {
            let what = format!("no hook is called {}", quoted(unknown));
            notes.push(note(
                at,
                what,
                "so it has no effect on the order",
                "correct the name, or remove it where the hook is not to come",
            ));
        }
    }
    let mut ignored = HashSet::<Box<str>>::new();
    let order = loop {
        let cycle = match order(
            hooks,
            |hook| &*hook.name,
            |hook| match ignored.contains(&*hook.name) {
                true => &[],
                false => &*hook.after,
            },
        ) {
            Ok(order) => break order,
            Err(cycle) => cycle,
        };
        if let Some(at) = hooks.iter().position(|hook| cycle.0.iter().any(|name| **name == *hook.name)) {
            let what = format!("hooks wait for each other: {cycle}");
            notes.push(note(at, what, "so the `after` of these hooks has no effect", "remove one of them"));
        }
        match ignored.len() < MAX_WAITING_HOOKS {
            true => ignored.extend(cycle.0),
            false => ignored.extend(hooks.iter().map(|hook| Box::from(&*hook.name))),
        }
    };
    *hooks = order.iter().map(|at| Arc::clone(&hooks[*at])).collect();
    *origins = order.iter().map(|at| Arc::clone(&origins[*at])).collect();
}

/// Returns a note for each hook that does not enforce, in order.
pub(crate) fn unenforced_notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>]) -> Vec<Note> {
    let note = |(hook, origin): (&Arc<Hook>, &Arc<Origin>)| {
        unenforced(&format!("hook {:?}", hook.name), hook.enforcement, (&origin.file, &origin.path))
    };
    hooks.iter().zip(origins).filter_map(note).collect()
}

/// Returns the note that a hook or policy, which `what` names, does not enforce; `None` if it does.
pub(super) fn unenforced(what: &str, enforcement: Enforcement, (file, path): (&str, &str)) -> Option<Note> {
    (!enforcement.denies()).then(|| Note {
        file: file.to_owned(),
        path: path.to_owned(),
        what: format!("{what} has the enforcement {}", enforcement.as_str()),
        why: "so what it rejects passes".to_owned(),
        fix: "write Deny, or remove the enforcement, once it rejects only what it should".to_owned(),
    })
}

/// Reads `matchPolicy`. The default is `Equivalent`, as in upstream's API: `Exact` could skip the hook silently.
pub(crate) fn match_policy(at: &Node<'_>) -> Option<MatchPolicy> {
    if at.present() { at.choice(&MATCH_POLICIES) } else { Some(MatchPolicy::Equivalent) }
}

fn name<'a>(at: &Node<'a>) -> Option<&'a str> {
    let text = if at.required(
        "and logs, metrics and denials speak of a hook by its name",
        "every hook has a name, unique in the whole configuration",
    ) {
        at.text()?
    } else {
        return None;
    };
    if !names::is_dns_subdomain(text) {
        at.problem(format!("{} is not a name", quoted(text)), "which no apiserver accepts", names::SUBDOMAIN);
    }
    Some(text)
}

fn rule_list(at: &Node<'_>) -> Vec<gatepost_api::Rule> {
    if !at.required(
        "which is not taken for none, as nothing would be asked",
        "list the rules; an empty list, [], is a hook that is never called",
    ) {
        return Vec::new();
    }
    rules::list(at, Dialect::Gatepost)
}

/// Reads `timeout` in any unit, or `timeoutSeconds`.
fn timeout(at: &Node<'_>) -> Option<Duration> {
    let (timeout, seconds) = (at.key("timeout"), at.key("timeoutSeconds"));
    if timeout.present() && seconds.present() {
        seconds.problem("timeout and timeoutSeconds are both set", "and they mean the same", "keep one of the two");
    }
    if !timeout.present() {
        return match given(seconds) {
            None => Some(DEFAULT_TIMEOUT),
            Some(seconds) => whole_seconds(&seconds),
        };
    }
    time(&timeout)
}

/// Reads the timeout of one call, in any unit.
fn time(at: &Node<'_>) -> Option<Duration> {
    time_of(at, TIMEOUT_RANGE, (WAITS, "write a time from 1ms to 30s, such as 250ms"))
}

/// Reads a time in any unit. Reports a time outside of `limits` with the reason `why` and the advice `fix`.
pub(super) fn time_of(at: &Node<'_>, limits: RangeInclusive<Duration>, (why, fix): (&str, &str)) -> Option<Duration> {
    let Some(text) = Some(at.value).and_then(|value| match value {
        Value::Text(text) => Some(text),
        _ => None,
    }) else {
        at.problem(format!("is {}, not a time with its unit", at.value.kind()), UNCLEAR, fix);
        return None;
    };
    match humantime::parse_duration(text) {
        Ok(time) if limits.contains(&time) => Some(time),
        Ok(_) => {
            at.problem(format!("{} is out of range", quoted(text)), why, fix);
            None
        }
        Err(_) => {
            at.problem(format!("{} is not a time with its unit", quoted(text)), UNCLEAR, fix);
            None
        }
    }
}

/// Reason for the limits of a hook's timeout.
const WAITS: &str = "and no apiserver waits longer than 30 s for a webhook";

/// Reads `timeoutSeconds`, with upstream's range.
pub(crate) fn whole_seconds(at: &Node<'_>) -> Option<Duration> {
    Some(Duration::from_secs(at.integer(1..=30, WAITS)?.try_into().ok()?))
}

/// Values of `protocol`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolName {
    Grpc,
    Json,
    Protobuf,
    Legacy,
}

pub(crate) const PROTOCOL_NAMES: [(&str, ProtocolName); 4] = [
    ("grpc", ProtocolName::Grpc),
    ("json", ProtocolName::Json),
    ("protobuf", ProtocolName::Protobuf),
    ("legacy", ProtocolName::Legacy),
];

/// Checks `protocol` of an `externalAdmissionHooks` entry. It must match the URL's scheme; for a service, it sets the
/// transport.
pub(crate) fn check_protocol(at: &Node<'_>, client: HookLocation) -> Option<(Endpoint, Protocol)> {
    let HookLocation { mut endpoint, path } = client;
    let (word, versions, config) = (at.key("protocol"), at.key("admissionReviewVersions"), at.key("clientConfig"));
    let by_service = config.key("service").present();
    let chosen = match (word.present(), endpoint.transport) {
        (true, _) => word.choice(&PROTOCOL_NAMES)?,
        (false, Transport::Grpc) => ProtocolName::Grpc,
        (false, Transport::Http) => ProtocolName::Json,
    };
    let wanted = if chosen == ProtocolName::Grpc { Transport::Grpc } else { Transport::Http };
    if by_service {
        endpoint.transport = wanted;
    } else if endpoint.transport != wanted {
        let fitting = match endpoint.transport {
            Transport::Grpc => one_of(&["grpc"]),
            Transport::Http => one_of(&["json", "protobuf", "legacy"]),
        };
        word.problem(
            "does not match the scheme of clientConfig.url",
            "and either could be the one that is meant",
            format!("write {fitting}, or change the URL"),
        );
        return None;
    }
    let service = config.key("service");
    let unused = match chosen {
        ProtocolName::Grpc => [Some(service.key("path")), Some(versions)],
        ProtocolName::Legacy => [None, Some(versions)],
        ProtocolName::Json | ProtocolName::Protobuf => [None, None],
    };
    for key in unused.iter().flatten().filter(|key| key.present()) {
        key.problem(
            "has no meaning in this hook's protocol",
            "so it would have no effect",
            "remove it, or write protocol: json or protobuf",
        );
    }
    let version = match unused[1] {
        None if versions.present() => review_versions(&versions)?,
        _ => ReviewVersion::V1,
    };
    let form = match chosen {
        ProtocolName::Grpc => return Some((endpoint, Protocol::Grpc)),
        ProtocolName::Json => HttpForm::Json(version),
        ProtocolName::Protobuf => HttpForm::Protobuf(version),
        ProtocolName::Legacy => HttpForm::Legacy,
    };
    Some((endpoint, Protocol::Http { path: path.into(), form }))
}

/// Reads `objectEncoding`. Only a validating hook over gRPC gets a review as it arrives.
fn takes_protobuf(at: &Node<'_>, hook_type: Option<HookType>, protocol: Option<&Protocol>) -> Option<bool> {
    let Some(at) = given(*at) else { return Some(false) };
    let takes_protobuf = at.choice(&OBJECT_ENCODINGS)?;
    if takes_protobuf && hook_type == Some(HookType::Mutating) {
        at.problem(
            "a mutating hook gets its objects in JSON",
            "since it answers with a patch of the JSON",
            "remove it, or make the hook Validating",
        );
    } else if takes_protobuf && protocol.is_some_and(|protocol| *protocol != Protocol::Grpc) {
        at.problem(
            "only a hook over gRPC can take objects in protobuf",
            "and this one gets them in its protocol's own encoding",
            "remove it, or give the hook a grpc, grpcs or unix URL",
        );
    }
    Some(takes_protobuf)
}

/// Returns the version to send: the first known one in the list. Checks the list as upstream does,
/// `docs/reference/webhook-semantics.md` §14: unknown versions are allowed beside a known one.
pub(crate) fn review_versions(at: &Node<'_>) -> Option<ReviewVersion> {
    const FIX: &str = "list the versions of AdmissionReview that the hook reads: [v1]";
    if !at.required("so no review could be sent", FIX) {
        return None;
    }
    let texts = at.texts()?;
    if texts.is_empty() {
        at.problem("is empty", "so no review could be sent", FIX);
        return None;
    }
    let mut seen = HashSet::new();
    for (item, text) in at.items().zip(&texts) {
        if !seen.insert(*text) {
            item.problem(format!("{} is listed twice", quoted(text)), "which no apiserver accepts", "keep one of them");
        } else if !is_dns_1035_label(text) {
            item.problem(
                format!("{} is not a version", quoted(text)),
                "which no apiserver accepts",
                "write v1 or v1beta1",
            );
        }
    }
    let version = ReviewVersion::choose(&texts);
    if version.is_none() {
        at.problem("contains no supported version", "so no review could be sent", "list v1 or v1beta1");
    }
    version
}

/// Keys of `rollout`.
pub(crate) const ROLLOUT_KEYS: [&str; 3] = ["createAs", "probeWithin", "onProbeFailure"];

pub(crate) const ON_PROBE_FAILURE: [(&str, OnProbeFailure); 2] =
    [("Wait", OnProbeFailure::Wait), ("Enforce", OnProbeFailure::Enforce)];

/// Range of `probeWithin`.
const PROBE_WITHIN_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Reads `rollout`: the failure policy during the rollout, if any, and the bound on probing.
pub(crate) fn check_rollout(at: &Node<'_>) -> (Option<FailurePolicy>, Rollout) {
    let mut rollout = Rollout::default();
    if !at.present() || !at.is_map_of(&ROLLOUT_KEYS) {
        return (None, rollout);
    }
    if !ROLLOUT_KEYS.iter().any(|key| at.key(key).present()) {
        at.problem(
            "is empty",
            "so it would have no effect",
            "write createAs: Ignore, probeWithin or onProbeFailure, or remove rollout",
        );
    }
    if let Some(within) = given(at.key("probeWithin")).and_then(|at| probe_within(&at)) {
        rollout.probe_within = within;
    }
    if let Some(choice) = given(at.key("onProbeFailure")).and_then(|at| at.choice(&ON_PROBE_FAILURE)) {
        rollout.on_probe_failure = choice;
    }
    let create_as = given(at.key("createAs")).and_then(|at| at.choice(&[("Ignore", FailurePolicy::Ignore)]));
    (create_as, rollout)
}

fn probe_within(at: &Node<'_>) -> Option<Duration> {
    const FIX: &str = "write a time from 1s to 24h, such as 5m";
    let Value::Text(text) = at.value else {
        at.problem(format!("is {}, not a time with its unit", at.value.kind()), UNCLEAR, FIX);
        return None;
    };
    match humantime::parse_duration(text) {
        Ok(time) if PROBE_WITHIN_RANGE.contains(&time) => Some(time),
        Ok(_) => {
            at.problem(format!("{} is out of range", quoted(text)), "and a rollout waits no longer than a day", FIX);
            None
        }
        Err(_) => {
            at.problem(format!("{} is not a time with its unit", quoted(text)), UNCLEAR, FIX);
            None
        }
    }
}
