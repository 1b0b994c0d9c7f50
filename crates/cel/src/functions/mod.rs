//! Every function that an expression may call, by name.
//!
//! A row of a table is a function; a table is a library. The signatures follow cel-go `common/stdlib`, `ext`, and
//! `k8s.io/apiserver/pkg/cel/library`; the costs cel-go `interpreter/runtimecost.go` and
//! `k8s.io/apiserver/pkg/cel/library/cost.go`.

mod convert;
pub(crate) mod format;
mod function;
mod kubernetes;
mod lists;
mod operators;
pub(crate) mod regex;
mod strings;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

pub(super) use function::Function;
use function::{Row, signatures_of};

static FUNCTIONS: LazyLock<FxHashMap<&'static str, Function>> = LazyLock::new(|| {
    let libraries =
        [operators::ROWS, convert::ROWS, strings::ROWS, lists::ROWS, regex::ROWS, kubernetes::ROWS, format::ROWS];
    let mut functions = FxHashMap::default();
    for Row(name, signatures, cost, call) in libraries.into_iter().flatten() {
        let signatures = signatures.iter().flat_map(|text| signatures_of(text)).collect();
        functions.insert(*name, Function { name, signatures, cost: *cost, call: *call });
    }
    functions
});

/// Returns the function of this name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}
