//! Memory held for hooks and callers beside the reviews.

use std::time::Instant;

use crate::{
    attack::{Attack, Bounds, Serve},
    greedy,
    stage::Stage,
};

/// Attack in which one kind of the greedy makes memory be held.
fn of(name: &'static str, hooks: fn(&crate::notes::Notes) -> Vec<crate::hook::Hook>, during: During) -> Attack {
    Attack { name, item: "36", hooks, serve: Serve::PLAIN, during, bounds: Bounds::USUAL }
}

type During = fn(&Stage) -> Result<String, String>;

fn press<const WHICH: usize>(stage: &Stage) -> Result<String, String> {
    let began = Instant::now();
    (greedy::ALL[WHICH].press)(stage.process.tcp, 1);
    Ok(format!("{} for {:.1} s", greedy::ALL[WHICH].holds, began.elapsed().as_secs_f64()))
}

/// The four of them.
pub fn all() -> [Attack; 4] {
    const DURING: [During; 4] = [press::<0>, press::<1>, press::<2>, press::<3>];
    std::array::from_fn(|n| of(greedy::ALL[n].name, greedy::ALL[n].hooks, DURING[n]))
}
