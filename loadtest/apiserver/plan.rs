//! Plan: which cells, how many writes in each.

use super::{Addressing, Settings, cell::Course, variant::Variant};
use crate::size::Size;

/// The sizes of the table.
pub(super) const SMALL: Size = Size(2 << 10);
/// See [`SMALL`].
pub(super) const MEDIUM: Size = Size(50 << 10);
/// See [`SMALL`].
pub(super) const LARGE: Size = Size(500 << 10);

/// Cell of `--mutating`: eight writers, hooks that answer at once.
pub(super) const NONE_PATCHES: &str = "none-patches";
/// See [`NONE_PATCHES`].
pub(super) const FOURTH_PATCHES: &str = "fourth-patches";
/// One writer, hooks that wait.
pub(super) const NONE_PATCHES_ALL_WAIT: &str = "none-patches-all-wait";
/// See [`NONE_PATCHES_ALL_WAIT`].
pub(super) const FOURTH_PATCHES_ALL_WAIT: &str = "fourth-patches-all-wait";

/// Writers of every cell but the extra hop's.
const WRITERS: usize = 8;

/// Courses to measure.
#[derive(Debug)]
pub(super) struct Plan<'a>(&'a Settings);

impl<'a> Plan<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self(settings)
    }

    /// True when there are too few writes to judge anything.
    pub(super) fn is_quick(&self) -> bool {
        self.0.quick
    }

    /// The sizes.
    pub(super) fn sizes(&self) -> Vec<Size> {
        if self.0.sizes.is_empty() { vec![SMALL, MEDIUM, LARGE] } else { self.0.sizes.clone() }
    }

    /// The numbers of hooks; no hooks at all is measured beside each of them.
    pub(super) fn hooks(&self) -> Vec<usize> {
        match (self.0.hooks.is_empty(), self.0.quick) {
            (false, _) => self.0.hooks.clone(),
            (true, true) => vec![1, 16],
            (true, false) => vec![1, 4, 16],
        }
    }

    /// The ways to reach the hooks, and without hooks.
    pub(super) fn variants(&self) -> Vec<Variant> {
        let asked = |variant: &Variant| match self.0.ways.is_empty() {
            true if variant.has_plugin() => self.0.plugin.is_some(),
            true if variant.is_against() => self.0.against.is_some(),
            true => !variant.has_service() || self.0.form == Addressing::Service,
            false => self.0.ways.contains(variant),
        };
        let any_plugin = Variant::ALL.iter().any(|variant| variant.has_plugin() && asked(variant));
        let is_measured = |variant: &Variant| match variant {
            Variant::None => true,
            Variant::PluginNone => any_plugin,
            _ => asked(variant),
        };
        Variant::ALL.into_iter().filter(is_measured).collect()
    }

    /// A cell of the table. Large objects take so long that fewer have to do.
    pub(super) fn course(&self, size: Size) -> Course {
        let (writes, reps) = self.many(size);
        let mut variants = self.variants();
        variants.retain(|variant| !variant.is_serial());
        Course { name: "table", size, writers: WRITERS, reps, writes: writes / reps.max(1), variants }
    }

    /// A cell of mutating hooks. A single writer, whose hooks wait, takes long and is judged by its median alone.
    pub(super) fn mutating(&self, name: &'static str, size: Size, alone: bool) -> Course {
        let (writes, reps) = self.many(size);
        let (writers, writes) = if alone { (1, writes.min(2_000) / 2) } else { (WRITERS, writes) };
        let mut variants = self.variants();
        variants.retain(|variant| variant.protocol() == "json");
        Course { name, size, writers, reps, writes: writes / reps.max(1), variants }
    }

    /// Writes of a way in a cell of the table, and repetitions.
    fn many(&self, size: Size) -> (usize, usize) {
        let writes = match (size > MEDIUM, size > SMALL, self.0.quick) {
            (false, _, false) => 10_000,
            (true, _, false) => 2_000,
            (false, false, true) => 900,
            (false, true, true) => 600,
            (true, _, true) => 120,
        };
        (writes, self.0.reps.unwrap_or(if self.0.quick { 3 } else { 5 }))
    }

    /// One writer, one hook: what the extra hop takes when nothing queues.
    pub(super) fn hop(&self) -> Course {
        let (reps, writes) = if self.0.quick { (3, 600) } else { (10, 10_000) };
        let mut variants = self.variants();
        variants.retain(|variant| !variant.is_none() && !matches!(variant, Variant::GrpcPlain | Variant::JsonSerial));
        Course { name: "hop", size: MEDIUM, writers: 1, reps, writes: writes / reps, variants }
    }
}
