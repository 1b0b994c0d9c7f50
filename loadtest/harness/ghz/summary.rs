//! The cells as a table: for a spreadsheet, for the README, for the terminal.

use super::cell::Cell;

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// A header and a line per cell; latencies in milliseconds.
pub(super) fn csv(cells: &[Cell]) -> String {
    let mut text = String::from("cell,size,hooks,load,reviews,rate,p50_ms,p90_ms,p95_ms,p99_ms,p999_ms\n");
    for cell in cells {
        let quantiles = QUANTILES.map(|quantile| format!("{:.3}", cell.at(quantile))).join(",");
        let Cell { name, size, hooks, rate, .. } = cell;
        text += &format!("{name},{size},{hooks},{},{},{rate:.0},{quantiles}\n", load(cell), cell.reviews());
    }
    text
}

/// The same as a Markdown table.
pub(super) fn markdown(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| object | hooks | load | reviews | reviews/s | p50 ms | p90 | p95 | p99 | p99.9 |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for cell in cells {
        let quantiles = QUANTILES.map(|quantile| format!("{:.2}", cell.at(quantile))).join(" | ");
        let Cell { size, hooks, rate, .. } = cell;
        text += &format!("| {size} | {hooks} | {} | {} | {rate:.0} | {quantiles} |\n", load(cell), cell.reviews());
    }
    text
}

/// The end of the folder's README.
pub(super) fn readme(cells: &[Cell]) -> String {
    format!(
        "\n{}\n![latency distributions](latency.svg)\n\n\
         Every cell is `ghz --insecure --proto proto/gatepost/v1/admission.proto --import-paths proto --call \
         gatepost.v1.Admission/Review --data-file REVIEW.json --connections 2 ...`: closed loop `--concurrency 8`, \
         fixed rate `--async --rps RATE`. The first sixth of each run is warm-up and not counted. \
         `raw/` is ghz's own JSON, less the object that it echoes.\n",
        markdown(cells)
    )
}

/// One line for the terminal.
pub(super) fn line(cell: &Cell) -> String {
    let Cell { name, rate, .. } = cell;
    format!("{name:<18} {rate:>8.0} reviews/s  p50 {:>8.2} ms  p99 {:>8.2} ms", cell.at(0.5), cell.at(0.99))
}

fn load(cell: &Cell) -> String {
    match cell.fixed {
        _ if cell.is_hung => "fixed rate, one hook hung".to_owned(),
        Some(rate) => format!("fixed {rate:.0}/s"),
        None => "closed".to_owned(),
    }
}
