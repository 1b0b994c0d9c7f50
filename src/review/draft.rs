//! Draft: a verdict in the making. Each phase adds to it what it has found.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use super::{
    context::ReviewContext,
    object::PatchedObject,
    record::{CallRecord, Ending},
    rejection::StatusError,
};
use crate::{
    live::LiveHook,
    telemetry::{InitializerOutcome, RequestOutcome},
};
use gatepost_initializers::Initializers;

/// Most hooks whose turn did not come in time that are named one by one.
const MAX_NAMED_OUT_OF_TIME: usize = 64;

/// Does the next phase follow? `Break` ends the review with what the draft holds.
pub(super) type Flow = ControlFlow<()>;

/// One initializer's turn at the object.
#[derive(Clone, Debug)]
pub(super) struct InitializerTurn {
    /// Its name.
    pub(super) name: Arc<str>,
    /// Outcome of the turn.
    pub(super) outcome: InitializerOutcome,
    /// Duration of the turn.
    pub(super) took: Duration,
    /// Warning to the client where it failed and the object goes on without it.
    pub(super) warning: Option<String>,
}

/// `metadata.initializers` of an object, read.
#[derive(Debug)]
pub(super) struct StoredList {
    pub(super) list: Result<Option<Initializers>, String>,
    /// The creator beside the list, as it is written.
    pub(super) creator: Option<String>,
}

impl StoredList {
    /// Is the object that has it unfinished? An empty list says nothing.
    pub(super) fn is_unfinished(&self) -> bool {
        let says = |list: &Initializers| !list.pending.is_empty() || list.result.is_some();
        self.list.as_ref().map_or(true, |list| list.as_ref().is_some_and(says))
    }
}

/// A verdict in the making.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    /// Calls of hooks that count, in the order of the verdict and of the audit line.
    pub(super) calls: Vec<CallRecord<'a>>,
    /// Mutating hooks whose turn did not come in time. The first of them are named in `calls`.
    pub(super) out_of_time: usize,
    /// Turns of initializers, in order.
    pub(super) initializers: Vec<InitializerTurn>,
    /// The object as it is now, where something has changed it. Its room in the memory budget is kept with it.
    pub(super) object: Option<Arc<PatchedObject>>,
    /// No hook is asked about this request.
    pub(super) skips_hooks: bool,
    /// The list of the stored object that an update finds, as far as it could be read.
    pub(super) stored_list: Option<Result<StoredList, StatusError>>,
    /// Rejection, where no hook's answer gives one.
    pub(super) refusal: Option<StatusError>,
    /// Something rejects the request.
    pub(super) is_rejected: bool,
    /// The rejection is an initializer's own no, or the requester may not write the list so.
    pub(super) is_initializer_denial: bool,
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    pub(super) break_glass_applied: bool,
    /// Warning that the object is stored and waits for initializers.
    pub(super) pending_warning: Option<String>,
    /// How the request ended, where neither its calls nor its refusal say so.
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

    /// Names a hook that is not asked, as it has not passed its probe yet; once.
    pub(super) fn add_unproven(&mut self, ctx: &'a ReviewContext<'a>, live: &'a LiveHook) {
        let is_same =
            |call: &CallRecord<'_>| matches!(call.ending, Ending::Unproven) && *call.decider.id() == *live.hook.id;
        if !self.calls.iter().any(is_same) {
            self.calls.push(CallRecord::of(ctx, live, Ending::Unproven));
        }
    }

    /// Adds a hook whose turn did not come in time; of many, only the first are named.
    pub(super) fn add_out_of_time(&mut self, call: CallRecord<'a>) {
        if self.out_of_time < MAX_NAMED_OUT_OF_TIME {
            self.calls.push(call);
        }
        self.out_of_time += 1;
    }

    /// Number of hooks whose turn did not come in time, behind those that are named.
    pub(super) fn left_out_calls(&self) -> usize {
        self.out_of_time.saturating_sub(MAX_NAMED_OUT_OF_TIME)
    }

    /// Rejects the request with this, and ends the review.
    pub(super) fn refuse(&mut self, refusal: StatusError) -> Flow {
        (self.refusal, self.is_rejected) = (Some(refusal), true);
        Flow::Break(())
    }

    /// The next phase follows, unless something rejects the request.
    pub(super) fn flow(&self) -> Flow {
        if self.is_rejected { Flow::Break(()) } else { Flow::Continue(()) }
    }
}
