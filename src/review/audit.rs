//! Audit: the record of one review, a JSON object without contents of objects.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

use super::{
    bypass::AppliedBypass,
    context::ReviewContext,
    draft::Draft,
    record::{CallRecord, Ending},
    rejection,
};
use crate::telemetry::HookOutcome;
use gatepost_api::{BreakGlass, StatusInfo, Verdict};
use gatepost_wire::answer::{shortened, shortened_to};

/// Maximum size of the rejection's message in a record, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Maximum size of a call's error in a record, in bytes.
const MAX_ERROR_BYTES: usize = 256;
/// Replacement for a reason that a hook made up.
const OTHER: &str = "Other";
/// Reasons of Kubernetes, and of Gatepost.
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

/// Line of the audit log. The field names are its schema (`docs/audit.md`).
#[derive(Serialize)]
struct Line<'a> {
    /// Time in RFC 3339 with milliseconds, UTC, for people.
    time: String,
    /// Microseconds since 1970, for programs.
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
    /// Revision of the configuration that decided, from its source.
    revision: String,
    /// Milliseconds since the start of the last good read, rounded up; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_age_ms: Option<u64>,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    /// Message of the rejection; `None` with `--audit-hook-messages=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    took_us: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bypass: Vec<AppliedBypass<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    break_glass: Vec<BreakGlassLine<'a>>,
    hooks: Hooks<'a>,
    /// Number of hooks out of time that are not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    initializers: Vec<InitializerLine<'a>>,
}

/// Break-glass document that was open.
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

/// Calls of hooks, serialized as a list.
struct Hooks<'a> {
    calls: &'a [CallRecord<'a>],
    has_hook_messages: bool,
}

/// Turn of one initializer.
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
    /// Failure of the call in Gatepost's words, without text of a hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Enforcement, unless it is `Deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<&'static str>,
    /// Rejection that had no effect, because of the enforcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_be: Option<WouldBe>,
    took_us: u64,
}

/// Rejection that had no effect.
#[derive(Serialize)]
struct WouldBe {
    code: i32,
    /// Its message; `None` with `--audit-hook-messages=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Serialize for Hooks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.calls.iter().filter_map(|call| HookLine::of(call, self.has_hook_messages)))
    }
}

impl<'a> HookLine<'a> {
    /// Returns the line of a call; `None` if the hook has not passed its probe.
    fn of(call: &'a CallRecord<'a>, has_hook_messages: bool) -> Option<Self> {
        let (outcome, failure) = match call.outcome()? {
            HookOutcome::Allowed => ("allowed", None),
            HookOutcome::Denied => ("denied", None),
            HookOutcome::WouldDeny => ("would_deny", None),
            HookOutcome::FailedOpen(kind) => ("failed_open", Some(kind.as_str())),
            HookOutcome::FailedClosed(kind) => ("failed_closed", Some(kind.as_str())),
            HookOutcome::Cancelled => ("cancelled", None),
        };
        let error = match &call.ending {
            Ending::OutOfTime(_) => Some(rejection::NOT_CALLED_IN_TIME.to_owned()),
            _ => call.failure().map(|failure| shortened_to(MAX_ERROR_BYTES, &failure.class().to_string())),
        };
        let enforcement = call.enforcement;
        let would_be = call.unenforced_refusal().map(|refusal| WouldBe {
            code: refusal.code,
            message: has_hook_messages.then(|| shortened_to(MAX_MESSAGE_BYTES, &refusal.message)),
        });
        Some(Self {
            hook: call.decider.name(),
            outcome,
            failure,
            error,
            enforcement: (!enforcement.denies()).then(|| enforcement.as_str()),
            would_be,
            took_us: call.took.as_micros() as u64,
        })
    }
}

fn break_glass(break_glass: &BreakGlass) -> BreakGlassLine<'_> {
    BreakGlassLine {
        name: &break_glass.name,
        reason: &break_glass.reason,
        by: &break_glass.opened_by,
        until: humantime::format_rfc3339_seconds(break_glass.until()).to_string(),
        hooks: &break_glass.hooks,
    }
}

/// Returns the reason. One that is not a reason of Kubernetes is text of a hook, and is replaced unless
/// `has_hook_messages`.
fn reason(refusal: &StatusInfo, has_hook_messages: bool) -> Option<Cow<'_, str>> {
    match &*refusal.reason {
        "" => None,
        reason if REASONS.contains(&reason) => Some(reason.into()),
        reason if has_hook_messages => Some(shortened(reason).into()),
        _ => Some(OTHER.into()),
    }
}

/// Returns the audit line of one review.
pub(super) fn audit_line(ctx: &ReviewContext<'_>, draft: &Draft<'_>, verdict: &Verdict, took: Duration) -> Vec<u8> {
    let ReviewContext { deps, review, caller, generation, bypass, .. } = ctx;
    let has_hook_messages = deps.audit.has_hook_messages();
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
        reason: refusal.and_then(|refusal| reason(refusal, has_hook_messages)),
        message: refusal.filter(|_| has_hook_messages).map(|refusal| shortened_to(MAX_MESSAGE_BYTES, &refusal.message)),
        took_us: took.as_micros() as u64,
        bypass: bypass.applied().collect(),
        break_glass: bypass.open_break_glass().iter().map(|open| break_glass(&open.document)).collect(),
        hooks: Hooks { calls: &draft.calls, has_hook_messages },
        hooks_left_out: Some(draft.unnamed_out_of_time_calls()).filter(|more| *more > 0),
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
    // Writing plain data to memory cannot fail. If it did, an empty line would show that something was decided.
    if serde_json::to_writer(&mut out, &line).is_err() {
        out.clear();
    }
    out
}
