//! The configuration loader beside plain serde_json and serde-saphyr: what they refuse is refused, what is taken holds
//! the hooks that they see, and every problem says where and what to do.

use std::io;

use bytes::Bytes;
use gatepost_config::{Problem, Snapshot, SourceFile, load};
use serde_json::Value;

/// Loads the input as a file in YAML, and as one in JSON.
pub(crate) fn check(input: &[u8]) {
    for (name, plain) in [("fuzz.yaml", yaml(input)), ("fuzz.json", json(input))] {
        match (loaded(name, input), plain) {
            (Ok(snapshot), Ok(documents)) => {
                let ours: Vec<&str> = snapshot.hooks.iter().map(|hook| &*hook.name).collect();
                let mut sorted = ours.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, hooks(&documents), "{name} has other hooks");
                assert!((0..ours.len()).all(|index| snapshot.origin(index as u32).is_some()), "a hook of no origin");
                serde_json::to_string(&snapshot.describe()).expect("a snapshot can be shown");
            }
            (Ok(_), Err(error)) => panic!("{name} is taken, and is none: {error}"),
            (Err(problems), _) => {
                assert!(!problems.is_empty(), "{name} is refused without a problem");
                problems.iter().for_each(|problem| assert_well_formed(name, problem));
            }
        }
    }
}

fn loaded(name: &str, input: &[u8]) -> Result<Snapshot, Vec<Problem>> {
    let files = [SourceFile { name: name.into(), bytes: Bytes::copy_from_slice(input) }];
    // A file that is named is the input itself: so the certificates' reader meets it, too.
    load(&files, &|path| if path.ends_with(".pem") { Ok(input.to_vec()) } else { Err(io::ErrorKind::NotFound.into()) })
}

fn assert_well_formed(name: &str, problem: &Problem) {
    let message = problem.to_string();
    assert_eq!(problem.file, name, "{message:?} is about another file");
    assert!(problem.is_whole(), "{message:?} says too little");
    assert!(!message.contains(char::is_control), "{message:?} is not one line");
    assert!(problem.what.len() < 2000 && problem.fix.len() < 2000, "{} bytes of a problem", message.len());
}

fn json(input: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(input).map_err(|error| error.to_string())?;
    let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    documents.map_err(|error| error.to_string())
}

fn yaml(input: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(input).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! {
        // The loader has another limit in place of this.
        budget: serde_saphyr::budget! { enforce_alias_anchor_ratio: false },
        // The loader reads `.nan` as a text, and then says where a text is wrong.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

/// The names of the hooks that these documents hold and that are served, in order.
fn hooks(documents: &[Value]) -> Vec<&str> {
    let mut names = Vec::new();
    for document in documents {
        let kind = document["kind"].as_str().unwrap_or_default();
        if let Some(items) = document["items"].as_array().filter(|_| kind.ends_with("List")) {
            let listed = kind.trim_end_matches("List");
            items.iter().for_each(|item| of_one(item, if listed.is_empty() { None } else { Some(listed) }, &mut names));
        } else {
            of_one(document, None, &mut names);
        }
    }
    names.sort_unstable();
    names
}

fn of_one<'a>(document: &'a Value, listed: Option<&str>, names: &mut Vec<&'a str>) {
    let entries = match listed.or(document["kind"].as_str()) {
        Some("AdmissionControlConfiguration") => &document["externalAdmissionHooks"],
        Some("ValidatingWebhookConfiguration") => &document["webhooks"],
        _ => return,
    };
    names.extend(entries.as_array().into_iter().flatten().map(|hook| hook["name"].as_str().expect("a name")));
}
