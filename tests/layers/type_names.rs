//! One type name, one meaning: a type that is seen outside its folder has a name that no other such type has.

use std::{collections::BTreeMap, path::Path};

use super::{File, sources, without_comments_and_tests};

/// Folder whose types have the names of what they become, as they are the same in a document.
const DOCUMENTS: &str = "schema/";

const VISIBLE: [&str; 2] = ["pub ", "pub(crate) "];
const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

#[test]
fn each_visible_type_has_a_name_of_its_own() {
    let files = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let shared = shared_names(&files);
    assert!(shared.is_empty(), "\n{}", shared.join("\n"));
}

#[test]
fn made_up_namesakes_are_found() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<File> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        shared_names(&files)
    };
    let a = ("a/x.rs", "pub struct Node<'a> {\n    pub x: u8,\n}\n");
    assert_eq!(found(&[a, ("b/y.rs", "pub(crate) enum Node {}")]), ["Node: a/x.rs, b/y.rs"]);
    assert_eq!(found(&[a, ("b/y.rs", "pub type Node = u8;")]), ["Node: a/x.rs, b/y.rs"]);
    assert_eq!(found(&[a, ("b/y.rs", "pub(super) struct Node;\nstruct Node2;\npub struct Nodes;")]), [""; 0]);
    assert_eq!(found(&[a, ("b/y.rs", "impl T for U {\n    type Node = u8;\n}\n// pub struct Node;")]), [""; 0]);
    assert_eq!(found(&[a, ("schema/y.rs", "pub struct Node;"), ("wire/pb/z.rs", "pub struct Node {}")]), [""; 0]);
}

/// Names of several types, each with the files that define one.
fn shared_names(files: &[File]) -> Vec<String> {
    let mut names: BTreeMap<(String, bool), Vec<&str>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.contains("/pb/")) {
        for name in without_comments_and_tests(text).lines().filter_map(visible_type) {
            names.entry((name, path.starts_with(DOCUMENTS))).or_default().push(path);
        }
    }
    let mut shared: Vec<_> = names.into_iter().filter(|(_, paths)| paths.len() > 1).collect();
    shared.iter_mut().for_each(|(_, paths)| paths.sort_unstable());
    shared.into_iter().map(|((name, _), paths)| format!("{name}: {}", paths.join(", "))).collect()
}

/// Name of the type that this line defines, where it is seen outside its folder.
fn visible_type(line: &str) -> Option<String> {
    let item = VISIBLE.iter().find_map(|visible| line.strip_prefix(visible))?;
    let named = KINDS.iter().find_map(|kind| item.strip_prefix(kind))?;
    Some(super::word(named))
}
