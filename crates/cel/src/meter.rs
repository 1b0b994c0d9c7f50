//! Meter: cost of an evaluation, and its limits.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    rc::Rc,
};

use crate::authorization::AccessCheck;

/// Reason why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error as the language has them: `&&`, `||` and some macros may make do without the value.
    Error(Cow<'static, str>),
    /// The evaluation is over.
    Stop(Stop),
}

/// Reason that ends an evaluation, whatever the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It costs more than one expression may.
    Cost,
    /// The request's time is over.
    Deadline,
    /// It takes longer than the caller's thread can be kept, and is to be begun anew elsewhere.
    TooLong,
    /// This access check has no decision yet.
    Undecided(Box<AccessCheck>),
}

impl Stop {
    /// As upstream words it.
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

/// The beginning of a text that may be long.
pub(super) fn cut(text: &str) -> &str {
    const LONGEST: usize = 200;
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}

/// The most that one expression may cost. As upstream.
pub(super) const MOST_OF_ONE: u64 = 1_000_000;

/// The most that all conditions of one hook may cost together. As upstream.
pub(super) const MOST_OF_ALL: u64 = 2_500_000;

/// Steps of a loop between two looks at the clock. As upstream.
const CHECKED_EVERY: u32 = 100;

/// Steps after which it asks as well, some milliseconds: not all that takes time is a loop.
const CHECKED_AFTER: u64 = 100_000;

/// Bytes of an object that take about as long to pass by as one step takes.
const BYTES_A_STEP: usize = 32;

/// The most text, in bytes, that one expression may make while it is evaluated. Upstream has no such
/// limit; its expressions are not evaluated beside other requests within one budget.
const MOST_MADE: usize = 16 << 20;

/// The most items of lists and maps that one expression may hold at once: 32 MiB. Dropped items do not count, as most
/// lists live for a round of a loop only.
pub(super) const MOST_HELD: usize = 1 << 20;

/// Items of a list that take as much memory as one entry of a map.
pub(super) const ENTRY: usize = 8;

/// Limits of an evaluation.
pub struct Allowance<'a> {
    /// Steps (some tens of nanoseconds each) after which it is given up and begun anew elsewhere; shared by all that
    /// are evaluated on one thread for one request.
    pub steps: &'a Cell<u64>,
    /// Is the request's time over?
    pub over: &'a dyn Fn() -> bool,
}

/// Counts one expression's cost, and its steps.
pub(super) struct Meter<'a> {
    allowance: &'a Allowance<'a>,
    cost: Cell<u64>,
    rounds: Cell<u32>,
    /// Steps since it was last asked whether time is over.
    unasked: Cell<u64>,
    made: Cell<usize>,
    /// Items of all that is alive; made with the first.
    held: OnceCell<Rc<Cell<usize>>>,
    /// Items of all that was made.
    #[cfg(test)]
    listed: Cell<usize>,
}

/// Room of a list or map, in items; given back with it.
#[derive(Debug, Default)]
pub(super) struct Room {
    items: usize,
    held: Option<Rc<Cell<usize>>>,
}

impl Room {
    /// Counts items that are about to be added.
    pub(super) fn grow(&mut self, items: usize, meter: &Meter<'_>) -> Result<(), Fault> {
        let held = self.held.get_or_insert_with(|| Rc::clone(meter.held.get_or_init(Rc::default)));
        held.set(held.get().saturating_add(items));
        self.items = self.items.saturating_add(items);
        #[cfg(test)]
        meter.listed.set(meter.listed.get().saturating_add(items));
        if held.get() > MOST_HELD {
            return Err(Fault::error("the expression holds lists of more than 1,048,576 items"));
        }
        meter.step(items as u64)
    }
}

impl Clone for Room {
    /// As much room again. If that was too much, the next request for more fails.
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
    pub(super) fn new(allowance: &'a Allowance<'a>) -> Self {
        let (cost, rounds, unasked, made) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        Self {
            allowance,
            cost,
            rounds,
            unasked,
            made,
            held: OnceCell::new(),
            #[cfg(test)]
            listed: Cell::new(0),
        }
    }

    /// Bytes of text and items of lists that were made.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.made.get(), self.listed.get())
    }

    /// Items of lists and maps that are alive.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.get().map_or(0, |held| held.get())
    }

    /// Cost so far.
    pub(super) fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Adds to the cost as upstream counts it.
    pub(super) fn pay(&self, cost: u64) -> Result<(), Fault> {
        self.charge(cost)?;
        self.step(cost.max(1))
    }

    /// Adds to the cost what takes no time here.
    pub(super) fn charge(&self, cost: u64) -> Result<(), Fault> {
        let paid = self.cost.get().saturating_add(cost);
        self.cost.set(paid);
        if paid > MOST_OF_ONE { Err(Fault::Stop(Stop::Cost)) } else { Ok(()) }
    }

    /// Takes back what upstream does not count.
    pub(super) fn refund(&self, cost: u64) {
        self.cost.set(self.cost.get().saturating_sub(cost));
    }

    /// Counts bytes that are passed by.
    pub(super) fn read(&self, bytes: usize) -> Result<(), Fault> {
        self.step(1 + (bytes / BYTES_A_STEP) as u64)
    }

    /// Counts bytes that are about to be made, before they are.
    pub(super) fn make(&self, bytes: usize) -> Result<(), Fault> {
        let made = self.made.get().saturating_add(bytes);
        self.made.set(made);
        if made > MOST_MADE {
            return Err(Fault::error("the expression makes more than 16 MiB of text"));
        }
        self.read(bytes)
    }

    /// Room of a list that is about to be made.
    pub(super) fn list(&self, items: usize) -> Result<Room, Fault> {
        let mut room = Room::default();
        room.grow(items, self)?;
        Ok(room)
    }

    /// Counts steps that cost nothing upstream.
    pub(super) fn step(&self, steps: u64) -> Result<(), Fault> {
        let unasked = self.unasked.get().saturating_add(steps);
        self.unasked.set(if unasked > CHECKED_AFTER { 0 } else { unasked });
        if unasked > CHECKED_AFTER && (self.allowance.over)() {
            return Err(Fault::Stop(Stop::Deadline));
        }
        match self.allowance.steps.get().checked_sub(steps) {
            Some(left) => {
                self.allowance.steps.set(left);
                Ok(())
            }
            None => {
                self.allowance.steps.set(0);
                Err(Fault::Stop(Stop::TooLong))
            }
        }
    }

    /// One round of a loop begins.
    pub(super) fn round(&self) -> Result<(), Fault> {
        let rounds = self.rounds.get().wrapping_add(1);
        self.rounds.set(rounds);
        if rounds.is_multiple_of(CHECKED_EVERY) && (self.allowance.over)() {
            return Err(Fault::Stop(Stop::Deadline));
        }
        self.step(1)
    }
}
