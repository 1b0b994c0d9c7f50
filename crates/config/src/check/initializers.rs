//! Checks and compiles `resourceInitializers`.

mod built_in;

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use super::{
    bypass::{self, listed},
    hook, names,
    never_matches::dead,
    selector,
};
use crate::document::{
    Dialect,
    node::{Node, Value, given},
    problem::quoted,
};
use gatepost_api::{
    Claimants, FailurePolicy, Initializer, Operation, ResourceInitializers, Rule, Scope, Selector, SideEffects,
    bypass::UserFilter,
    initialization::{MAX_PENDING, Unfit, order, unfit},
};

#[cfg(test)]
pub(crate) use built_in::{KEYS as BUILT_IN_KEYS, PULL_POLICIES, RESOURCE_KEYS};

pub(crate) const KEYS: [&str; 5] = ["apiGroup", "resource", "initializers", "mayInitialize", "stored"];

/// Keys of one initializer.
pub(crate) const ONE_KEYS: [&str; 12] = [
    "name",
    "failurePolicy",
    "timeout",
    "after",
    "namespaceSelector",
    "objectSelector",
    "builtIn",
    "attach",
    "sideEffects",
    "owners",
    "parallel",
    "changes",
];

/// Keys of `attach`.
pub(crate) const ATTACH_KEYS: [&str; 2] = ["commonNames", "tokenSha256"];

/// Keys of `mayInitialize` and `owners`.
pub(crate) const WHO_KEYS: [&str; 3] = ["users", "groups", "serviceAccounts"];

pub(crate) const POLICIES: [(&str, FailurePolicy); 2] =
    [("Ignore", FailurePolicy::Ignore), ("Fail", FailurePolicy::Fail)];

/// Values of `stored`, and whether a label marks the uninitialized objects.
pub(crate) const STORED: [(&str, bool); 1] = [("Label", true)];

/// Values of `changes`, and whether the initializer changes only metadata.
pub(crate) const CHANGES: [(&str, bool); 1] = [("Metadata", true)];

/// Default timeout of one initializer.
// source: dynamic-admission-control-configuration.md, "If it's Ignore, the initializer is removed ... after a timeout".
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Range of an initializer's timeout.
const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);

/// Maximum timeout of an initializer that acts while the request waits.
const MAX_IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason for the range [`TIMEOUT_RANGE`], and advice.
const WAITS: (&str, &str) = ("and no object waits longer than a day", "write a time from 1ms to 24h, such as 250ms");

/// Checks one resource's initializers and reports their problems.
pub(crate) fn check(at: &Node<'_>) -> Option<ResourceInitializers> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let (group, resource, list) = (at.key("apiGroup"), at.key("resource"), at.key("initializers"));
    let group_name = if group.present() { group.text() } else { Some("") };
    if let Some(name) = group_name.filter(|name| !name.is_empty() && !names::is_dns_subdomain(name)) {
        group.problem(
            format!("{} is not an API group", quoted(name)),
            "so no object would match",
            "write one group, such as apps; \"\" is the core",
        );
    }
    let resource_name = if resource.required("so it is not known which objects wait", "name one resource, such as pods")
    {
        resource.text()
    } else {
        None
    };
    if let Some(name) = resource_name.filter(|name| !names::is_dns_label(name)) {
        resource.problem(
            format!("{} is not the name of one resource", quoted(name)),
            "so no object would match",
            "write the plural in lower case, without a subresource or wildcard: pods",
        );
    }
    if at.problems() == before
        && let (Some(group_name), Some(resource_name)) = (group_name, resource_name)
    {
        report_unserved((&group, group_name), (&resource, resource_name));
    }
    let mut initializers = Vec::new();
    if list.required("which is not taken for none", "list the initializers, in the order in which they act")
        && list.is_list()
    {
        let mut seen = HashSet::new();
        for item in list.items() {
            let names = (group_name.unwrap_or_default(), resource_name.unwrap_or_default());
            let Some(initializer) = check_initializer(&item, names) else { continue };
            if !seen.insert(initializer.name.clone()) {
                item.problem(
                    format!("{} is listed twice", quoted(&initializer.name)),
                    "and each acts once on an object",
                    "keep one of them",
                );
            }
            initializers.push(initializer);
        }
    }
    if list.items().count() > MAX_PENDING {
        list.problem(
            format!("has more than {MAX_PENDING} initializers"),
            "which no object can wait for",
            "merge some of them, or remove those that are not needed",
        );
    }
    let may_initialize = given(at.key("mayInitialize")).and_then(|at| named_users(&at));
    let by_label = given(at.key("stored")).is_some_and(|at| at.choice(&STORED) == Some(true));
    if !at.key("stored").present() {
        list.items().for_each(|item| check_in_flight_timeout(&item));
    }
    (at.problems() == before).then_some(())?;
    let initializers = sorted(&list, initializers)?;
    let (group, resource) = (group_name?, resource_name?);
    if by_label {
        check_stored(at, (group, resource), &initializers);
    }
    (at.problems() == before).then_some(())?;
    let (api_group, resource) = (group.into(), resource.into());
    Some(ResourceInitializers { api_group, resource, initializers, may_initialize, by_label })
}

/// Reports a resource that no apiserver has ever served. If the resource may be new, it is only a finding
/// ([`hazards`](crate::hazards)).
fn report_unserved((group, group_name): (&Node<'_>, &str), (resource, resource_name): (&Node<'_>, &str)) {
    let rule = Rule {
        operations: vec![Operation::Create],
        api_groups: vec![group_name.into()],
        api_versions: vec!["*".into()],
        resources: vec![resource_name.into()],
        scope: Scope::Any,
    };
    for dead in dead(&rule).into_iter().filter(|dead| dead.certain) {
        let place = if dead.key == "resources" { resource } else { group };
        // An entry of `resourceInitializers` has no `apiVersions`, and one `apiGroup`.
        let fix = dead.fix.split(", and v1 in apiVersions").next().unwrap_or_default().replace("apiGroups", "apiGroup");
        place.problem(dead.what, "so no object would match", fix);
    }
}

/// Reports a timeout above [`MAX_IN_FLIGHT_TIMEOUT`] of an initializer that acts while the request waits.
fn check_in_flight_timeout(item: &Node<'_>) {
    let (timeout, acts) = (item.key("timeout"), item.key("builtIn").present() || item.key("attach").present());
    if let Value::Text(text) = timeout.value
        && acts
        && humantime::parse_duration(text)
            .is_ok_and(|time| TIMEOUT_RANGE.contains(&time) && time > MAX_IN_FLIGHT_TIMEOUT)
    {
        timeout.problem(
            format!("{} is longer than 30s", quoted(text)),
            "and no request is held for so long while it acts",
            "write at most 30s; or say `stored: Label` of the resource, so that objects wait and not requests",
        );
    }
}

/// Sorts the initializers: each follows those in its `after`. Reports unknown names and cycles.
fn sorted(at: &Node<'_>, initializers: Vec<Initializer>) -> Option<Vec<Initializer>> {
    let known: HashSet<&str> = initializers.iter().map(|one| &*one.name).collect();
    let before = at.problems();
    for (item, one) in at.items().zip(&initializers) {
        let after = item.key("after");
        for (place, name) in after.items().zip(&one.after) {
            if !known.contains(&**name) {
                place.problem(
                    format!("{} is no initializer of this resource", quoted(name)),
                    "so this one would wait for ever",
                    "name one of the same list, or remove it",
                );
            }
        }
    }
    let order = match order(&initializers, |one| &*one.name, |one| &one.after) {
        Ok(order) => order,
        Err(cycle) => {
            at.problem(
                format!("has initializers that wait for each other: {cycle}"),
                "so none of them could begin",
                "remove one of these `after`",
            );
            return None;
        }
    };
    (at.problems() == before).then_some(())?;
    let mut initializers: Vec<_> = initializers.into_iter().map(Some).collect();
    Some(order.into_iter().filter_map(|at| initializers.get_mut(at)?.take()).collect())
}

/// Checks one entry: a map or, in the earliest form, the name alone.
fn check_initializer(at: &Node<'_>, (group, resource): (&str, &str)) -> Option<Initializer> {
    if matches!(at.value, Value::Text(_)) {
        return Some(Initializer {
            name: name(at)?.into(),
            failure_policy: FailurePolicy::Ignore,
            timeout: DEFAULT_TIMEOUT,
            after: Vec::new(),
            namespace_selector: Selector::default(),
            object_selector: Selector::default(),
            built_in: None,
            attach: None,
            owners: None,
            parallel: false,
            side_effects: SideEffects::Undeclared,
            metadata_only: false,
        });
    }
    if !at.is_map_of(&ONE_KEYS) {
        return None;
    }
    let before = at.problems();
    let (place, policy) = (at.key("name"), at.key("failurePolicy"));
    let name = if place.required("and objects list those that they wait for by name", "every initializer has a name") {
        name(&place)
    } else {
        None
    };
    let failure_policy = if policy.present() { policy.choice(&POLICIES) } else { Some(FailurePolicy::Ignore) };
    let timeout = given(at.key("timeout")).map_or(Some(DEFAULT_TIMEOUT), |at| hook::time_of(&at, TIMEOUT_RANGE, WAITS));
    let after = listed(&at.key("after"), "the name of an initializer", names::is_dns_subdomain, names::SUBDOMAIN);
    let namespace_selector = selector::check(&at.key("namespaceSelector"), Dialect::Gatepost);
    let object_selector = selector::check(&at.key("objectSelector"), Dialect::Gatepost);
    let built_in = given(at.key("builtIn")).map(|at| built_in::check(&at, group, resource));
    let attach = given(at.key("attach")).map(|at| claimants(&at));
    let effects = given(at.key("sideEffects"));
    let parallel = given(at.key("parallel"));
    let owners = given(at.key("owners")).map(|at| named_users(&at));
    if owners.is_some() && (built_in.is_some() || attach.is_some()) {
        at.key("owners").problem(
            "is for who updates stored objects",
            "and builtIn and attach act before they are stored",
            "remove it, or the other",
        );
    }
    let written = [("attach", attach.is_some()), ("sideEffects", effects.is_some()), ("parallel", parallel.is_some())];
    for (place, written) in written {
        if written && built_in.is_some() {
            at.key(place).problem("is for a process", "and builtIn needs none", "keep one of the two");
        }
    }
    let side_effects = effects.map_or(Some(SideEffects::Undeclared), |at| at.choice(&hook::SIDE_EFFECTS));
    let parallel = parallel.is_some_and(|at| at.boolean() == Some(true));
    let metadata_only = given(at.key("changes")).is_some_and(|at| at.choice(&CHANGES) == Some(true));
    (at.problems() == before).then_some(())?;
    Some(Initializer {
        name: name?.into(),
        failure_policy: failure_policy?,
        timeout: timeout?,
        after,
        namespace_selector,
        object_selector,
        built_in: built_in.flatten().map(Box::new),
        attach,
        owners: owners.flatten(),
        parallel,
        side_effects: side_effects?,
        metadata_only,
    })
}

/// Reads the clients that may claim the name. At least one list must not be empty.
fn claimants(at: &Node<'_>) -> Claimants {
    if !at.is_map_of(&ATTACH_KEYS) {
        return Claimants::default();
    }
    if !ATTACH_KEYS.iter().any(|key| at.key(key).present()) {
        at.problem(
            "admits nobody",
            "so every object would wait until its time is over",
            "list commonNames of client certificates, or the SHA-256 digests of tokens",
        );
    }
    let common_names = listed(&at.key("commonNames"), "the common name of a certificate", |_| true, "");
    let tokens = at.key("tokenSha256");
    let written = listed(&tokens, "the SHA-256 digest of a token", |_| true, "");
    for (item, text) in tokens.items().zip(&written) {
        if !text.is_empty() && bytes_of(text).is_none() {
            // The message omits the text, which may be the token itself.
            item.problem(
                "is not the SHA-256 digest of a token",
                "so no token would be admitted by it",
                "write 64 hexadecimal digits in lower case: printf %s TOKEN | sha256sum",
            );
        }
    }
    Claimants { common_names, token_digests: written.iter().filter_map(|text| bytes_of(text)).collect() }
}

/// Parses 64 lower-case hexadecimal digits.
fn bytes_of(digest: &str) -> Option<[u8; 32]> {
    let digits = digest.as_bytes().as_chunks::<2>();
    let (pairs, []) = digits else { return None };
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect();
    bytes?.try_into().ok()
}

/// Reads `mayInitialize` or `owners`: exact names, at least one.
fn named_users(at: &Node<'_>) -> Option<UserFilter> {
    if !at.is_map_of(&WHO_KEYS) {
        return None;
    }
    if !WHO_KEYS.iter().any(|key| at.key(key).present()) {
        at.problem(
            "names nobody",
            "so no user could finish an object",
            "name users, groups or serviceAccounts, or remove the key",
        );
    }
    Some(bypass::user_filter(at))
}

fn name<'a>(at: &Node<'a>) -> Option<&'a str> {
    let text = at.text()?;
    if !names::is_dns_subdomain(text) {
        at.problem(format!("{} is not a name", quoted(text)), "and objects list it by its name", names::SUBDOMAIN);
        return None;
    }
    Some(text)
}

/// Reports the reason why objects of that resource cannot be stored uninitialized, if any.
pub(super) fn check_stored(at: &Node<'_>, (group, resource): (&str, &str), initializers: &[Initializer]) {
    let place = at.key("stored");
    let these = quoted(resource);
    let unfit = unfit(group, resource).map(|unfit| match unfit {
        Unfit::NotStored => ("marks objects that are stored", format!("and those of {these} are not")),
        Unfit::Needed(why) => {
            ("hides objects until they are initialized", format!("and those of {these} must be seen: {why}"))
        }
    });
    if let Some((what, why)) = unfit {
        return place.problem(what, why, "remove it: they are initialized in flight");
    }
    if (group, resource) != ("", "pods") {
        return;
    }
    for one in initializers.iter().filter(|one| !one.changes_only_metadata()) {
        place.problem(
            format!("stores Pods before {} acts", quoted(&one.name)),
            "and the spec of a stored Pod cannot be changed",
            "remove it, so that Pods are initialized in flight; or, where it changes labels and annotations alone, say \
             `changes: Metadata` of that initializer",
        );
    }
}
