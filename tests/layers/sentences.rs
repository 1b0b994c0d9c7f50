//! Sentences of comments name their subject: none begins with What, Who or the like, but for a question.

use std::path::Path;

use super::{File, rust_files};

/// Words that begin no sentence.
const BANNED: [&str; 7] = ["What", "Whatever", "Who", "Whoever", "Whose", "Those", "Nobody"];

#[test]
fn no_sentence_begins_with_what_or_who() {
    let files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found: Vec<_> = files.iter().flat_map(offences).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn made_up_sentences_are_found() {
    let found = |text: &str| offences(&("a/x.rs".to_owned(), text.to_owned())).join(", ");
    assert_eq!(found("/// What it holds.\nstruct X;"), "a/x.rs:1: What");
    assert_eq!(found("struct X {\n    /// (Those of\n    /// a list.)\n    x: u8,\n}"), "a/x.rs:2: Those");
    assert_eq!(found("//! A noun of two\n//! lines. Whoever asks\n//! waits.\n"), "a/x.rs:2: Whoever");
    assert_eq!(found("// Who asks? Nobody\n// does.\n"), "a/x.rs:1: Nobody");
    assert_eq!(found("/// A noun\n// Whose it is\nlet x = 1;"), "a/x.rs:2: Whose");
    assert_eq!(found("/// # Errors\n/// Whatever is unusable.\n"), "a/x.rs:2: Whatever");
    assert_eq!(found("/// Kinds:\n/// - What is first\n/// - A second, why?\n"), "a/x.rs:2: What");
    assert_eq!(found("/// Whose is this\n/// token?\nToken,"), "", "a question");
    assert_eq!(found("/// The noun\n/// What, and `What`. `Who` is a type.\n"), "", "no beginning of a sentence");
    assert_eq!(found("What::Data => \"Who asks.\","), "", "no comment");
}

/// Beginnings of such sentences, with file and line.
fn offences((path, text): &File) -> Vec<String> {
    let mut found = Vec::new();
    let (mut block, mut begins, mut open) = ("", true, None);
    for (index, line) in text.lines().enumerate() {
        let (marker, words) = comment(line);
        if marker != block || words.is_empty() {
            found.extend(open.take());
            (block, begins) = (marker, true);
        }
        for word in words.split_whitespace() {
            if matches!(word, "-" | "|") {
                found.extend(open.take());
                begins = true;
                continue;
            }
            let bare = word.trim_start_matches(['(', '"', '*']).trim_end_matches([',', ':']);
            if begins && BANNED.contains(&bare) {
                open = Some((index + 1, bare));
            }
            let word = word.trim_end_matches([')', '"', '*', '`']);
            begins = word.ends_with(['.', '?', '!']);
            if begins {
                found.extend(open.take().filter(|_| !word.ends_with('?')));
            }
        }
    }
    found.extend(open);
    found.into_iter().map(|(line, word)| format!("{path}:{line}: {word}")).collect()
}

/// Marker and text of a line that is a comment. A heading has no text.
fn comment(line: &str) -> (&'static str, &str) {
    let line = line.trim_start();
    let mut markers = ["///", "//!", "//"].into_iter();
    let found = markers.find_map(|marker| Some((marker, line.strip_prefix(marker)?.trim_start())));
    let (marker, text) = found.unwrap_or_default();
    (marker, if text.starts_with("# ") { "" } else { text })
}
