//! Files of a crate import each other in no circle, so that each can be read with those below it alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{File, sources, starts_a_path, without_comments_and_tests};

/// Modules by the modules that they import; a path is one below `src/` of their crate, without `.rs`.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_files_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).expect("crates is readable");
    let crates: Vec<_> = crates.map(|folder| folder.expect("a folder").path()).collect();
    assert!(crates.len() > 10, "only {} crates found: is this the right folder?", crates.len());
    for folder in crates.into_iter().chain([root.to_owned()]) {
        let graph = graph(&sources(folder.join("src")));
        let circles = circles(&graph);
        assert!(circles.is_empty(), "{}: {circles:?}", folder.display());
    }
}

#[test]
fn made_up_circles_are_found() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<File> = files.iter().map(|(path, text)| (format!("{path}.rs"), (*text).to_owned())).collect();
        circles(&graph(&files)).iter().map(|circle| circle.join(" ")).collect::<Vec<_>>()
    };
    let b = ("l/b", "pub struct B(super::a::A);");
    assert_eq!(found(&[("l/mod", "mod a; mod b;"), ("l/a", "use super::b::B;"), b]), ["l/a l/b"]);
    assert_eq!(found(&[("l/a", "use crate::{k::K, l::{b::{B, C}, c}};"), b]), ["l/a l/b"]);
    assert_eq!(found(&[("l/a", "use super::{\n    b as other,\n};"), b]), ["l/a l/b"]);
    assert_eq!(found(&[("l/a/x", "use super::super::b::B;"), ("l/a", "mod x;"), b]), [""; 0], "a child is a file");
    assert_eq!(found(&[("l/a", "use super::c::C;"), b, ("l/c", "use super::b::B;")]), ["l/a l/b l/c"]);
    assert_eq!(found(&[("l/a", "// super::b\n#[cfg(test)]\nmod tests { use super::super::b; }"), b]), [""; 0]);
    assert_eq!(found(&[("l/mod", "mod a; pub use a::A;"), ("l/a", "use super::B; use crate::l::C;")]), [""; 0]);
}

/// Groups of files that reach each other.
fn circles(graph: &Graph) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|from| (&**from, reached(graph, from))).collect();
    let mutual = |one: &str, other: &str| reach[one].contains(other) && reach[other].contains(one);
    let group = |from: &&str| graph.keys().map(|to| &**to).filter(|to| mutual(from, to)).collect::<Vec<_>>();
    let groups: BTreeSet<Vec<&str>> = reach.keys().map(group).collect();
    groups.into_iter().filter(|group| group.len() > 1).collect()
}

fn reached<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = graph[from].iter().map(|to| &**to).collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(graph[file].iter().map(|to| &**to));
        }
    }
    reached
}

fn graph(files: &[File]) -> Graph {
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let edges = |(path, text): &File| {
        let (from, text) = (module(path), without_comments_and_tests(text));
        let used = paths(&text).into_iter().filter_map(|path| resolved(&modules, &from, &path));
        // A folder's own file declares those in it, and shows what they need of each other.
        let used = used.filter(|to| !is_within(to, &from) && !is_within(&from, to)).collect();
        (from, used)
    };
    files.iter().map(edges).collect()
}

fn module(path: &str) -> String {
    let path = path.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).to_owned()
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The file that a path leads to, as seen from this one.
fn resolved(modules: &BTreeSet<String>, from: &str, path: &[String]) -> Option<String> {
    let mut place: Vec<&str> = from.split('/').collect();
    for (index, step) in path.iter().enumerate() {
        match step.as_str() {
            "crate" if index == 0 => place.clear(),
            "self" => {}
            "super" => drop(place.pop()),
            step => place.push(step),
        }
    }
    (1..=place.len()).rev().map(|len| place[..len].join("/")).find(|path| modules.contains(path))
}

/// Paths that begin with `crate`, `super` or `self`, each member of a group by itself.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for root in ["crate", "super", "self"] {
        let starts = text.match_indices(&format!("{root}::")).map(|(at, _)| at).collect::<Vec<_>>();
        for at in starts.into_iter().filter(|at| starts_a_path(text, *at)) {
            members(&text[at..], &[], &mut paths);
        }
    }
    paths
}

/// Reads one path, or group, at the beginning of the text; returns the text behind it.
fn members<'t>(text: &'t str, before: &[String], paths: &mut Vec<Vec<String>>) -> &'t str {
    let (mut path, mut rest) = (before.to_vec(), text.trim_start());
    loop {
        let len = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len());
        path.push(rest[..len].to_owned());
        rest = &rest[len..];
        let Some(behind) = rest.strip_prefix("::") else { break };
        rest = behind;
        let Some(group) = rest.strip_prefix('{') else { continue };
        rest = group;
        while !rest.trim_start().starts_with('}') && !rest.trim().is_empty() {
            let behind = members(rest, &path, paths);
            // Past `as name`, and the comma.
            let end = behind.find([',', '}']).unwrap_or(behind.len());
            rest = behind[end..].strip_prefix(',').unwrap_or(&behind[end..]);
        }
        return rest.trim_start().strip_prefix('}').unwrap_or_default();
    }
    paths.push(path);
    rest
}
