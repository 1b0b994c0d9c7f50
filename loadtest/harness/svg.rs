//! SVG: the two strokes every plot is made of.

use std::fmt::Write;

/// A straight line; `dashes` is an attribute or empty.
pub(crate) fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, dashes: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{dashes}/>"
    );
}

/// Words at a place.
pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
