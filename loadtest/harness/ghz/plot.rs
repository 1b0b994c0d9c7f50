//! The latency distributions as one SVG: a panel per size, percentiles to the right, milliseconds upwards.
//!
//! Both axes are logarithmic (the percentiles in nines), so that the tail has as much room as the middle.

use std::fmt::Write;

use super::cell::Cell;
use crate::{
    size::Size,
    svg::{line, text},
};

const PANEL: (f64, f64) = (320.0, 300.0);
const MARGIN: (f64, f64) = (60.0, 60.0);
/// Milliseconds at the bottom and at the top.
const RANGE: (f64, f64) = (0.1, 1000.0);
/// Percentiles on the axis; the last is the right edge.
const TICKS: [(f64, &str); 5] = [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9")];
const COLOURS: [(usize, &str); 3] = [(1, "#4c9a6a"), (4, "#3b6fb5"), (16, "#b5483b")];
const HUNG: &str = "#7a4bb0";

/// The plot of all cells: dashed the closed loops, solid the fixed rates, violet with a hung hook.
pub(super) fn svg(cells: &[Cell]) -> String {
    let mut sizes: Vec<Size> = cells.iter().map(|cell| cell.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let width = MARGIN.0 + sizes.len() as f64 * (PANEL.0 + MARGIN.0);
    let height = PANEL.1 + 2.0 * MARGIN.1 + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, size) in sizes.iter().enumerate() {
        let left = MARGIN.0 + index as f64 * (PANEL.0 + MARGIN.0);
        panel(&mut svg, left, *size);
        cells.iter().filter(|cell| cell.size == *size).for_each(|cell| curve(&mut svg, left, cell));
    }
    legend(&mut svg, height - 16.0);
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, left: f64, size: Size) {
    let (top, bottom, right) = (MARGIN.1, MARGIN.1 + PANEL.1, left + PANEL.0);
    text(svg, (left, top - 24.0), "start", &format!("{size}iB objects: latency in ms at each percentile"));
    for (quantile, label) in TICKS {
        let x = left + across(quantile);
        line(svg, (x, top), (x, bottom), "#ddd", "");
        text(svg, (x, bottom + 16.0), "middle", label);
    }
    let mut milliseconds = RANGE.0;
    while milliseconds <= RANGE.1 * 1.01 {
        let y = upward(milliseconds);
        line(svg, (left, y), (right, y), "#ddd", "");
        text(svg, (left - 6.0, y + 4.0), "end", &format!("{}", (milliseconds * 10.0).round() / 10.0));
        milliseconds *= 10.0;
    }
}

fn curve(svg: &mut String, left: f64, cell: &Cell) {
    let colour = COLOURS.iter().find(|(hooks, _)| *hooks == cell.hooks).map_or("black", |(_, colour)| colour);
    let colour = if cell.is_hung { HUNG } else { colour };
    let dashes = if cell.fixed.is_none() { " stroke-dasharray=\"5 4\"" } else { "" };
    let mut points = String::new();
    let nines = (TICKS.len() - 2) as f64;
    for step in 0..=120 {
        let quantile = 1.0 - 10_f64.powf(-nines * f64::from(step) / 120.0);
        let _ = write!(points, "{:.1},{:.1} ", left + across(quantile), upward(cell.at(quantile)));
    }
    let points = points.trim_end();
    let _ =
        writeln!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dashes} points=\"{points}\"/>");
}

fn legend(svg: &mut String, y: f64) {
    let mut entries: Vec<(String, &str, &str)> =
        COLOURS.iter().map(|(hooks, colour)| (format!("{hooks} hooks, fixed rate"), *colour, "")).collect();
    entries.push(("closed loop, 8 in flight".to_owned(), "#555", " stroke-dasharray=\"5 4\""));
    entries.push(("one hook hung (Ignore, 100 ms)".to_owned(), HUNG, ""));
    for (index, (label, colour, dashes)) in entries.iter().enumerate() {
        let x = MARGIN.0 + index as f64 * 210.0;
        line(svg, (x, y), (x + 24.0, y), colour, dashes);
        text(svg, (x + 30.0, y + 4.0), "start", label);
    }
}

/// Distance of a quantile from the panel's left edge: every nine is as wide as the next.
fn across(quantile: f64) -> f64 {
    let nines = -(1.0 - quantile).max(1e-9).log10();
    PANEL.0 * nines / (TICKS.len() - 2) as f64
}

fn upward(milliseconds: f64) -> f64 {
    let decades = (RANGE.1 / RANGE.0).log10();
    let part = (milliseconds.clamp(RANGE.0, RANGE.1) / RANGE.0).log10() / decades;
    MARGIN.1 + PANEL.1 * (1.0 - part)
}
