//! Imports point one way. This reads the `crate::` paths in `src/` and fails on an upward one, on a package used
//! outside its doors, and on a file that is too long. Inside a layer no
//! files import each other in a circle. No two types that are seen outside their folders have one name.

#[path = "layers/circles.rs"]
mod circles;
#[path = "layers/contributing.rs"]
mod contributing;
#[path = "layers/type_names.rs"]
mod type_names;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Each layer may use itself and the rows above its own. Layers of one row do not know each other.
const LAYERS: [&[&str]; 9] = [
    &["telemetry"],
    &["hooks"],
    &["live"],
    &["review", "source"],
    &["rotate"],
    &["front"],
    &["runtime"],
    &["commands"],
    &["main.rs", "lib.rs"],
];

/// Places where a package may be named; a door is a path prefix below `src/`.
const DOORS: [(&str, &[&str]); 13] = [
    ("arc_swap", &["live/"]),
    ("clap", &["commands/"]),
    ("crossbeam", &["telemetry/"]),
    ("flate2", &["hooks/reply.rs", "commands/"]),
    ("h2", &["front/", "hooks/"]),
    ("mimalloc", &["main.rs"]),
    ("prost", &["front/grpc/rule_index.rs", "hooks/probe.rs"]),
    ("rcgen", &["commands/demo"]),
    (
        "rustix",
        &[
            "runtime/process.rs",
            "runtime/resources.rs",
            "runtime/threads.rs",
            "telemetry/audit.rs",
            "source/break_glass.rs",
        ],
    ),
    // Its hashes have no key: only for keys that nobody outside chooses (numbers of ours, names in the code), or where
    // keys of one hash do no harm. Everything else is in `std`'s maps.
    ("rustc_hash", &["runtime/certificates.rs", "hooks/http1/mod.rs", "hooks/patch_rates.rs"]),
    // `rotate` only hands a finished `ClientConfig` from `tls` to the connection.
    ("rustls", &["hooks/", "rotate/candidate.rs"]),
    ("tonic", &["front/answer.rs", "front/grpc/", "front/refusal.rs", "commands/hook", "commands/demo"]),
    ("tonic_reflection", &["front/grpc/health_reflection.rs", "front/state.rs"]),
];

/// Files that measure freshness, which setting the clock must not move.
const TIMELESS: [&str; 3] = ["live/freshness.rs", "live/namespaces.rs", "source/mod.rs"];

/// Lines of a file at most.
const MAX_LINES: usize = 600;

/// One file: path below `src/` and its text.
type File = (String, String);

#[test]
fn imports_point_one_way() {
    let files = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(files.len() > 30, "only {} files found: is this the right folder?", files.len());
    let offences: Vec<_> = files.iter().flat_map(offences).collect();
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

/// Limit on sources of the crate; tests and generated files may be longer.
#[test]
fn no_file_is_too_long() {
    let files = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let long: Vec<_> = files.iter().filter(|file| is_too_long(file)).map(|(path, _)| path).collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines: {long:?}");
    let is_long = |path: &str, lines: usize| is_too_long(&(path.to_owned(), "x\n".repeat(lines)));
    assert!(is_long("live/current.rs", MAX_LINES + 1) && !is_long("live/current.rs", MAX_LINES));
    assert!(!is_long("x/pb/gatepost.v1.rs", MAX_LINES + 1));
}

fn is_too_long((path, text): &File) -> bool {
    let is_generated = path.contains("/pb/");
    text.lines().count() > MAX_LINES && !is_generated
}

#[test]
fn made_up_offences_are_found() {
    let reported = |path: &str, text: &str| offences(&(path.to_owned(), text.to_owned())).join("\n");
    assert_eq!(
        reported("review/x.rs", "use crate::live::Current;\nuse crate::{hooks::Hook, telemetry::{Audit, Metrics}};"),
        ""
    );
    assert_eq!(
        reported("hooks/x.rs", "let c = crate::live::Current::new();"),
        "hooks/x.rs uses live, which stands above it"
    );
    assert_eq!(
        reported("hooks/x.rs", "use crate::{\n    telemetry::Audit,\n    live::{Kept, load},\n};"),
        "hooks/x.rs uses live, which stands above it"
    );
    assert_eq!(reported("review/x.rs", "use crate::source;"), "review/x.rs uses source, which stands above it");
    assert_eq!(reported("odd/x.rs", "use crate::live;"), "odd/x.rs is in no layer");
    assert_eq!(reported("front/x.rs", "use crate::attic;"), "front/x.rs uses attic, which is in no layer");
    assert_eq!(
        reported("front/x.rs", "use arc_swap::ArcSwap;"),
        "front/x.rs uses the package arc_swap outside its doors"
    );
    assert_eq!(
        reported("runtime/x.rs", "h2::client::handshake(io)"),
        "runtime/x.rs uses the package h2 outside its doors"
    );
    assert_eq!(reported("live/x.rs", "use arc_swap::ArcSwap; tokio_rustls::TlsStream; self.h2.x"), "");
    let asked = "let now = SystemTime::now();";
    assert_eq!(
        reported("live/freshness.rs", asked),
        "live/freshness.rs tells freshness and may not ask the wall clock"
    );
    let tested = "use crate::telemetry;\n#[cfg(test)]\nmod tests {\n    use crate::commands;\n}";
    assert_eq!(reported("hooks/x.rs", tested), "", "tests may look upwards");
    assert_eq!(
        reported("hooks/x.rs", "//! See [`crate::commands`].\n// crate::commands\n"),
        "",
        "comments may look upwards"
    );
}

fn offences((path, text): &File) -> Vec<String> {
    let text = without_comments_and_tests(text);
    let layer = path.split('/').next().unwrap_or(path);
    let Some(row) = row(layer) else { return vec![format!("{path} is in no layer")] };
    let mut offences = Vec::new();
    for used in used_layers(&text) {
        if used == layer {
            continue;
        }
        match self::row(&used) {
            None => offences.push(format!("{path} uses {used}, which is in no layer")),
            Some(above) if above >= row => offences.push(format!("{path} uses {used}, which stands above it")),
            Some(_) => {}
        }
    }
    let foreign = without_own_imports(&text);
    let own = used_layers(&text);
    for (package, doors) in DOORS {
        // A name that a package's item is imported by is ours.
        if !own.contains(package) && names(&foreign, package) && !doors.iter().any(|door| path.starts_with(door)) {
            offences.push(format!("{path} uses the package {package} outside its doors"));
        }
    }
    if TIMELESS.iter().any(|timeless| path.starts_with(timeless)) && text.contains("SystemTime::now") {
        offences.push(format!("{path} tells freshness and may not ask the wall clock"));
    }
    offences
}

fn row(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&layer))
}

/// Layers behind `crate::` (or `gatepost::` in the binary), each member of a group by itself.
fn used_layers(text: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for root in ["crate::", "gatepost::"] {
        for (at, _) in text.match_indices(root).filter(|(at, _)| starts_a_path(text, *at)) {
            let rest = &text[at + root.len()..];
            // The protocol's package bears our name: `pb::{gatepost::v1::Status}`.
            if word(rest) == "v1" {
                continue;
            }
            match rest.strip_prefix('{') {
                None => drop(used.insert(word(rest))),
                Some(group) => used.extend(members(group)),
            }
        }
    }
    used
}

/// The first word of each member of a `{a, b::{c, d}, e}` group, given what follows its opening brace.
fn members(group: &str) -> Vec<String> {
    let mut members = vec![word(group)];
    let mut depth = 1;
    for (at, sign) in group.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => members.push(word(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

fn word(text: &str) -> String {
    text.trim_start().chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect()
}

fn names(text: &str, package: &str) -> bool {
    let called = format!("{package}::");
    let path = text.match_indices(&called).any(|(at, _)| starts_a_path(text, at));
    path || text.contains(&format!("use {package};")) || text.contains(&format!("use {package} "))
}

/// A layer may bear a package's name: `use crate::{kube::Client}` names no package.
fn without_own_imports(text: &str) -> String {
    let mut rest = text.split("use crate::");
    let first = rest.next().unwrap_or_default().to_owned();
    rest.filter_map(|import| import.split_once(';')).fold(first, |all, (_, after)| all + after)
}

/// `self::h2::` and `pb::gatepost::` are somebody else's.
fn starts_a_path(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '$' | ':'))
}

/// Line comments and everything from the tests on.
fn without_comments_and_tests(text: &str) -> String {
    let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    code.map(|line| line.split_once("//").map_or(line, |(code, _)| code)).fold(String::new(), |mut all, line| {
        all.push_str(line);
        all.push('\n');
        all
    })
}

/// A file that is compiled for tests only.
fn is_for_tests(name: &str) -> bool {
    name.ends_with("tests.rs") || name.ends_with("/testing.rs") || name.contains("/tests/")
}

/// Files that are no tests.
fn sources(root: PathBuf) -> Vec<File> {
    let mut files = rust_files(&root);
    files.retain(|(name, _)| !is_for_tests(name));
    files
}

#[allow(clippy::expect_used, reason = "a test")]
fn rust_files(root: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            let name = path.strip_prefix(root).expect("below src").display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).expect("source files are text");
                files.push((name, text));
            }
        }
    }
    files
}
