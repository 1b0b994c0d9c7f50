//! Links between the documents: each leads to a file that is there, and to a heading that it has; and
//! `docs/README.md` lists every chapter.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders that are not ours to read: what is built, and what is generated.
const PASSED_BY: [&str; 6] = [".git", "target", "gen", "node_modules", ".venv", "proptest-regressions"];

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut pages = Vec::new();
    pages_below(Path::new("."), &mut pages);
    assert!(pages.len() > 40, "only {} pages: is this the right folder?", pages.len());
    let broken: Vec<_> = pages.iter().flat_map(|page| broken(page)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_chapter_is_listed() {
    let listed = links(&fs::read_to_string("docs/README.md").expect("text"));
    let files = fs::read_dir("docs").expect("docs").map(|file| file.expect("readable").file_name());
    let chapters = files.map(|name| name.into_string().expect("a name")).filter(|name| name.ends_with(".md"));
    let unlisted: Vec<_> = chapters.filter(|name| name != "README.md" && !listed.contains(name)).collect();
    assert!(unlisted.is_empty(), "docs/README.md does not list {unlisted:?}");
}

#[test]
fn links_and_headings_are_read_as_on_the_web() {
    assert_eq!(links("[a\nb](x.md#y), `[c](d)` and\n```\n[e](f)\n```\n![g](h.svg)"), ["x.md#y", "h.svg"]);
    assert_eq!(slug("When `serve` can't: a/b, c_d?"), "when-serve-cant-ab-c_d");
    assert_eq!(headings("# A b\n```\n# no\n```\n## A b\n"), ["a-b", "a-b-1"]);
}

fn pages_below(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let entry = entry.expect("readable");
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() && !PASSED_BY.iter().any(|passed| name == *passed) {
            pages_below(&path, pages);
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Links of a page that lead nowhere.
fn broken(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("text");
    let folder = page.parent().expect("a folder");
    let leads = |link: &String| {
        let (file, heading) = link.split_once('#').map_or((&**link, None), |(file, heading)| (file, Some(heading)));
        let target = if file.is_empty() { page.to_owned() } else { folder.join(file) };
        let Some(heading) = heading else { return target.exists() };
        fs::read_to_string(target).is_ok_and(|text| headings(&text).iter().any(|known| known == heading))
    };
    let own = links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    own.filter(|link| !leads(link)).map(|link| format!("{}: {link}", page.display())).collect()
}

/// Targets of a page's links, without those in code.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text).collect::<Vec<_>>().join("\n");
    let outside_code = prose.split('`').step_by(2).collect::<Vec<_>>().join("");
    outside_code.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned()).collect()
}

/// Anchors of a page's headings, in order; a second one of the same text has a number.
fn headings(text: &str) -> Vec<String> {
    let mut anchors = Vec::<String>::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let slug = slug(line.trim_start_matches('#').trim());
        let numbered = |number: usize| if number == 0 { slug.clone() } else { format!("{slug}-{number}") };
        let anchor = (0..).map(numbered).find(|anchor| !anchors.contains(anchor)).expect("one is free");
        anchors.push(anchor);
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block
    })
}
