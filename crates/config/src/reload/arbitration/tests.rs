//! Mixtures of newest and last good states.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{HeldBackDocument, LastGoodDocuments, LoadCache, LoadResult, NO_PAUSE, SourceFile};

/// A file with these hooks, at fault or not.
fn file(name: &str, hooks: &[&str], sound: bool) -> SourceFile {
    let mut text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
         externalAdmissionHooks: {}\n",
        if hooks.is_empty() { "[]" } else { "" }
    );
    for hook in hooks {
        text += &format!("- {{name: {hook}.x.io, rules: [], clientConfig: {{url: 'grpc://127.0.0.1:1'}}}}\n");
    }
    if !sound {
        text += "colour: red\n";
    }
    SourceFile { name: format!("{name}.yaml"), bytes: text.into() }
}

fn unreadable(name: &str) -> SourceFile {
    SourceFile { name: format!("{name}.yaml"), bytes: "]".into() }
}

fn in_force(files: &[SourceFile]) -> LastGoodDocuments {
    LoadCache::default().load_whole(files, &no_file, NO_PAUSE).unwrap().kept
}

fn no_file(_: &str) -> std::io::Result<Vec<u8>> {
    Err(std::io::ErrorKind::NotFound.into())
}

fn load(files: &[SourceFile], kept: &LastGoodDocuments) -> LoadResult {
    LoadCache::default().load_around(files, &no_file, (kept, &BTreeMap::new()), NO_PAUSE).unwrap()
}

fn hooks(loaded: &LoadResult) -> Vec<String> {
    let mut hooks: Vec<_> = loaded.snapshot.hooks.iter().map(|hook| hook.id.to_string()).collect();
    hooks.sort();
    hooks
}

/// Document held back: the file, and whether it keeps a state.
fn held(loaded: &LoadResult) -> Vec<(&str, bool)> {
    loaded.held.iter().map(|HeldBackDocument { file, keeps, .. }| (&**file, *keeps)).collect()
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| format!("{}.x.io/0", id)).collect()
}

#[test]
fn a_fault_in_one_document_keeps_its_last_good_state_and_stops_no_other() {
    let kept = in_force(&[file("a", &["one"], true), file("b", &["two"], true)]);
    let loaded =
        load(&[file("a", &["one", "more"], false), file("b", &["three"], true), file("c", &["x"], false)], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/one", "b/three"]));
    assert_eq!(held(&loaded), [("a.yaml", true), ("c.yaml", false)]);
    assert!(loaded.held[0].problems[0].to_string().contains("colour"), "{:?}", loaded.held);
}

#[test]
fn a_document_that_is_gone_is_gone_whatever_is_wrong_with_another() {
    let kept = in_force(&[file("a", &["one"], true), file("b", &["two"], true)]);
    let loaded = load(&[file("b", &["two", "more"], false)], &kept);
    assert_eq!((hooks(&loaded), held(&loaded)), (ids(&["b/two"]), vec![("b.yaml", true)]));
}

#[test]
fn a_hook_that_moves_to_a_document_at_fault_stays_where_it_was() {
    let kept = in_force(&[file("a", &["one", "two"], true), file("b", &[], true)]);
    let loaded = load(&[file("a", &["two"], true), file("b", &["one"], false)], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/one", "a/two"]));
    assert_eq!(held(&loaded), [("a.yaml", true), ("b.yaml", true)]);
    assert!(loaded.held[0].problems[0].what.contains("may have moved to b.yaml"), "{:?}", loaded.held);
    // The whole of a file, under another name.
    let loaded = load(&[file("b", &[], true), file("z", &["one", "two"], false)], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/one", "a/two"]));
    assert_eq!(held(&loaded), [("z.yaml", false), ("a.yaml", true)]);
}

#[test]
fn what_is_gone_stays_while_a_document_cannot_be_read_and_what_changes_goes_on() {
    let kept = in_force(&[file("a", &["one"], true), file("b", &["two"], true), file("c", &["three"], true)]);
    let loaded = load(&[file("b", &["two", "new"], true), unreadable("c")], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/one", "b/new", "b/two", "c/three"]));
    assert_eq!(held(&loaded), [("c.yaml", true), ("a.yaml", true)]);
}

#[test]
fn a_name_belongs_to_one_document() {
    let kept = in_force(&[file("a", &["one"], true), file("b", &["two"], true)]);
    // It moves to another, and the first is at fault: who has it keeps it.
    let loaded = load(&[file("a", &["x"], false), file("b", &["one", "two"], true)], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/one", "b/two"]));
    assert!(loaded.held[1].problems[0].what.contains("is in force from a.yaml"), "{:?}", loaded.held);
    // A newcomer takes nobody's name, whatever it is called.
    let loaded =
        load(&[file("0", &["two"], true), file("a", &["one"], true), file("b", &["two", "more"], true)], &kept);
    assert_eq!((hooks(&loaded), held(&loaded)), (ids(&["a/one", "b/more", "b/two"]), vec![("0.yaml", false)]));
    let loaded = load(&[file("0", &["two"], true), file("a", &["one", "new"], true), file("b", &["two"], true)], &kept);
    assert_eq!((hooks(&loaded), held(&loaded)), (ids(&["a/new", "a/one", "b/two"]), vec![("0.yaml", false)]));
}

#[test]
fn what_follows_is_followed_to_its_end() {
    let kept = in_force(&[file("a", &["a"], true), file("b", &["b"], true), file("c", &["c"], true)]);
    // Each takes the next one's name, and the last is at fault.
    let loaded = load(&[file("a", &["b"], true), file("b", &["c"], true), file("c", &["d"], false)], &kept);
    assert_eq!(hooks(&loaded), ids(&["a/a", "b/b", "c/c"]));
    assert_eq!(loaded.held.len(), 3);
    assert!(loaded.kept.is(&kept));
}

#[test]
fn a_start_without_any_state_leaves_out_what_is_at_fault() {
    let loaded =
        load(&[file("a", &["one"], true), file("b", &["one"], true), unreadable("c")], &LastGoodDocuments::default());
    assert_eq!(hooks(&loaded), ids(&["a/one"]));
    assert_eq!(held(&loaded), [("b.yaml", false), ("c.yaml", false)]);
}

/// One file of a configuration: its hooks, by number, and whether it is sound.
fn written() -> impl Strategy<Value = Vec<Option<(Vec<u8>, bool)>>> {
    let one =
        proptest::option::weighted(0.8, (proptest::collection::vec(0_u8..6, 0..4), proptest::bool::weighted(0.7)));
    proptest::collection::vec(one, 4)
}

fn files(written: &[Option<(Vec<u8>, bool)>], sound: bool) -> Vec<SourceFile> {
    let one = |(number, written): (usize, &Option<(Vec<u8>, bool)>)| {
        let (hooks, is_sound) = written.as_ref()?;
        let mut names: Vec<_> = hooks.iter().map(|hook| format!("h{hook}")).collect();
        names.sort();
        names.dedup();
        let names: Vec<_> = names.iter().map(|name| &**name).collect();
        Some(file(&format!("f{number}"), &names, sound || *is_sound))
    };
    written.iter().enumerate().filter_map(one).collect()
}

proptest! {
    #[test]
    fn every_mixture_is_consistent_and_loses_nothing_that_both_configurations_have(
        before in written(), after in written()
    ) {
        // Of the first configuration, whatever can be in force.
        let kept = load(&files(&before, true), &LastGoodDocuments::default()).kept;
        let files = files(&after, false);
        let loaded = load(&files, &kept);
        let names: Vec<_> = loaded.snapshot.hooks.iter().map(|hook| hook.name.to_string()).collect();
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        prop_assert_eq!(unique.len(), names.len(), "one document a name");
        for part in kept.parts() {
            for name in part.used().hooks.keys() {
                let written = files.iter().any(|file| String::from_utf8_lossy(&file.bytes).contains(&format!("name: {name},")));
                prop_assert!(!written || names.iter().any(|there| **there == **name), "{} is lost", name);
            }
        }
        // A document held back is in the state that is in force, or in none.
        for held in &loaded.held {
            let state = |kept: &LastGoodDocuments| kept.by_name().get(&*held.file).map(|part| part.file().bytes.clone());
            prop_assert_eq!(state(&loaded.kept), state(&kept));
            prop_assert_eq!(state(&kept).is_some(), held.keeps);
        }
        // Where nothing is wrong, nothing is held back.
        if let Ok(whole) = LoadCache::default().load_whole(&files, &no_file, NO_PAUSE) {
            prop_assert!(loaded.held.is_empty() && loaded.kept.is(&whole.kept));
        }
    }
}
