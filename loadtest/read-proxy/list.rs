//! List: all objects in one answer, through the proxy / direct.

use super::{
    Settings,
    objects::LISTED,
    sides::{Pair, Sides},
};
use crate::{
    Fallible,
    figures::median,
    results::{Finding, Findings},
    targets,
};

/// LISTs of a side in a repetition.
const LISTS: usize = 3;
/// Objects that the target is about.
const OBJECTS: usize = 5000;

/// The ratio of the two medians of a repetition.
pub(super) async fn measure(settings: &Settings, sides: &Sides<'_>, findings: &mut Findings) -> Fallible<()> {
    // As a reflector begins: from the watch cache, so that no time of etcd's is in it.
    let path = format!("{LISTED}?resourceVersion=0");
    let pairs = sides.read(settings.reps(), LISTS, &path).await?;
    findings.keep("list", &pairs)?;
    let of = |value: fn(&Pair) -> f64| median(pairs.iter().map(value).collect());
    let judged = settings.objects() >= OBJECTS && !settings.control;
    findings.add(Finding {
        figure: "list_ratio",
        cell: format!("{} objects", settings.objects()),
        unit: "ms",
        beside: Some(of(|pair| pair.direct.p50_ms)),
        ours: of(|pair| pair.proxied.p50_ms),
        value: of(|pair| pair.proxied.p50_ms / pair.direct.p50_ms),
        target: judged.then_some(targets::PROXIED_LIST),
        few: settings.quick,
    })
}
