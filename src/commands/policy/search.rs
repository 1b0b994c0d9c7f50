//! Search: finds the suites in folders and files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use gatepost_config::Problem;

use super::{
    document::{Field, Problems, documents, file_problem, files_below, read_text},
    gator::{self, is_gator_suite},
    kyverno::{self, is_kyverno_test},
    suite::{API_VERSION, KIND, Suite, suite},
};

/// Returns the suites below these paths, in the order of their files, and the problems of those that cannot be run.
pub(super) fn find(paths: &[PathBuf]) -> (Vec<Suite>, Vec<Problem>) {
    let (mut suites, problems) = (Vec::new(), Problems::default());
    let mut seen = BTreeSet::new();
    for path in paths {
        let files = match path.is_dir() {
            true => files_below(path, true, &problems),
            false => vec![path.clone()],
        };
        for file in files.into_iter().filter(|file| seen.insert(file.clone())) {
            let is_named = file == *path;
            suites.extend(suites_of(&file, is_named, &problems));
        }
    }
    if suites.is_empty() && problems.len() == 0 {
        for path in paths {
            let fix = "write one as `gatepost policy test --help` shows, or begin with `gatepost policy new`";
            let file = path.display().to_string();
            problems.add(file_problem(&file, format!("has no {KIND}"), "so nothing is tested", fix));
        }
    }
    // Several suites may have one faulty policy.
    let mut unique: Vec<Problem> = Vec::new();
    problems.into_vec().into_iter().for_each(|problem| {
        if !unique.contains(&problem) {
            unique.push(problem);
        }
    });
    (suites, unique)
}

/// Returns the suites of a file. Only a file that was named must have some.
fn suites_of(path: &Path, is_named: bool, problems: &Problems) -> Vec<Suite> {
    let file = path.strip_prefix(".").unwrap_or(path).display().to_string();
    let text = match read_text(path) {
        Ok(text) => text,
        Err(problem) => {
            problems.add(problem);
            return Vec::new();
        }
    };
    let is_candidate = is_kyverno_file(path)
        || text.contains("test.gatekeeper.sh/")
        || text.lines().any(|line| line.contains("kind") && line.contains(KIND));
    if !is_candidate && !is_named {
        return Vec::new();
    }
    let all = match documents(&file, &text) {
        Ok(all) => all,
        Err(problem) => {
            problems.add(problem);
            return Vec::new();
        }
    };
    let has_several = all.len() > 1;
    let (mut suites, mut has_tests) = (Vec::new(), false);
    for (index, document) in all.iter().enumerate() {
        let field = Field::document(document, &file, has_several.then_some(index), problems);
        if document["kind"] == KIND {
            has_tests = true;
            suites.extend(suite(&field, path, &file, problems));
        } else if is_kyverno_test(document) {
            has_tests = true;
            suites.extend(kyverno::suites(&field, path, &file, problems));
        } else if is_gator_suite(document) {
            has_tests = true;
            suites.extend(gator::suites(&field, path, &file, problems));
        }
    }
    if !has_tests && is_named {
        let fix = format!("name a folder with tests, or write apiVersion: {API_VERSION} and kind: {KIND}");
        problems.add(file_problem(&file, format!("has no {KIND}"), "so it tests nothing", fix));
    }
    suites
}

/// Returns true if `kyverno test` would read a file.
fn is_kyverno_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "kyverno-test")
}
