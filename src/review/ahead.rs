//! Ahead: which mutating hooks are asked before it is their turn.
//!
//! A call ahead of its turn is in vain where a hook before it changes the object. So none is made where that is likely,
//! by what is known of the hooks before ([`PatchRates`](crate::hooks::PatchRates)), and in one request no more are in
//! vain than it has hooks.

use crate::{
    hooks::RequestKind,
    live::LiveHook,
    model::{Dispatch, Review},
};

/// Default mode of asking mutating hooks, for hooks that do not set their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speculation {
    /// One by one, or together.
    pub dispatch: Dispatch,
    /// No hook is asked behind others of which one patches with a greater chance than this, in percent.
    pub most_chance: u8,
}

impl Default for Speculation {
    /// Together, as long as a call is more likely to count than to be in vain.
    fn default() -> Self {
        Self { dispatch: Dispatch::Speculative, most_chance: 50 }
    }
}

/// Calls ahead of their turn in one request.
#[derive(Debug)]
pub(super) struct Ahead {
    speculation: Speculation,
    kind: RequestKind,
    dry_run: bool,
    /// Calls that may still be in vain.
    spare: usize,
}

/// Hooks of one batch, as far as it goes.
#[derive(Debug)]
pub(super) struct Row {
    /// The chance that none of them patches.
    quiet: f32,
    /// Calls that are in vain if the first one patches.
    ahead: usize,
}

impl Ahead {
    /// For a request that so many hooks may see.
    pub(super) fn new(speculation: Speculation, review: &Review, hooks: usize) -> Self {
        Self { speculation, kind: RequestKind::of(review), dry_run: review.dry_run, spare: hooks }
    }

    /// A batch without a hook.
    pub(super) fn row(&self) -> Row {
        Row { quiet: 1.0, ahead: 0 }
    }

    /// May it share a batch with others? Only where a call changes nothing in the world, and nobody wants it asked
    /// alone.
    pub(super) fn shares(&self, live: &LiveHook) -> bool {
        live.hook.dispatch.unwrap_or(self.speculation.dispatch) == Dispatch::Speculative
            && live.target.side_effects().none_for(self.dry_run)
    }

    /// May one more hook be asked behind this row?
    pub(super) fn goes_on(&self, row: &Row) -> bool {
        100.0 * (1.0 - row.quiet) <= f32::from(self.speculation.most_chance) && row.ahead < self.spare
    }

    /// A hook has joined the row.
    pub(super) fn join(&self, row: &mut Row, live: &LiveHook, is_first: bool) {
        row.quiet *= 1.0 - live.target.patch_rates().map_or(0.0, |rates| rates.chance(self.kind));
        row.ahead += usize::from(!is_first);
    }

    /// A hook has answered in its turn.
    pub(super) fn learn(&self, live: &LiveHook, patched: bool) {
        if let Some(rates) = live.target.patch_rates() {
            rates.record(self.kind, patched);
        }
    }

    /// Takes vain calls off the spare ones.
    pub(super) fn spend(&mut self, calls: usize) {
        self.spare = self.spare.saturating_sub(calls);
    }
}
