//! The cells as one SVG: a column a size; above what hooks add to the CPU of a write, below the write's p99.

use std::fmt::Write;

use super::{cell::Cell, tally::Tally, variant::Variant};
use crate::{
    size::Size,
    svg::{line, text},
};

const PANEL: (f64, f64) = (300.0, 240.0);
const MARGIN: (f64, f64) = (64.0, 56.0);

/// Colour and dashes of each variant.
fn stroke(variant: Variant) -> (&'static str, &'static str) {
    match variant {
        Variant::None => ("#888", " stroke-dasharray=\"2 3\""),
        Variant::Direct => ("#b5483b", ""),
        Variant::Json => ("#3b6fb5", ""),
        Variant::Grpc => ("#4c9a6a", ""),
        Variant::GrpcPlain => ("#4c9a6a", " stroke-dasharray=\"5 4\""),
    }
}

/// What a row of panels shows.
struct Row {
    title: &'static str,
    figure: fn(&Tally) -> f64,
    top: f64,
    /// Milliseconds at the bottom and at the top, powers of ten
    range: (f64, f64),
}

/// The plot of all cells.
pub(super) fn svg(cells: &[Cell]) -> String {
    let mut sizes: Vec<Size> = cells.iter().map(|cell| cell.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let rows = [
        Row::new("added CPU, ms a write", |tally| tally.added / 1e3, MARGIN.1, cells),
        Row::new("p99 of the write, ms", |tally| tally.p99, 2.0 * MARGIN.1 + PANEL.1, cells),
    ];
    let width = MARGIN.0 + sizes.len() as f64 * (PANEL.0 + MARGIN.0);
    let height = 3.0 * MARGIN.1 + 2.0 * PANEL.1 + 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for row in &rows {
        for (index, size) in sizes.iter().enumerate() {
            let left = MARGIN.0 + index as f64 * (PANEL.0 + MARGIN.0);
            let of_size: Vec<&Cell> = cells.iter().filter(|cell| cell.size == *size).collect();
            row.panel(&mut svg, left, *size, &of_size);
        }
    }
    legend(&mut svg, height - 16.0);
    svg.push_str("</svg>\n");
    svg
}

impl Row {
    fn new(title: &'static str, figure: fn(&Tally) -> f64, top: f64, cells: &[Cell]) -> Self {
        let values = cells.iter().flat_map(Cell::tallies).map(|tally| figure(&tally)).filter(|value| *value > 0.0);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let decade = |value: f64| if value.is_finite() && value > 0.0 { value.log10() } else { 0.0 };
        let bottom = decade(low).floor();
        Self { title, figure, top, range: (10_f64.powf(bottom), 10_f64.powf(decade(high).ceil().max(bottom + 1.0))) }
    }

    fn panel(&self, svg: &mut String, left: f64, size: Size, cells: &[&Cell]) {
        let (bottom, right) = (self.top + PANEL.1, left + PANEL.0);
        text(svg, (left, self.top - 12.0), "start", &format!("{size}iB objects: {}", self.title));
        let mut decade = self.range.0;
        while decade <= self.range.1 * 1.01 {
            let y = self.upward(decade);
            line(svg, (left, y), (right, y), "#ddd", "");
            text(svg, (left - 6.0, y + 4.0), "end", &format!("{}", (decade * 1e3).round() / 1e3));
            decade *= 10.0;
        }
        let across = |index: usize| left + PANEL.0 * (index as f64 + 0.5) / cells.len().max(1) as f64;
        for (index, cell) in cells.iter().enumerate() {
            line(svg, (across(index), self.top), (across(index), bottom), "#ddd", "");
            let hooks = if cell.hooks == 1 { "1 hook".to_owned() } else { format!("{} hooks", cell.hooks) };
            text(svg, (across(index), bottom + 16.0), "middle", &hooks);
        }
        for variant in Variant::ALL {
            let values = cells.iter().enumerate().filter_map(|(index, cell)| {
                let value = (self.figure)(&cell.tally(variant)?);
                (value > 0.0).then(|| (across(index), self.upward(value)))
            });
            curve(svg, &values.collect::<Vec<_>>(), stroke(variant));
        }
    }

    fn upward(&self, value: f64) -> f64 {
        let part = (value / self.range.0).log10() / (self.range.1 / self.range.0).log10();
        self.top + PANEL.1 * (1.0 - part)
    }
}

fn curve(svg: &mut String, points: &[(f64, f64)], (colour, dashes): (&str, &str)) {
    let joined: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let joined = joined.join(" ");
    let _ =
        writeln!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dashes} points=\"{joined}\"/>");
    for (x, y) in points {
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
}

fn legend(svg: &mut String, y: f64) {
    for (index, variant) in Variant::ALL.into_iter().enumerate() {
        let (x, (colour, dashes)) = (MARGIN.0 + index as f64 * 210.0, stroke(variant));
        line(svg, (x, y), (x + 24.0, y), colour, dashes);
        text(svg, (x + 30.0, y + 4.0), "start", variant.label());
    }
}
