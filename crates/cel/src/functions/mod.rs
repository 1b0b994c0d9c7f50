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
mod older;
mod operators;
pub(crate) mod regex;
mod strings;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

pub(super) use function::{Cost, Function};
use function::{Row, signatures_of};

use crate::compatibility::KubernetesVersion;

type Functions = FxHashMap<&'static str, Function>;

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    functions(&[
        operators::ROWS,
        convert::ROWS,
        strings::ROWS,
        lists::ROWS,
        regex::ROWS,
        kubernetes::ROWS,
        format::ROWS,
    ])
});

/// Functions that were others before Kubernetes 1.37.
static BEFORE_1_37: LazyLock<Functions> = LazyLock::new(|| functions(&[older::ROWS]));

fn functions(libraries: &[&'static [Row]]) -> Functions {
    let rows = libraries.iter().copied().flatten();
    let functions = rows.map(|Row(name, signatures, cost, call)| {
        let signatures = signatures.iter().flat_map(|text| signatures_of(text)).collect();
        (*name, Function { name, signatures, cost: *cost, call: *call })
    });
    functions.collect()
}

/// Returns the function that has this name, as a member or global, in this version.
pub(super) fn find(name: &str, member: bool, version: KubernetesVersion) -> Option<&'static Function> {
    let has_form = |function: &&Function| function.signatures.iter().any(|signature| signature.member == member);
    let older = if version < KubernetesVersion::V1_37 { BEFORE_1_37.get(name) } else { None };
    older.filter(has_form).or_else(|| FUNCTIONS.get(name).filter(has_form))
}
