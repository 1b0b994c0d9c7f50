//! The cost of an evaluation, its limits, and the faults that end it.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    rc::Rc,
};

use crate::{authorization::AccessCheck, compatibility::KubernetesVersion};

/// The reason why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error of the language. `&&`, `||` and some macros may absorb it.
    Error(Cow<'static, str>),
    /// The evaluation ends.
    Stop(Stop),
}

/// A reason that ends the evaluation of any expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It costs more than one expression may.
    Cost,
    /// The deadline has passed.
    Deadline,
    /// It takes more steps than allowed on this thread, and must be evaluated again on another one.
    TooLong,
    /// This access check has no decision yet.
    Undecided(Box<AccessCheck>),
}

impl Stop {
    /// Returns the message, in upstream's words.
    pub(super) const fn text(&self) -> &'static str {
        match self {
            Self::Cost => "operation cancelled: actual cost limit exceeded",
            Self::Deadline => "operation interrupted",
            Self::TooLong => "evaluation takes too long here",
            Self::Undecided(_) => "the authorizer was not asked",
        }
    }
}

impl Fault {
    pub(super) fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn no_such_overload() -> Self {
        Self::error("no such overload")
    }

    pub(super) fn no_such_key(key: &str) -> Self {
        Self::error(format!("no such key: {}", cut(key)))
    }

    pub(super) fn out_of_range() -> Self {
        Self::error("index out of bounds")
    }
}

/// Returns the beginning of a text that may be long.
pub(super) fn cut(text: &str) -> &str {
    const MAX_CHARS: usize = 200;
    text.char_indices().nth(MAX_CHARS).map_or(text, |(end, _)| &text[..end])
}

/// Maximum cost of one expression, as in upstream.
pub(super) const MAX_EXPRESSION_COST: u64 = 1_000_000;

/// Maximum cost of all conditions of one decision, as in upstream.
pub const MAX_CONDITIONS_COST: u64 = 2_500_000;

/// Rounds of a loop between two checks of the deadline, as in upstream.
const ROUNDS_PER_DEADLINE_CHECK: u32 = 100;

/// Steps (some milliseconds) between two checks of the deadline outside of loops.
const STEPS_PER_DEADLINE_CHECK: u64 = 100_000;

/// Bytes of text that take about as long to read as one step.
const BYTES_PER_STEP: usize = 32;

/// Maximum number of bytes of text that one expression may create. Upstream has no such limit; its expressions do not
/// share a memory budget with other requests.
const MAX_MADE_BYTES: usize = 16 << 20;

/// Maximum number of items in the live lists and maps of one expression: 32 MiB. Dropped items do not count, because
/// most lists live for one round of a loop.
pub(super) const MAX_HELD_ITEMS: usize = 1 << 20;

/// Items of a list that take as much memory as one entry of a map.
pub(super) const ITEMS_PER_ENTRY: usize = 8;

/// Bounds on the time of an evaluation.
pub struct Allowance<'a> {
    /// Steps (some tens of nanoseconds each) after which the evaluation ends with [`ConditionsDecision::TooLong`]. All
    /// evaluations on one thread for one request share them; used steps are subtracted.
    ///
    /// [`ConditionsDecision::TooLong`]: crate::ConditionsDecision::TooLong
    pub steps: &'a Cell<u64>,
    /// Returns true once the deadline has passed.
    pub over: &'a dyn Fn() -> bool,
}

/// Memory of one evaluation. An expression and the variables that it uses share it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes of text that were made.
    made: Cell<usize>,
    /// Items of all live lists and maps; allocated with the first.
    held: OnceCell<Rc<Cell<usize>>>,
    /// Items of all lists and maps made.
    #[cfg(test)]
    listed: Cell<usize>,
}

impl Memory {
    /// Returns the number of bytes of text that were made.
    pub(super) fn made(&self) -> usize {
        self.made.get()
    }

    /// Forgets text that was dropped: `made` bytes remain.
    pub(super) fn set_made(&self, made: usize) {
        self.made.set(made);
    }
}

/// Counts the cost and the steps of one expression.
pub(super) struct Meter<'a> {
    pub(super) allowance: &'a Allowance<'a>,
    memory: &'a Memory,
    /// The version by whose rules the expression is evaluated.
    pub(super) version: KubernetesVersion,
    cost: Cell<u64>,
    rounds: Cell<u32>,
    /// The number of steps left at which the deadline is checked next.
    next_check: Cell<u64>,
}

/// Memory of a list or map, in items. Dropping it releases the memory.
#[derive(Debug, Default)]
pub(super) struct Room {
    items: usize,
    held: Option<Rc<Cell<usize>>>,
}

impl Room {
    /// Counts items that are about to be added.
    pub(super) fn grow(&mut self, items: usize, meter: &Meter<'_>) -> Result<(), Fault> {
        let held = self.held.get_or_insert_with(|| Rc::clone(meter.memory.held.get_or_init(Rc::default)));
        held.set(held.get().saturating_add(items));
        self.items = self.items.saturating_add(items);
        #[cfg(test)]
        meter.memory.listed.set(meter.memory.listed.get().saturating_add(items));
        if held.get() > MAX_HELD_ITEMS {
            return Err(Fault::error("the expression holds lists of more than 1,048,576 items"));
        }
        meter.step(items as u64)
    }
}

impl Clone for Room {
    /// Takes as much room again. If that is too much, the next growth fails.
    fn clone(&self) -> Self {
        if let Some(held) = &self.held {
            held.set(held.get().saturating_add(self.items));
        }
        Self { items: self.items, held: self.held.clone() }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.set(held.get().saturating_sub(self.items));
        }
    }
}

impl<'a> Meter<'a> {
    pub(super) fn new(allowance: &'a Allowance<'a>, memory: &'a Memory, version: KubernetesVersion) -> Self {
        let next_check = Cell::new(allowance.steps.get().saturating_sub(STEPS_PER_DEADLINE_CHECK));
        Self { allowance, memory, version, cost: Cell::new(0), rounds: Cell::new(0), next_check }
    }

    /// Bytes of text and items of lists that were made.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.memory.made.get(), self.memory.listed.get())
    }

    /// Items of lists and maps that are alive.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.memory.held.get().map_or(0, |held| held.get())
    }

    /// Returns the cost so far.
    pub(super) fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Adds to the cost, and counts as many steps, at least one.
    #[inline]
    pub(super) fn pay(&self, cost: u64) -> Result<(), Fault> {
        self.charge(cost)?;
        self.step(cost.max(1))
    }

    /// Adds to the cost only, for work that upstream counts and this crate does not do.
    #[inline]
    pub(super) fn charge(&self, cost: u64) -> Result<(), Fault> {
        let paid = self.cost.get().saturating_add(cost);
        self.cost.set(paid);
        if paid > MAX_EXPRESSION_COST { Err(Fault::Stop(Stop::Cost)) } else { Ok(()) }
    }

    /// Subtracts a cost that upstream does not count.
    pub(super) fn refund(&self, cost: u64) {
        self.cost.set(self.cost.get().saturating_sub(cost));
    }

    /// Counts bytes that are read.
    pub(super) fn read(&self, bytes: usize) -> Result<(), Fault> {
        self.step(1 + (bytes / BYTES_PER_STEP) as u64)
    }

    /// Counts bytes of text that are about to be created.
    pub(super) fn make(&self, bytes: usize) -> Result<(), Fault> {
        let made = self.memory.made.get().saturating_add(bytes);
        self.memory.made.set(made);
        if made > MAX_MADE_BYTES {
            return Err(Fault::error("the expression makes more than 16 MiB of text"));
        }
        self.read(bytes)
    }

    /// Reserves room for a list that is about to be created.
    pub(super) fn list(&self, items: usize) -> Result<Room, Fault> {
        let mut room = Room::default();
        room.grow(items, self)?;
        Ok(room)
    }

    /// Counts steps, and checks the deadline from time to time. Adds nothing to the cost.
    #[inline]
    pub(super) fn step(&self, steps: u64) -> Result<(), Fault> {
        match self.allowance.steps.get().checked_sub(steps) {
            Some(left) if left >= self.next_check.get() => {
                self.allowance.steps.set(left);
                Ok(())
            }
            left => self.check(left),
        }
    }

    /// Checks the deadline, and that steps are left.
    #[cold]
    fn check(&self, left: Option<u64>) -> Result<(), Fault> {
        self.allowance.steps.set(left.unwrap_or(0));
        self.next_check.set(left.unwrap_or(0).saturating_sub(STEPS_PER_DEADLINE_CHECK));
        match left {
            None => Err(Fault::Stop(Stop::TooLong)),
            Some(_) if (self.allowance.over)() => Err(Fault::Stop(Stop::Deadline)),
            Some(_) => Ok(()),
        }
    }

    /// Begins one round of a loop.
    pub(super) fn round(&self) -> Result<(), Fault> {
        let rounds = self.rounds.get().wrapping_add(1);
        self.rounds.set(rounds);
        if rounds.is_multiple_of(ROUNDS_PER_DEADLINE_CHECK) && (self.allowance.over)() {
            return Err(Fault::Stop(Stop::Deadline));
        }
        self.step(1)
    }
}
