//! Left out: every case that is not run, or not run whole, and why. One list.
//!
//! An entry says by what a case has that it is meant, so that it also means such cases of other folders. One that
//! means no case of the vectors in this repository is stale, and fails the test.

use serde_json::Value;

use Extent::{NotOurs, Pending};

const STRINGS: &str =
    "selectors in one string are for kubectl and list calls; a webhook configuration has none, nor have we";
const GT_LT: &str = "Gt and Lt exist in selector strings only, and the LabelSelector of the API refuses them, as we do";
const NULL_SELECTOR: &str =
    "null is the empty selector here, as upstream's API defaulting makes it before its code sees it";
const PANIC: &str =
    "upstream's credential resolver is made to panic; a call of ours runs no code of others, and has none";
const UNKNOWN_KIND: &str = "the caller converts the object, so the caller fails where it knows no kind";

/// Cases left out, in the order of the files; the first entry that matches a case counts.
pub(crate) static LEFT_OUT: [LeftOut; 7] = [
    LeftOut { file: "dispatch.json", extent: NotOurs, means: panics, why: PANIC },
    LeftOut { file: "label_selector_convert.json", extent: NotOurs, means: gt_or_lt, why: GT_LT },
    LeftOut { file: "label_selector_convert.json", extent: NotOurs, means: null_selector, why: NULL_SELECTOR },
    LeftOut { file: "label_selector_match.json", extent: NotOurs, means: gt_or_lt, why: GT_LT },
    LeftOut { file: "label_selector_match.json", extent: NotOurs, means: null_selector, why: GT_LT },
    LeftOut { file: "label_selector_parse.json", extent: NotOurs, means: every, why: STRINGS },
    LeftOut { file: "should_call.json", extent: NotOurs, means: unknown_kind, why: UNKNOWN_KIND },
];

/// Part of a case that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it, until the feature is there.
    #[expect(dead_code, reason = "no case waits at the moment; new files may bring some")]
    Pending,
    /// All of it: a known difference, or nothing that Gatepost has.
    NotOurs,
}

impl Extent {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Pending => "pending",
            NotOurs => "known difference",
        }
    }
}

/// Some cases of one file.
pub(crate) struct LeftOut {
    file: &'static str,
    pub(crate) extent: Extent,
    means: fn(&Value) -> bool,
    pub(crate) why: &'static str,
}

fn every(_: &Value) -> bool {
    true
}

fn panics(case: &Value) -> bool {
    case["client_panics"] == true
}

fn unknown_kind(case: &Value) -> bool {
    case["expect_error_contains"] == "unknown kind"
}

fn gt_or_lt(case: &Value) -> bool {
    let is = |operator: &Value| operator == "Gt" || operator == "Lt";
    let requirements = case["requirements"].as_array();
    is(&case["operator"]) || requirements.is_some_and(|all| all.iter().any(|one| is(&one["operator"])))
}

/// In the table of matches null says that the string has no form in the API, which is so for Gt and Lt.
fn null_selector(case: &Value) -> bool {
    case.get("label_selector").is_some_and(Value::is_null)
}

/// Which entries have been of use.
#[derive(Default)]
pub(crate) struct Tally {
    used: [bool; LEFT_OUT.len()],
}

impl Tally {
    /// The number in the list of the entry that means this case.
    pub(crate) fn find(&mut self, file: &str, case: &Value) -> Option<usize> {
        let entry = LEFT_OUT.iter().position(|entry| entry.file == file && (entry.means)(case))?;
        self.used[entry] = true;
        Some(entry)
    }

    /// Entries that meant no case.
    pub(crate) fn stale(&self) -> Vec<String> {
        let unused = LEFT_OUT.iter().zip(self.used).filter(|(_, used)| !used);
        unused.map(|(entry, _)| format!("left_out.rs: no case of {} is meant by {:?}", entry.file, entry.why)).collect()
    }
}
