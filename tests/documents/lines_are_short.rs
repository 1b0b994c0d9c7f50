//! Lines of prose of our documents: 100 characters at most. Tables, code and lines of one word, such as a link, may be longer.

use std::fs;

const MOST: usize = 100;
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "loadtest/README.md"];

#[test]
fn no_line_of_prose_is_long() {
    let chapters = ["docs", "tests/e2e"].into_iter().flat_map(|folder| fs::read_dir(folder).expect("readable"));
    let chapters = chapters.map(|file| file.expect("readable").path().to_str().expect("UTF-8").to_owned());
    let pages = chapters.filter(|path| path.ends_with(".md")).chain(PAGES.map(str::to_owned));
    let of_page = |path: String| {
        let text = fs::read_to_string(&path).expect("text");
        long(&text).into_iter().map(move |line| format!("{path}:{line}")).collect::<Vec<_>>()
    };
    let found: Vec<_> = pages.flat_map(of_page).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn long_lines_are_found() {
    let long_line = "é x ".repeat(26);
    let word = "x".repeat(101);
    let table = format!("| {long_line}");
    let text = format!("a\n{long_line}\n```\n{long_line}\n```\n{table}\n- [{word}]\n{}", "é".repeat(100));
    assert_eq!(long(&text), [2]);
}

/// Numbers of the lines that are too long.
fn long(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut is_long = |line: &str| {
        is_code ^= line.trim_start().starts_with("```");
        let is_prose = !is_code && !line.starts_with('|') && line.trim_start_matches(['-', ' ']).contains(' ');
        is_prose && line.trim_end().chars().count() > MOST
    };
    text.lines().enumerate().filter(|(_, line)| is_long(line)).map(|(number, _)| number + 1).collect()
}
