//! Run: one file of cases, from its text to its line of result.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    folder::Folder,
    left_out::{LEFT_OUT, LeftOut, Tally},
    table,
};

/// Result of a case: nothing, or the difference.
pub(crate) type Outcome = Result<(), String>;

/// A case that was understood, to be run; or why it was not understood.
pub(crate) type Understood = Result<Box<dyn FnOnce() -> Outcome>, String>;

/// A table of cases: its file, and what understands one case of it and what the file says for all of them.
pub(crate) struct Table {
    pub(crate) file: &'static str,
    /// Nothing where no case of it is run yet: then every one must be on the list of what is left out.
    pub(crate) case: Option<fn(&Value, &Value) -> Understood>,
}

/// Fields that every file has.
#[derive(Deserialize)]
struct File {
    /// The upstream files and tests: for people.
    #[serde(rename = "source")]
    _source: String,
    count: usize,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    cases: Vec<Value>,
    /// Fields for all cases of the file.
    #[serde(flatten)]
    shared: Map<String, Value>,
}

/// A file whose cases share nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Runs every case of one file, says how it went, and adds to what failed.
pub(crate) fn file(folder: &Folder, name: &str, tally: &mut Tally, failures: &mut Vec<String>) {
    let Some(table) = table(name) else {
        return failures.push(format!("{name}: no such table is known"));
    };
    let file = match folder.read(name).map_err(|error| error.to_string()).and_then(|text| read(&text)) {
        Ok(file) => file,
        Err(error) => return failures.push(format!("{name}: {error}")),
    };
    let (shared, total) = (Value::Object(file.shared), file.cases.len());
    let (mut passed, mut ids) = (0, BTreeMap::<usize, Vec<&str>>::new());
    for case in &file.cases {
        let id = case["id"].as_str().unwrap_or_default();
        let entry = tally.find(name, case);
        entry.inspect(|&entry| ids.entry(entry).or_default().push(id));
        match judge(table, &shared, case, entry.map(|entry| &LEFT_OUT[entry])) {
            Ok(true) => passed += 1,
            Ok(false) => {}
            Err(failure) => failures.push(format!("{name}: {id}: {failure}")),
        }
    }
    println!("{name}: {passed}/{total}");
    for (entry, ids) in ids {
        let LeftOut { extent, why, .. } = &LEFT_OUT[entry];
        println!("  {} {}: {why}: {}", ids.len(), extent.word(), ids.join(" "));
    }
}

/// Runs a case; false where it is left out.
fn judge(table: &Table, shared: &Value, case: &Value, entry: Option<&LeftOut>) -> Result<bool, String> {
    let left_out = entry.is_some();
    let understood = match table.case {
        None if left_out => return Ok(false),
        None => return Err("not understood: no case of this file is run yet".into()),
        Some(case_of) => case_of(shared, case)?,
    };
    if left_out {
        return Ok(false);
    }
    let run = || catch_unwind(AssertUnwindSafe(understood));
    run().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("(no text)")))
    })?;
    Ok(true)
}

/// Fields for all cases of a file, and the cases.
pub(crate) fn shared_and_cases(text: &str) -> Result<(Value, Vec<Value>), String> {
    read(text).map(|file| (Value::Object(file.shared), file.cases))
}

fn read(text: &str) -> Result<File, String> {
    let file: File = decoded(&serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?)?;
    if file.count != file.cases.len() {
        return Err(format!("it says {} cases and has {}", file.count, file.cases.len()));
    }
    let mut seen = BTreeSet::new();
    for case in &file.cases {
        let id = case["id"].as_str().filter(|id| !id.is_empty()).ok_or("not understood: a case without an id")?;
        if !seen.insert(id) {
            return Err(format!("not understood: two cases of the id {id}"));
        }
    }
    Ok(file)
}

/// The value as this type says it is, every field known.
pub(crate) fn decoded<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("not understood: {error}"))
}

/// Only these keys, where it is a map.
pub(crate) fn only_keys(what: &str, value: &Value, known: &[&str]) -> Outcome {
    let unknown = value.as_object().and_then(|map| map.keys().find(|key| !known.contains(&&***key)));
    unknown.map_or(Ok(()), |key| Err(format!("not understood: unknown field `{key}` of {what}")))
}

/// The same, or what differs.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, upstream: T) -> Outcome {
    if ours == upstream { Ok(()) } else { Err(format!("{what}: ours {ours:?}, upstream {upstream:?}")) }
}
