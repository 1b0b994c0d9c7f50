//! Row: one figure in one cell, against its target.

use std::fmt;

use crate::{size::Size, targets::Target};

/// The columns a printed row has.
pub(super) const HEADING: &str =
    "figure                         size hooks        naive         ours    ratio  target  met";

/// One line of the summary.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    figure: &'static str,
    size: Size,
    hooks: usize,
    naive: f64,
    ours: f64,
    ratio: f64,
    target: Option<Target>,
    met: &'static str,
}

impl Row {
    /// A row whose target is about the ratio.
    pub(crate) fn of_ratio(
        figure: &'static str,
        (size, hooks): (Size, usize),
        (naive, ours, ratio): (f64, f64, f64),
        target: Option<Target>,
    ) -> Self {
        let met = verdict(target, ratio);
        Self { figure, size, hooks, naive, ours, ratio, target, met }
    }

    /// A row whose target is about our own value; the ratio, ours / naive, is for reading.
    pub(crate) fn of_value(
        figure: &'static str,
        (size, hooks): (Size, usize),
        (naive, ours): (f64, f64),
        target: Target,
    ) -> Self {
        let ratio = if naive == 0.0 { 0.0 } else { ours / naive };
        let met = verdict(Some(target), ours);
        Self { figure, size, hooks, naive, ours, ratio, target: Some(target), met }
    }

    /// The same row, when there were too few samples to judge it.
    pub(crate) fn indicative(mut self) -> Self {
        if self.target.is_some() {
            self.met = "too few samples";
        }
        self
    }

    /// True when the target was missed.
    pub(super) fn is_missed(&self) -> bool {
        self.met == "no"
    }

    /// As a line of summary.csv.
    pub(super) fn csv(&self) -> String {
        let Self { figure, size, hooks, naive, ours, ratio, met, .. } = self;
        format!("{figure},{size},{hooks},{naive:.3},{ours:.3},{ratio:.3},{},{met}", self.target())
    }

    /// As a line of a Markdown table.
    pub(super) fn markdown(&self) -> String {
        let Self { figure, size, hooks, naive, ours, ratio, met, .. } = self;
        format!("| {figure} | {size} | {hooks} | {naive:.2} | {ours:.2} | {ratio:.2} | {} | {met} |", self.target())
    }

    fn target(&self) -> String {
        self.target.map(|target| target.to_string()).unwrap_or_default()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, size, hooks, naive, ours, ratio, met, .. } = self;
        let size = size.to_string();
        write!(
            f,
            "{figure:<29} {size:>5} {hooks:>5} {naive:>12.2} {ours:>12.2} {ratio:>8.3} {:>7}  {met}",
            self.target()
        )
    }
}

fn verdict(target: Option<Target>, value: f64) -> &'static str {
    match target.map(|target| target.is_met(value)) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}
