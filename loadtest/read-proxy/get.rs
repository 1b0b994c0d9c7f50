//! Get: one object by its name, through the proxy less direct.

use super::{
    Settings,
    objects::{LISTED, name},
    sides::{Pair, Sides},
};
use crate::{
    Fallible,
    figures::median,
    results::{Finding, Findings},
    targets,
};

/// GETs of a side in a repetition.
const GETS: usize = 200;

/// The difference of the two medians of a repetition.
pub(super) async fn measure(settings: &Settings, sides: &Sides<'_>, findings: &mut Findings) -> Fallible<()> {
    let pairs = sides.read(settings.reps(), settings.of(GETS), &format!("{LISTED}/{}", name(0))).await?;
    findings.keep("get", &pairs)?;
    let of = |value: fn(&Pair) -> f64| median(pairs.iter().map(value).collect());
    findings.add(Finding {
        figure: "get_p50_later_ms",
        cell: format!("one of {}", settings.size),
        unit: "ms",
        beside: Some(of(|pair| pair.direct.p50_ms)),
        ours: of(|pair| pair.proxied.p50_ms),
        value: of(|pair| pair.proxied.p50_ms - pair.direct.p50_ms),
        target: (!settings.control).then_some(targets::PROXIED_GET),
        few: settings.quick,
    })
}
