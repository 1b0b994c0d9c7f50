//! The cells as one SVG of bars with their values: left what hooks add to the CPU of a write, right the write's p99.

use std::{fmt::Write, fs, path::Path};

use clap::ValueEnum;

use super::variant::Variant;
use crate::{
    Fallible,
    svg::{line, text},
};

/// Length of the longest bar of a cell.
const LONGEST: f64 = 300.0;
const BAR: f64 = 16.0;
const LABELS: f64 = 190.0;
/// Room behind a bar for its value.
const VALUE: f64 = 80.0;
/// Room above the bars of a cell for its name.
const NAME: f64 = 34.0;

/// One way of one cell, in milliseconds a write.
struct Bar {
    variant: Variant,
    added: f64,
    p99: f64,
}

/// The bars of one cell.
struct Group {
    name: String,
    bars: Vec<Bar>,
}

/// Draws `cost.svg` from `summary.csv` in that folder, as a run does.
pub(crate) fn redraw(folder: &Path) -> Fallible<()> {
    Ok(fs::write(folder.join("cost.svg"), svg(&fs::read_to_string(folder.join("summary.csv"))?)?)?)
}

/// The plot of what `summary.csv` holds. Bars of one cell share a scale, which begins at zero.
pub(super) fn svg(summary: &str) -> Fallible<String> {
    let groups = groups(summary)?;
    let (left, right) = (16.0 + LABELS, 16.0 + LABELS + LONGEST + VALUE + 16.0);
    let width = right + LONGEST + VALUE;
    let heights = groups.iter().map(|group| NAME + BAR * group.bars.len() as f64);
    let height = 44.0 + heights.sum::<f64>() + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (left, 26.0), "start", "CPU that hooks add to apiserver and sidecar, ms a write");
    text(&mut svg, (right, 26.0), "start", "p99 of the write, ms");
    let mut top = 36.0;
    for group in &groups {
        line(&mut svg, (16.0, top + 6.0), (width - 16.0, top + 6.0), "#ddd", "");
        text(&mut svg, (16.0, top + 24.0), "start", &group.name);
        top += NAME;
        for (index, bar) in group.bars.iter().enumerate() {
            let y = top + BAR * index as f64;
            text(&mut svg, (left - 8.0, y + 11.0), "end", bar.variant.label());
            for (x, figure) in [(left, (|bar| bar.added) as fn(&Bar) -> f64), (right, |bar| bar.p99)] {
                let most = group.bars.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max);
                drawn(&mut svg, (x, y), figure(bar), most, colour(bar.variant));
            }
        }
        top += BAR * group.bars.len() as f64;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn drawn(svg: &mut String, (x, y): (f64, f64), value: f64, most: f64, colour: &str) {
    let length = (LONGEST * value / most).max(1.0);
    let height = BAR - 4.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
    text(svg, (x + length + 6.0, y + 11.0), "start", &short(value));
}

/// Three digits that count.
fn short(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { usize::from(value < 100.0) + usize::from(value < 10.0) };
    format!("{value:.digits$}")
}

fn colour(variant: Variant) -> &'static str {
    match variant {
        Variant::None | Variant::PluginNone => "#888",
        Variant::Direct => "#b5483b",
        Variant::Json => "#3b6fb5",
        Variant::Grpc => "#4c9a6a",
        Variant::GrpcPlain => "#8fc4a5",
        Variant::JsonService => "#8fb3e0",
        Variant::GrpcService => "#b7d9c4",
        Variant::JsonSerial => "#1f3f6b",
        Variant::JsonAgainst => "#b08fd0",
        Variant::GrpcAgainst => "#7a5aa0",
        Variant::Plugin => "#d08a2e",
        Variant::PluginProtobuf => "#e8c48f",
    }
}

/// The cells of a `summary.csv`, in its order; the cell of one writer, the extra hop, is left out.
fn groups(summary: &str) -> Fallible<Vec<Group>> {
    let mut lines = summary.lines();
    let header: Vec<&str> = lines.next().ok_or("summary.csv is empty")?.split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let wanted = |name: &str| column(name).ok_or_else(|| format!("summary.csv has no column {name}"));
    let (size, hooks, variant) = (wanted("size")?, wanted("hooks")?, wanted("variant")?);
    let (added, p99) = (wanted("added_cpu_us_per_write")?, wanted("p99_ms")?);
    let mut groups: Vec<Group> = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |at: usize| fields.get(at).copied().ok_or_else(|| format!("summary.csv has a short line: {line}"));
        if column("cell").map(&field).transpose()? == Some("hop") {
            continue;
        }
        let name = match field(hooks)? {
            "1" => format!("{}iB, 1 hook", field(size)?),
            many => format!("{}iB, {many} hooks", field(size)?),
        };
        let variant = Variant::from_str(field(variant)?, false)?;
        if variant.is_none() {
            continue;
        }
        let bar = Bar { variant, added: field(added)?.parse::<f64>()? / 1e3, p99: field(p99)?.parse()? };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { name, bars: vec![bar] }),
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_has_its_value_and_the_hop_none() {
        let summary = "cell,size,hooks,variant,p99_ms,added_cpu_us_per_write\ntable,2K,16,none,9,0\n\
                       table,2K,16,direct,68.878,3085.0\ntable,2K,16,json,29.032,800.0\nhop,50K,1,json,1,1\n";
        let svg = svg(summary).expect("a plot");
        for text in ["2KiB, 16 hooks", "(a) direct", ">3.08<", ">68.9<", ">0.80<", ">29.0<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("50KiB") && !svg.contains("no hooks"), "{svg}");
        assert!(super::svg("size\n").is_err() && super::svg("").is_err());
    }
}
