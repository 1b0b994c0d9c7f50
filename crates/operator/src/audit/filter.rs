//! Filter of the reviews that `audit` shows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gatepost_api::builtin;

use super::record::{HookCall, Record};

/// Filter of reviews. An absent part matches all reviews.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Reviews that were rejected, for whatever reason
    #[arg(long)]
    pub(super) denied: bool,

    /// Reviews in which a call failed, open or closed, and reviews that Gatepost itself rejected
    #[arg(long)]
    pub(super) failed: bool,

    /// Reviews that a hook or policy would have rejected, had it enforced (enforcement Warn or Audit)
    #[arg(long)]
    pub(super) would_deny: bool,

    /// Reviews that were allowed; given together, --denied, --failed, --would-deny and --allowed add up
    #[arg(long)]
    pub(super) allowed: bool,

    /// Start of the time range: how long ago (1h), or a time in UTC (2026-01-01T00:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since: Option<u64>,

    /// End of the time range, as for --since
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) until: Option<u64>,

    /// Reviews of this object: NAMESPACE/NAME, or NAME without a namespace; a * at the end matches any rest
    ///
    /// An object whose name the apiserver generates (generateName) has no name at its creation: use NAMESPACE/*.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = ObjectName::parse)]
    pub(super) name: Option<ObjectName>,

    /// Reviews for which this hook was selected, or on which the initializer of this name acted
    #[arg(long, value_name = "NAME")]
    pub(super) hook: Option<String>,

    /// User who made the request
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,

    /// Reviews of this resource: pods, pods/exec, deployments.apps
    #[arg(long, value_name = "RESOURCE", value_parser = ResourceName::parse)]
    pub(super) resource: Option<ResourceName>,

    /// Reviews with this uid, which hooks get as well, or with this audit id
    #[arg(long, value_name = "UID")]
    pub(super) uid: Option<String>,
}

impl Filter {
    /// Returns true if the filter matches the record.
    pub(super) fn matches(&self, record: &Record<'_>) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        self.in_time(record.time_us)
            && (is(&self.uid, &record.uid) || is(&self.uid, &record.audit_id))
            && is(&self.user, &record.user)
            && self.name.as_ref().is_none_or(|name| name.is_of(record))
            && self.resource.as_ref().is_none_or(|resource| resource.is_of(record))
            && self.has_requested_outcome(record)
    }

    fn in_time(&self, time: u64) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time <= until)
    }

    /// Returns true if the review, or the call of the given hook, ended in one of the requested ways.
    fn has_requested_outcome(&self, record: &Record<'_>) -> bool {
        let any = !(self.denied || self.failed || self.would_deny || self.allowed);
        match &self.hook {
            None => {
                let is_decided = !record.is_sent_again();
                let failed = || record.is_failed() && is_decided || record.calls().any(HookCall::is_failed);
                any || self.denied && !record.allowed && is_decided
                    || self.allowed && record.allowed
                    || self.failed && failed()
                    || self.would_deny && record.calls().any(HookCall::would_reject)
            }
            Some(name) => record.calls().filter(|call| call.hook == **name).any(|call| {
                any || self.denied && call.is_denied()
                    || self.allowed && call.is_allowed()
                    || self.failed && call.is_failed()
                    || self.would_deny && call.would_reject()
            }),
        }
    }
}

/// Name of an object: `NAMESPACE/NAME`, or `NAME` without a namespace. A `*` at the end matches any rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName {
    namespace: Option<String>,
    name: String,
}

impl ObjectName {
    /// Parses a name.
    ///
    /// # Errors
    /// A message with the expected form.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let split = text.split_once('/').map(|(namespace, name)| (Some(namespace.to_owned()), name));
        let (namespace, name) = split.unwrap_or((None, text));
        if name.is_empty() || name.contains('/') || namespace.as_deref() == Some("") {
            return Err("write NAMESPACE/NAME, NAMESPACE/* for all of a namespace, or the NAME of an object in no \
                        namespace");
        }
        Ok(Self { namespace, name: name.to_owned() })
    }

    fn is_of(&self, record: &Record<'_>) -> bool {
        let name = match self.name.strip_suffix('*') {
            Some(beginning) => record.name.starts_with(beginning),
            None => record.name == self.name,
        };
        name && match &self.namespace {
            Some(namespace) => record.namespace == **namespace,
            // A review of a Namespace has that Namespace as its own namespace.
            None => record.namespace.is_empty() || record.resource == "namespaces" && record.group.is_empty(),
        }
    }
}

/// Name of a resource: `pods`, `pods/exec`, `deployments.apps`. Without a subresource, it matches all subresources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceName {
    resource: String,
    group: Option<String>,
    subresource: Option<String>,
}

impl ResourceName {
    /// Parses a name.
    ///
    /// # Errors
    /// A message with the expected form.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let split = |text, at| match str::split_once(text, at) {
            Some((before, after)) => (before, Some(after.to_owned())),
            None => (text, None),
        };
        let (full, subresource) = split(text, '/');
        let (resource, group) = split(full, '.');
        let is_plain = |word: &str| !word.is_empty() && !word.bytes().any(|byte| byte.is_ascii_uppercase());
        if !is_plain(resource) || !group.as_deref().is_none_or(is_plain) || !subresource.as_deref().is_none_or(is_plain)
        {
            let hint = plural(&resource.to_ascii_lowercase()).map(|hint| format!("; did you mean {hint}?"));
            let hint = hint.unwrap_or_default();
            return Err(format!("write a resource as in a rule: pods, pods/exec, deployments.apps{hint}"));
        }
        Ok(Self { resource: resource.to_owned(), group, subresource })
    }

    /// Returns the likely name of the resource, if this one looks like a kind or a short name.
    pub(super) fn hint(&self) -> Option<String> {
        plural(&self.resource)
    }

    fn is_of(&self, record: &Record<'_>) -> bool {
        record.resource == self.resource
            && self.group.as_ref().is_none_or(|group| record.group == **group)
            && self.subresource.as_ref().is_none_or(|subresource| record.subresource == **subresource)
    }
}

/// Returns the resource of a kind in lower case, or of a short name of kubectl; `None` if the word may be a resource.
fn plural(word: &str) -> Option<String> {
    if let Some(resource) = builtin::of_short_name(word) {
        return Some(resource.to_owned());
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    match word.strip_suffix('y') {
        Some(stem) if !ends(&["ay", "ey", "oy", "uy"]) => Some(format!("{stem}ies")),
        _ if ends(&["ss", "x", "ch", "sh"]) => Some(format!("{word}es")),
        _ if ends(&["s"]) => None,
        _ => Some(format!("{word}s")),
    }
}

/// Parses a moment into microseconds since 1970: how long ago, or RFC 3339 in UTC.
///
/// # Errors
/// A message with the expected form.
pub(super) fn moment(text: &str) -> Result<u64, String> {
    let at = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago).unwrap_or(UNIX_EPOCH),
        Err(_) => humantime::parse_rfc3339_weak(text)
            .map_err(|_| "write how long ago, as 1h or 30m, or a time in UTC, as 2026-01-01T00:00:00Z".to_owned())?,
    };
    Ok(at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_filter_suggests_the_resource_of_a_kind() {
        let hint = |text: &str| ResourceName::parse(text).unwrap().hint();
        for (typed, meant) in [
            ("pod", "pods"),
            ("po", "pods"),
            ("svc", "services"),
            ("ingress", "ingresses"),
            ("networkpolicy", "networkpolicies"),
            ("deployment.apps", "deployments"),
        ] {
            assert_eq!(hint(typed).as_deref(), Some(meant), "{typed}");
        }
        assert_eq!([hint("pods"), hint("endpoints"), hint("deployments.apps")], [None, None, None]);
        assert!(ResourceName::parse("Pod").unwrap_err().ends_with("did you mean pods?"));
    }

    const LINES: [&str; 6] = [
        r#"{"time_us":10,"uid":"0","resource":"pods","namespace":"shop","name":"web-0","user":"ann","allowed":true,
            "hooks":[{"hook":"a","outcome":"allowed"},{"hook":"b","outcome":"failed_open","enforcement":"Warn",
            "would_be":{"code":500}}]}"#,
        r#"{"time_us":20,"uid":"1","resource":"pods","namespace":"shop","name":"web-1","user":"bob","allowed":false,
            "hooks":[{"hook":"a","outcome":"denied"},{"hook":"b","outcome":"cancelled"}]}"#,
        r#"{"time_us":30,"uid":"2","group":"apps","resource":"deployments","subresource":"scale","namespace":"shop",
            "name":"web","allowed":false,"hooks":[{"hook":"a","outcome":"failed_closed"}]}"#,
        r#"{"time_us":40,"uid":"3","resource":"namespaces","namespace":"web","name":"web","allowed":false,"hooks":[]}"#,
        r#"{"time_us":45,"uid":"5","resource":"pods","name":"again","allowed":false,"code":415,"hooks":[]}"#,
        r#"{"time_us":50,"uid":"4","audit_id":"a-4","resource":"nodes","name":"web","allowed":true,"hooks":[]}"#,
    ];

    fn taken(filter: &Filter) -> String {
        let records = LINES.iter().map(|line| Record::parse(line.as_bytes()).expect("a record"));
        records.filter(|record| filter.matches(record)).map(|record| record.uid.into_owned()).collect()
    }

    #[test]
    fn audit_filter_matches_each_field() {
        let of_hook = |hook: &str| Filter { hook: Some(hook.to_owned()), ..Filter::default() };
        let name = |name: &str| Filter { name: Some(ObjectName::parse(name).expect("a name")), ..Filter::default() };
        let resource =
            |name: &str| Filter { resource: Some(ResourceName::parse(name).expect("a resource")), ..Filter::default() };
        for (filter, expected) in [
            (Filter::default(), "012354"),
            (Filter { denied: true, ..Filter::default() }, "123"),
            (Filter { allowed: true, ..Filter::default() }, "04"),
            (Filter { failed: true, ..Filter::default() }, "023"),
            (Filter { would_deny: true, ..Filter::default() }, "0"),
            (Filter { would_deny: true, ..of_hook("a") }, ""),
            (Filter { would_deny: true, ..of_hook("b") }, "0"),
            (Filter { failed: true, allowed: true, ..Filter::default() }, "0234"),
            (Filter { since: Some(20), until: Some(40), ..Filter::default() }, "123"),
            (of_hook("a"), "012"),
            (Filter { denied: true, ..of_hook("a") }, "1"),
            (Filter { denied: true, ..of_hook("b") }, ""),
            (Filter { failed: true, ..of_hook("b") }, "0"),
            (Filter { allowed: true, ..of_hook("a") }, "0"),
            (name("shop/web-0"), "0"),
            (name("shop/web-*"), "01"),
            (name("shop/*"), "012"),
            (name("web"), "34"),
            (resource("pods"), "015"),
            (resource("pods.apps"), ""),
            (resource("deployments"), "2"),
            (resource("deployments.apps/scale"), "2"),
            (resource("deployments/status"), ""),
            (Filter { user: Some("bob".into()), ..Filter::default() }, "1"),
            (Filter { uid: Some("4".into()), ..Filter::default() }, "4"),
            (Filter { uid: Some("a-4".into()), ..Filter::default() }, "4"),
        ] {
            assert_eq!(taken(&filter), expected, "{filter:?}");
        }
    }

    #[test]
    fn audit_filter_refuses_invalid_values() {
        for wrong in ["", "/", "shop/", "/web", "a/b/c"] {
            assert!(ObjectName::parse(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "Pods", "pods.", "pods/", "/exec"] {
            assert!(ResourceName::parse(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "yesterday", "1x", "2026-01-01T00:00:00+02:00"] {
            assert!(moment(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(moment("1970-01-01T00:00:01.5Z"), Ok(1_500_000));
        assert_eq!(moment("1970-01-01 00:00:01"), Ok(1_000_000));
        let (ago, earlier) = (moment("1h").expect("good"), moment("2h").expect("good"));
        assert!((3_599_000_000..3_601_000_000).contains(&(ago - earlier)), "{ago} {earlier}");
    }
}
