//! Documents of tests and fixtures: YAML or JSON, read strictly, with a problem for every mistake.

use std::{
    cell::RefCell,
    fs, io,
    path::{Path, PathBuf},
};

use gatepost_config::{Problem, nearest_words};
use serde_json::Value;

/// Consequence of content that cannot be read.
const UNREAD: &str = "so nothing in it is known";

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Adds a problem.
    pub(super) fn add(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Returns the number of problems.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns all problems.
    pub(super) fn into_vec(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// Returns a problem of a whole file.
pub(super) fn file_problem(file: &str, what: impl Into<String>, why: &str, fix: impl Into<String>) -> Problem {
    Problem { file: file.to_owned(), path: String::new(), what: what.into(), why: why.to_owned(), fix: fix.into() }
}

/// One value of a document, with its place.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) value: &'a Value,
    file: &'a str,
    path: String,
    problems: &'a Problems,
}

impl<'a> Field<'a> {
    /// Creates the field of a whole document. `index` is its number if the file has several.
    pub(super) fn document(value: &'a Value, file: &'a str, index: Option<usize>, problems: &'a Problems) -> Self {
        let path = index.map_or_else(String::new, |index| format!("[{index}]"));
        Self { value, file, path, problems }
    }

    /// Adds a problem of this value.
    pub(super) fn problem(&self, what: impl Into<String>, why: &str, fix: impl Into<String>) {
        let (what, why, fix) = (what.into(), why.to_owned(), fix.into());
        self.problems.add(Problem { file: self.file.to_owned(), path: self.path.clone(), what, why, fix });
    }

    /// Adds a problem of a text that was made from this value. Its path begins at this value.
    pub(super) fn problem_at(&self, problem: Problem) {
        let dot = if self.path.is_empty() || problem.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{}", self.path, problem.path);
        self.problems.add(Problem { file: self.file.to_owned(), path, ..problem });
    }

    /// Returns the number of problems of all documents so far.
    pub(super) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    fn below(&self, key: &str, value: &'a Value) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { value, path, ..*self }
    }

    /// Returns the value under a key; `None` if it is absent or null.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        self.value.get(key).filter(|value| !value.is_null()).map(|value| self.below(key, value))
    }

    /// Returns the value under a key, which must be there.
    pub(super) fn required(&self, key: &str, why: &str, fix: &str) -> Option<Self> {
        let field = self.get(key);
        if field.is_none() {
            self.below(key, &Value::Null).problem("is missing", why, fix);
        }
        field
    }

    /// Checks that this is a map without other keys.
    pub(super) fn is_map_of(&self, keys: &[&str]) -> bool {
        let Some(map) = self.value.as_object() else {
            self.problem("is not a map", "which its keys need", format!("write a map of {}", keys.join(", ")));
            return false;
        };
        let before = self.problems.len();
        for (key, value) in map.iter().filter(|(key, _)| !keys.contains(&key.as_str())) {
            let fix = match nearest_words(key, keys).first() {
                Some(near) => format!("write {near}"),
                None => format!("remove it; known are {}", keys.join(", ")),
            };
            self.below(key, value).problem("is not a known key", "so it would have no effect", fix);
        }
        self.problems.len() == before
    }

    /// Returns the text. Reports any other value.
    pub(super) fn text(&self) -> Option<&'a str> {
        if !self.value.is_string() {
            self.problem(
                "is not a text",
                "which is what it has to be",
                "write a text, in quotes if it looks like a number",
            );
        }
        self.value.as_str()
    }

    /// Returns the bool. Reports any other value.
    pub(super) fn bool(&self) -> Option<bool> {
        if !self.value.is_boolean() {
            self.problem("is neither true nor false", "which is what it has to be", "write true or false");
        }
        self.value.as_bool()
    }

    /// Returns the items of a list. Reports any other value.
    pub(super) fn items(&self) -> Vec<Self> {
        let Some(items) = self.value.as_array() else {
            self.problem("is not a list", "which is what it has to be", "write a list: [a, b]");
            return Vec::new();
        };
        let item = |(index, value)| Self { value, path: format!("{}[{index}]", self.path), ..*self };
        items.iter().enumerate().map(item).collect()
    }

    /// Returns the texts of a list.
    pub(super) fn texts(&self) -> Vec<String> {
        self.items().iter().filter_map(|item| item.text().map(str::to_owned)).collect()
    }

    /// Returns the values of a map of texts.
    pub(super) fn pairs(&self) -> Vec<(String, Self)> {
        let Some(map) = self.value.as_object() else {
            self.problem("is not a map", "which is what it has to be", "write a map: {key: value}");
            return Vec::new();
        };
        map.iter().map(|(key, value)| (key.clone(), self.below(key, value))).collect()
    }
}

/// Reads a file as text.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub(super) fn read_text(path: &Path) -> Result<String, Problem> {
    fs::read_to_string(path).map_err(|error| {
        let file = path.display().to_string();
        file_problem(&file, format!("cannot be read: {error}"), UNREAD, "correct the path, or the permissions")
    })
}

/// Returns the YAML and JSON files of a folder by name; with `deep`, also those of the folders in it. Names that begin
/// with a dot are left out, except for the folder of Kyverno's tests.
pub(super) fn files_below(folder: &Path, deep: bool, problems: &Problems) -> Vec<PathBuf> {
    let unread = |error: io::Error| {
        let file = folder.display().to_string();
        let fix = "correct the path, or the permissions";
        problems.add(file_problem(&file, format!("cannot be read: {error}"), "so its tests are not run", fix));
    };
    let entries = match fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            unread(error);
            return Vec::new();
        }
    };
    let mut entries: Vec<_> = entries.into_iter().map(|entry| (entry.path(), entry.file_type())).collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut files = Vec::new();
    for (path, kind) in entries {
        let is_hidden =
            path.file_name().is_some_and(|name| name != ".kyverno-test" && name.to_string_lossy().starts_with('.'));
        let is_document =
            path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known));
        // A link to a folder may lead back.
        match kind.is_ok_and(|kind| kind.is_dir()) {
            _ if is_hidden => {}
            true if deep => files.extend(files_below(&path, true, problems)),
            true => {}
            false if is_document => files.push(path),
            false => {}
        }
    }
    files
}

/// Returns the documents of a file. JSON is read from names that end in `.json`, YAML from any other.
///
/// # Errors
/// The text is neither YAML nor JSON.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<Value>, Problem> {
    let unreadable = |place: Option<(u64, u64)>, form: &str, what: &str| {
        let path = place.map_or_else(String::new, |(line, column)| format!("line {line}, column {column}"));
        let line = what.lines().next().unwrap_or_default();
        let end = line.find(" at line ").or_else(|| line.find(" (line ")).unwrap_or(line.len());
        let what = format!("cannot be read as {form}: {}", &line[..end]);
        Problem { file: file.to_owned(), path, what, why: UNREAD.to_owned(), fix: format!("correct the {form}") }
    };
    if file.to_ascii_lowercase().ends_with(".json") {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>().collect::<Result<Vec<_>, _>>();
        return documents.map_err(|error| {
            unreadable(Some((error.line() as u64, error.column() as u64)), "JSON", &error.to_string())
        });
    }
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| unreadable(error.location().map(|at| (at.line(), at.column())), "YAML", &error.to_string()))
}

/// Returns true if a document is a policy or a binding, or a list of them.
pub(super) fn is_policy(document: &Value) -> bool {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version, kind) == ("v1", "List") {
        return document["items"].as_array().is_some_and(|items| !items.is_empty() && items.iter().all(is_policy));
    }
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    let kind = kind.strip_suffix("Binding").unwrap_or(kind);
    api_version.starts_with("admissionregistration.k8s.io/")
        && matches!(kind, "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy")
}

/// Returns true if a document is one of those by which policies decide: also the definition of a custom resource.
fn is_configuration(document: &Value) -> bool {
    is_policy(document)
        || document["kind"] == "CustomResourceDefinition" && document["apiVersion"] == "apiextensions.k8s.io/v1"
}

/// Returns the text with its policies, bindings and definitions of custom resources only; `None` if there is none. The
/// lines of other documents become blank, so that the places of problems are those of the file.
///
/// # Errors
/// The text is neither YAML nor JSON.
pub(super) fn only_policies(file: &str, text: &str) -> Result<Option<String>, Problem> {
    let all = documents(file, text)?;
    if !all.iter().any(is_configuration) {
        return Ok(None);
    }
    if all.iter().all(is_configuration) || file.to_ascii_lowercase().ends_with(".json") {
        return Ok(Some(text.to_owned()));
    }
    let mut kept = String::with_capacity(text.len());
    let mut chunk = Vec::new();
    let mut finish = |chunk: &mut Vec<&str>| {
        let is_kept = documents(file, &chunk.concat()).is_ok_and(|all| all.iter().any(is_configuration));
        for line in chunk.drain(..) {
            kept.push_str(if is_kept || is_marker(line) { line } else { "\n" });
        }
    };
    for line in text.split_inclusive('\n') {
        if is_marker(line) {
            finish(&mut chunk);
        }
        chunk.push(line);
    }
    finish(&mut chunk);
    Ok(Some(kept))
}

/// Returns true if a line begins a YAML document.
fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_keep_their_lines() {
        let policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n";
        let text = format!("kind: Pod\nspec: {{}}\n---\n{policy}--- # a test\nkind: PolicyTest\n");
        assert_eq!(only_policies("a.yaml", &text), Ok(Some(format!("\n\n---\n{policy}--- # a test\n\n"))));
        assert_eq!(only_policies("a.yaml", policy), Ok(Some(policy.to_owned())));
        assert_eq!(only_policies("a.yaml", "kind: Pod\n"), Ok(None));
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n";
        assert_eq!(only_policies("a.yaml", definition), Ok(Some(definition.to_owned())));
        assert_eq!(only_policies("a.yaml", "a: [\n").unwrap_err().file, "a.yaml");
    }

    #[test]
    fn unknown_keys_are_problems_with_the_word_that_was_meant() {
        let (value, problems) = (serde_json::json!({"expcet": "Deny", "x": [1]}), Problems::default());
        let field = Field::document(&value, "a.yaml", Some(1), &problems);
        assert!(!field.is_map_of(&["expect", "message"]));
        assert_eq!(field.get("x").unwrap().texts(), [""; 0]);
        let shown: Vec<_> = problems.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 3);
        assert!(
            shown[0].starts_with("a.yaml: [1].expcet: is not a known key, ") && shown[0].ends_with("; write expect")
        );
        assert!(shown[2].starts_with("a.yaml: [1].x[0]: is not a text"), "{shown:?}");
    }
}
