//! Strict: a case that says what is not known here is not understood, whatever else it says.

use serde_json::{Value, json};

use super::{all, folder::Folder, run::shared_and_cases};

/// No upstream table has it.
const UNHEARD_OF: &str = "unheard_of";

/// Every table that takes a field nobody knows, of a case or of what the file says for all.
pub(crate) fn lenient(folder: &Folder) -> Vec<String> {
    let mut found = Vec::new();
    for table in all() {
        let (Some(case_of), Ok(text)) = (table.case, folder.read(table.file)) else { continue };
        let Ok((shared, cases)) = shared_and_cases(&text) else { continue };
        let takes = |shared: &Value, case: &Value| case_of(shared, case).is_ok();
        for case in &cases {
            let id = &case["id"];
            if takes(&with(&shared), case) {
                found.push(format!("strict: {}: {id} is understood in a file with an unknown field", table.file));
            }
            if takes(&shared, &with(case)) {
                found.push(format!("strict: {}: {id} is understood with an unknown field", table.file));
            }
        }
    }
    found
}

fn with(map: &Value) -> Value {
    let mut map = map.clone();
    map[UNHEARD_OF] = json!(true);
    map
}
