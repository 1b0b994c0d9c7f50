//! Draft: the verdict while the phases add their results to it.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use super::{
    comparison::Compared,
    context::ReviewContext,
    object::PatchedObject,
    policy_task::Reinvocable,
    record::{CallRecord, Ending},
    rejection::StatusError,
};
use crate::{
    live::LiveHook,
    telemetry::{InitializerOutcome, RequestOutcome},
};
use gatepost_initializers::Initializers;
use gatepost_policy::AuditedFailure;

/// Maximum number of hooks out of time that are named one by one.
const MAX_NAMED_OUT_OF_TIME: usize = 64;

/// Result of a phase. `Continue` if the next phase follows; `Break` if the review ends with the contents of the draft:
/// the request is rejected, or it is allowed and nothing is left to do.
pub(super) type Flow = ControlFlow<()>;

/// Turn of one initializer.
#[derive(Clone, Debug)]
pub(super) struct InitializerTurn {
    /// Name of the initializer.
    pub(super) name: Arc<str>,
    /// Outcome of the turn.
    pub(super) outcome: InitializerOutcome,
    /// Duration of the turn.
    pub(super) took: Duration,
    /// Warning to the client if the initializer failed and the object goes on without it.
    pub(super) warning: Option<String>,
}

/// `metadata.initializers` of an object.
#[derive(Debug)]
pub(super) struct StoredList {
    pub(super) list: Result<Option<Initializers>, String>,
    /// The creator beside the list, as JSON.
    pub(super) creator: Option<String>,
}

impl StoredList {
    /// Returns true if the object is unfinished: its list has names or a result, or cannot be read.
    pub(super) fn is_unfinished(&self) -> bool {
        let says = |list: &Initializers| !list.pending.is_empty() || list.result.is_some();
        self.list.as_ref().map_or(true, |list| list.as_ref().is_some_and(says))
    }
}

/// The verdict while it is made.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    /// Calls that take effect, in the order of the verdict and of the audit line.
    pub(super) calls: Vec<CallRecord<'a>>,
    /// Number of mutating hooks that were not called before the request's deadline. The first of them are in `calls`.
    pub(super) out_of_time_calls: usize,
    /// Turns of initializers, in order.
    pub(super) initializers: Vec<InitializerTurn>,
    /// The current object if something has changed it, with its memory reservation.
    pub(super) object: Option<Arc<PatchedObject>>,
    /// True if no hook is called for this request.
    pub(super) skips_hooks: bool,
    /// The list of the stored object that an update changes; an error if it could not be read.
    pub(super) stored_list: Option<Result<StoredList, StatusError>>,
    /// Rejection that is not from a hook's answer.
    pub(super) refusal: Option<StatusError>,
    /// True if something rejects the request.
    pub(super) is_rejected: bool,
    /// True if an initializer rejects the object, or the requester is not allowed to change the list in this way.
    pub(super) is_initializer_denial: bool,
    /// True if a hook whose rules match is skipped, as break-glass is open for it.
    pub(super) break_glass_applied: bool,
    /// Mutating policies that decide once more if a hook changes the object.
    pub(super) reinvocable: Option<Reinvocable>,
    /// Failed validations of policies whose bindings say Audit.
    pub(super) validation_failures: Vec<AuditedFailure>,
    /// Warning that the object is stored and waits for initializers.
    pub(super) pending_warning: Option<String>,
    /// True if something reads the objects in JSON, and they came in protobuf.
    pub(super) wants_json: bool,
    /// Decisions of policies that are canaries, or that these are to replace.
    pub(super) compared: Compared,
    /// Outcome of the request, if it does not follow from the calls and the refusal.
    pub(super) outcome: Option<RequestOutcome>,
}

impl<'a> Draft<'a> {
    /// Adds a call.
    pub(super) fn add(&mut self, call: CallRecord<'a>) {
        self.is_rejected |= call.rejects();
        self.calls.push(call);
    }

    /// Adds calls.
    pub(super) fn add_all(&mut self, calls: Vec<CallRecord<'a>>) {
        self.is_rejected |= calls.iter().any(CallRecord::rejects);
        if self.calls.is_empty() {
            self.calls = calls;
        } else {
            self.calls.extend(calls);
        }
    }

    /// Adds a hook that is not called because it has not passed its probe yet, unless it was added before.
    pub(super) fn add_unproven(&mut self, ctx: &'a ReviewContext<'a>, live: &'a LiveHook) {
        let is_same =
            |call: &CallRecord<'_>| matches!(call.ending, Ending::Unproven) && *call.decider.id() == *live.hook.id;
        if !self.calls.iter().any(is_same) {
            self.calls.push(CallRecord::of(ctx, live, Ending::Unproven));
        }
    }

    /// Adds a hook that was not called before the request's deadline. Of many, only the first are named.
    pub(super) fn add_out_of_time(&mut self, call: CallRecord<'a>) {
        if self.out_of_time_calls < MAX_NAMED_OUT_OF_TIME {
            self.calls.push(call);
        }
        self.out_of_time_calls += 1;
    }

    /// Returns the number of hooks out of time that are not named.
    pub(super) fn unnamed_out_of_time_calls(&self) -> usize {
        self.out_of_time_calls.saturating_sub(MAX_NAMED_OUT_OF_TIME)
    }

    /// Rejects the request with `refusal`, and ends the review.
    pub(super) fn refuse(&mut self, refusal: StatusError) -> Flow {
        (self.refusal, self.is_rejected) = (Some(refusal), true);
        Flow::Break(())
    }

    /// Returns `Break` if something rejects the request.
    pub(super) fn flow(&self) -> Flow {
        if self.is_rejected { Flow::Break(()) } else { Flow::Continue(()) }
    }
}
