//! Cell: one size and number of hooks, every variant in turn, several times.

use super::{api::Api, object, repetition::Repetition, rig::Rig, variant::Variant};
use crate::{Fallible, results::Results, size::Size};

/// Course of a cell.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) name: &'static str,
    pub(super) size: Size,
    pub(super) writers: usize,
    pub(super) reps: usize,
    /// Measured writes of a variant in a repetition
    pub(super) writes: usize,
    pub(super) variants: Vec<Variant>,
}

/// Measurements of a cell.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) course: &'static str,
    pub(super) size: Size,
    pub(super) hooks: usize,
    pub(super) repetitions: Vec<Repetition>,
}

impl Cell {
    /// Measures every variant `reps` times; each repetition begins with another one.
    pub(super) async fn measure(api: &mut Api<'_>, rig: &Rig, course: &Course, results: &Results) -> Fallible<Self> {
        let mut cell = Self { course: course.name, size: course.size, hooks: rig.count, repetitions: Vec::new() };
        let Course { name, size, .. } = course;
        for number in 0..course.reps {
            let mut variants = course.variants.clone();
            let first = number % variants.len();
            variants.rotate_left(first);
            for variant in variants {
                api.switch(variant, rig).await?;
                let repetition = measure(api, rig, course, (variant, number)).await.map_err(|error| {
                    format!("{size}, {} hooks, {}, repetition {number}: {error}", rig.count, variant.label())
                })?;
                results.append("repetitions.csv", &repetition.csv(name, (*size, rig.count)))?;
                cell.repetitions.push(repetition);
            }
        }
        results.keep(&format!("{name}-{size}-{}", rig.count), &cell.repetitions)?;
        Ok(cell)
    }
}

/// Warms up, measures, and checks that every hook was asked as often as it should be. Nothing is under way at either
/// end.
async fn measure(
    api: &mut Api<'_>,
    rig: &Rig,
    course: &Course,
    (variant, number): (Variant, usize),
) -> Fallible<Repetition> {
    let object = object::config_map(course.size);
    let warm_up = (course.writes / 10).max(4 * course.writers);
    let before = rig.asked()?;
    api.writers(variant).write(&object, course.writers, warm_up).await?;
    let used = rig.cpu(variant)?;
    let written = api.writers(variant).write(&object, course.writers, course.writes).await?;
    let used = rig.cpu(variant)?.since(&used);
    let writes = (warm_up + course.writes) as u64;
    let calls = rig.check(variant, &before, writes)? as f64 / writes as f64;
    Repetition::new(variant, number, written, used, calls)
}
