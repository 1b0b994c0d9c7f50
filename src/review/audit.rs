//! The audit record of one review: one JSON object, no object contents.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

use super::{
    bypass::Pass,
    context::ReviewContext,
    draft::Draft,
    record::{CallRecord, Ending},
    rejection,
};
use crate::telemetry::HookOutcome;
use gatepost_api::{BreakGlass, StatusInfo, Verdict};
use gatepost_wire::answer::{shortened, shortened_to};

/// The most bytes of what was said that a record holds.
const MAX_MESSAGE: usize = 1024;
/// The most bytes of why a call has failed.
const MAX_ERROR: usize = 256;
/// Stand-in for a reason that a hook made up.
const OTHER: &str = "Other";
/// The reasons that Kubernetes has, and ours.
// source: k8s.io/apimachinery/pkg/apis/meta/v1/types.go, StatusReason.
const REASONS: [&str; 20] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
    "LoadingConfiguration",
];

/// One line of the audit log; the field names are its schema (`docs/audit.md`).
#[derive(Serialize)]
struct Line<'a> {
    /// For people: RFC 3339, to the millisecond, UTC.
    time: String,
    /// For programs: microseconds since 1970.
    time_us: u64,
    uid: &'a str,
    /// Identifier of the client's request in the caller's audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_id: Option<&'a str>,
    operation: &'a str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    generation: u64,
    /// Revision that the source gives the configuration that decided.
    revision: String,
    /// Milliseconds since the start of the last good read, rounded up; nothing before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_age_ms: Option<u64>,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    /// Message of the rejection, but with `--audit-hook-messages=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    took_us: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bypass: Vec<Pass<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    break_glass: Vec<BreakGlassLine<'a>>,
    hooks: Hooks<'a>,
    /// Number of hooks that were not called in time, behind those that are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    initializers: Vec<InitializerLine<'a>>,
}

/// Break-glass that was open.
#[derive(Serialize)]
struct BreakGlassLine<'a> {
    name: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    by: &'a str,
    until: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    hooks: &'a [Box<str>],
}

/// Calls of hooks, as a list.
struct Hooks<'a>(&'a [CallRecord<'a>]);

/// One initializer's turn at the object.
#[derive(Serialize)]
struct InitializerLine<'a> {
    initializer: &'a str,
    outcome: &'static str,
    took_us: u64,
}

#[derive(Serialize)]
struct HookLine<'a> {
    hook: &'a str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    /// Failure of the call, in our words: nothing that a hook wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    took_us: u64,
}

impl Serialize for Hooks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter_map(HookLine::of))
    }
}

impl<'a> HookLine<'a> {
    /// `None` of a hook that has not passed its probe.
    fn of(call: &'a CallRecord<'a>) -> Option<Self> {
        let (outcome, failure) = match call.outcome()? {
            HookOutcome::Allowed => ("allowed", None),
            HookOutcome::Denied => ("denied", None),
            HookOutcome::FailedOpen(kind) => ("failed_open", Some(kind.as_str())),
            HookOutcome::FailedClosed(kind) => ("failed_closed", Some(kind.as_str())),
            HookOutcome::Cancelled => ("cancelled", None),
        };
        let error = match &call.ending {
            Ending::OutOfTime(_) => Some(rejection::NOT_CALLED_IN_TIME.to_owned()),
            _ => call.failure().map(|failure| shortened_to(MAX_ERROR, &failure.class().to_string())),
        };
        Some(Self { hook: call.decider.name(), outcome, failure, error, took_us: call.took.as_micros() as u64 })
    }
}

fn break_glass(glass: &BreakGlass) -> BreakGlassLine<'_> {
    BreakGlassLine {
        name: &glass.name,
        reason: &glass.reason,
        by: &glass.by,
        until: humantime::format_rfc3339_seconds(glass.until()).to_string(),
        hooks: &glass.hooks,
    }
}

/// The reason, which is a hook's text like any other unless it is one of Kubernetes' own.
fn reason(refusal: &StatusInfo, said: bool) -> Option<Cow<'_, str>> {
    match &*refusal.reason {
        "" => None,
        reason if REASONS.contains(&reason) => Some(reason.into()),
        reason if said => Some(shortened(reason).into()),
        _ => Some(OTHER.into()),
    }
}

/// The record of one review.
pub(super) fn audit_line(ctx: &ReviewContext<'_>, draft: &Draft<'_>, verdict: &Verdict, took: Duration) -> Vec<u8> {
    let ReviewContext { deps, review, caller, generation, bypass, .. } = ctx;
    let said = deps.audit.has_hook_messages();
    let now = SystemTime::now();
    let refusal = verdict.refusal.as_ref();
    let line = Line {
        time: humantime::format_rfc3339_millis(now).to_string(),
        time_us: now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
        uid: &review.uid,
        audit_id: caller.audit_id.as_deref(),
        operation: review.operation.as_str(),
        group: &review.resource.group,
        version: &review.resource.version,
        resource: &review.resource.resource,
        subresource: &review.sub_resource,
        namespace: &review.namespace,
        name: &review.name,
        user: &review.username,
        dry_run: review.dry_run,
        generation: generation.number,
        revision: generation.revision.to_string(),
        config_age_ms: ctx.age.map(|age| age.as_nanos().div_ceil(1_000_000) as u64),
        allowed: verdict.allowed(),
        code: refusal.map(|refusal| refusal.code),
        reason: refusal.and_then(|refusal| reason(refusal, said)),
        message: refusal.filter(|_| said).map(|refusal| shortened_to(MAX_MESSAGE, &refusal.message)),
        took_us: took.as_micros() as u64,
        bypass: bypass.passes().collect(),
        break_glass: bypass.open_break_glass().iter().map(|open| break_glass(&open.document)).collect(),
        hooks: Hooks(&draft.calls),
        hooks_left_out: Some(draft.left_out_calls()).filter(|more| *more > 0),
        initializers: draft
            .initializers
            .iter()
            .map(|turn| InitializerLine {
                initializer: &turn.name,
                outcome: turn.outcome.as_str(),
                took_us: turn.took.as_micros() as u64,
            })
            .collect(),
    };
    let mut out = Vec::with_capacity(320 + 64 * draft.calls.len());
    // Writing plain data to memory cannot fail; were it to, an empty line says that something was decided.
    if serde_json::to_writer(&mut out, &line).is_err() {
        out.clear();
    }
    out
}
