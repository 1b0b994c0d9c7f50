//! CONTRIBUTING.md agrees with `src/`: its table has the layers, and its ten answers name files that are there.

use std::{collections::BTreeSet, fs, path::Path};

use super::LAYERS;

/// Most files of one answer.
const MOST_FILES: usize = 4;

fn section(title: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CONTRIBUTING.md");
    let text = fs::read_to_string(path).unwrap_or_default();
    let (_, section) = text.split_once(&format!("## {title}\n")).unwrap_or_default();
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

#[test]
fn the_tables_have_the_crates_and_the_layers_in_their_order() {
    let layout = section("Layout");
    let rows = layout.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let (crates, rows): (Vec<_>, Vec<_>) = rows.partition(|row| row.starts_with("gatepost-"));
    let layers = LAYERS.iter().copied().flatten().copied().filter(|layer| !layer.contains('.'));
    assert_eq!(rows, layers.collect::<Vec<_>>());
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap();
    let folders = folders.map(|folder| format!("gatepost-{}", folder.unwrap().file_name().display()));
    assert_eq!(crates.into_iter().map(String::from).collect::<BTreeSet<_>>(), folders.collect::<BTreeSet<_>>());
}

#[test]
fn each_question_is_answered_by_few_files_that_are_there() {
    let section = section("Ten questions a stranger asks");
    let answers: Vec<_> = section.split("?** ").skip(1).collect();
    assert_eq!(answers.len(), 10);
    for answer in answers {
        let (needed, all) = files(answer);
        assert!((1..=MOST_FILES).contains(&needed), "{needed} files: {answer}");
        for file in all {
            let folder = if file.starts_with("crates/") { "" } else { "src" };
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(&file);
            assert!(path.is_file(), "{file} is not there: {answer}");
        }
    }
}

#[test]
fn files_are_found_in_an_answer() {
    let (needed, all) = files("`a/b.rs` (or `c.rs`) has `timeout` and `d/e.rs` `is_late`; prints `docs/metrics.md`");
    assert_eq!((needed, all), (2, ["a/b.rs", "a/c.rs", "d/e.rs"].map(String::from).to_vec()));
}

/// Number of files that are to be opened, and all that are named: a bare name is one beside the file before it, and what
/// stands in brackets need not be read.
fn files(answer: &str) -> (usize, Vec<String>) {
    let (mut needed, mut all, mut folder, mut depth) = (0, Vec::new(), String::new(), 0_usize);
    for (number, part) in answer.split('`').enumerate() {
        if number % 2 == 0 {
            depth = (depth + part.matches('(').count()).saturating_sub(part.matches(')').count());
        } else if part.ends_with(".rs") {
            match part.rsplit_once('/') {
                Some((before, _)) => {
                    before.clone_into(&mut folder);
                    all.push(part.to_owned());
                }
                None => all.push(format!("{folder}/{part}")),
            }
            needed += usize::from(depth == 0);
        }
    }
    (needed, all)
}
