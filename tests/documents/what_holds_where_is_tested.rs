//! `docs/what-holds-where.md` and the tables of `tests/vectors/initializers/README.md` name tests that are there: a
//! function in Rust, a file of vectors, a case of a script in `tests/e2e`.

use std::{collections::BTreeSet, fs, path::Path};

const CHAPTER: &str = "docs/what-holds-where.md";
const VECTORS: &str = "tests/vectors/initializers";

#[test]
fn each_cell_of_the_matrix_names_tests_that_are_there() {
    let tests = Tests::read();
    let rows = rows(&fs::read_to_string(CHAPTER).expect("the chapter"));
    assert!(rows.len() > 25, "only {} rows are found", rows.len());
    let mut problems = Vec::new();
    for row in &rows {
        if row.len() != 5 {
            problems.push(format!("{} cells: {row:?}", row.len()));
        }
        for cell in &row[1..] {
            let cited = cited(cell);
            if cited.is_empty() {
                problems.push(format!("{}: no test: {cell}", row[0]));
            }
            problems.extend(cited.into_iter().filter(|name| !tests.has(name)).map(|name| format!("no test: {name}")));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn each_requirement_of_initializers_is_in_the_matrix() {
    let rows = rows(&fs::read_to_string(CHAPTER).expect("the chapter"));
    let known: BTreeSet<u32> = rows.iter().flat_map(|row| requirements(&row[0])).collect();
    let missing: Vec<_> = (14..=21).chain(32..=68).filter(|number| !known.contains(number)).collect();
    assert!(missing.is_empty(), "{CHAPTER} says nothing of {missing:?}");
}

#[test]
fn tables_of_the_vectors_name_existing_tests() {
    let tests = Tests::read();
    let page = fs::read_to_string(format!("{VECTORS}/README.md")).expect("the page");
    let rows = rows(&page);
    let (files, cases): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.len() == 3);
    let mut listed: Vec<_> = files.iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    listed.sort();
    let mut there: Vec<_> = (fs::read_dir(VECTORS).expect("the folder"))
        .map(|file| file.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("text");
            let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            (path.file_name().expect("a name").to_string_lossy().into_owned(), file["count"].to_string())
        })
        .collect();
    there.sort();
    assert_eq!(listed, there, "files, and the number of cases in each");
    for row in cases {
        let cited = cited(&row[1]);
        assert!(!cited.is_empty(), "{row:?}");
        let unknown: Vec<_> = cited.iter().filter(|name| !tests.has(name)).collect();
        assert!(unknown.is_empty(), "no such file or test: {unknown:?}");
    }
}

#[test]
fn names_are_resolved_and_others_are_not() {
    let tests = Tests::read();
    for name in [
        "each_acts_in_order_between_mutating_and_validating_hooks",
        "step_patch_applies_once_and_is_an_allowed_update",
        "conformance initializers/create",
        "create.json",
        "label.sh: the owner completes it",
    ] {
        assert!(tests.has(name), "{name}");
    }
    // A helper, a part of a name, a file that is not there, and cases that are others' or nobody's.
    for name in [
        "names_are_resolved",
        "pages_below",
        "conformance initializers/none",
        "none.json",
        "label.sh: owner completes it",
        "stored.sh: the owner completes it",
        "none.sh: the owner completes it",
    ] {
        assert!(!tests.has(name), "{name}");
    }
    let [row] = &*rows("| a | b |\n| --- | --- |\n| x (S3, S5–S7) | `y`, *z*, `s.sh: t` |\n") else {
        panic!("one row")
    };
    assert_eq!(requirements(&row[0]), [3, 5, 6, 7]);
    assert_eq!(cited(&row[1]), ["y", "s.sh: t"]);
}

/// Sources in which tests stand, and the scripts.
struct Tests {
    rust: BTreeSet<String>,
}

impl Tests {
    fn read() -> Self {
        let mut rust = BTreeSet::new();
        for folder in ["src", "crates", "tests", "examples"] {
            functions_below(Path::new(folder), &mut rust);
        }
        Self { rust }
    }

    fn has(&self, name: &str) -> bool {
        if let Some(file) = name.strip_prefix("conformance ") {
            return Path::new("tests/vectors").join(file).with_extension("json").is_file();
        }
        if name.ends_with(".json") {
            return Path::new(VECTORS).join(name).is_file();
        }
        let Some((script, case)) = name.split_once(": ") else { return self.rust.contains(name) };
        let text = fs::read_to_string(Path::new("tests/e2e").join(script)).unwrap_or_default();
        let assertion = |line: &str| {
            let verbs = ["check", "allows", "prints", "refuses", "eventually"];
            let line = line.trim_start();
            verbs.iter().any(|verb| line.starts_with(&format!("{verb} \""))) && line.contains(&format!(": {case}\""))
        };
        text.lines().any(assertion)
    }
}

/// Functions that are tests: below the attribute, or properties.
fn functions_below(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            functions_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let (mut is_test, mut is_property) = (false, false);
            for line in text.lines() {
                let line = line.trim();
                is_property |= line.starts_with("proptest! {");
                let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
                if let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) {
                    if is_test || is_property {
                        names.insert(name.to_owned());
                    }
                    is_test = false;
                } else if line.starts_with("#[") {
                    is_test |= ["#[test]", "#[tokio::test"].iter().any(|attribute| line.starts_with(attribute));
                }
            }
        }
    }
}

/// Rows of all tables, without their heads.
fn rows(page: &str) -> Vec<Vec<String>> {
    let lines: Vec<_> = page.lines().collect();
    let is_row = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("| "));
    let is_rule = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("| ---"));
    let body = (0..lines.len()).filter(|&at| is_row(at) && !is_rule(at) && !is_rule(at + 1));
    body.map(|at| lines[at].trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Names between backticks.
fn cited(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Numbers of requirements in the brackets of a row.
fn requirements(cell: &str) -> Vec<u32> {
    let Some((_, list)) = cell.rsplit_once('(') else { return Vec::new() };
    let number = |text: &str| text.trim_matches([' ', ')']).strip_prefix('S').and_then(|digits| digits.parse().ok());
    let range = |part: &str| {
        let (first, last) = part.split_once('–').unwrap_or((part, part));
        Some(number(first)?..=number(last)?)
    };
    list.split(',').filter_map(range).flatten().collect()
}
