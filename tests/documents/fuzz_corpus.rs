//! Seeds of fuzzing, and inputs that it has found, each through the oracle of its target (`fuzz/oracles/`).
//!
//! A crash becomes a test by its file being put into `fuzz/found/<target>/`. The files of `fuzz/seeds/` are made from
//! the examples and vectors of this repository: `GATEPOST_REGENERATE=1 cargo test --test documents fuzz_corpus` writes
//! them anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

#[path = "../support/fuzz_seeds.rs"]
mod seeds;

/// All seeds together are no larger, so that a clone stays small.
const MOST: usize = 300 << 10;

fn folder(of: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(of).join(target)
}

/// The files of a folder by name; none where it is not there.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn seeds_equal_the_generated_ones() {
    let regenerate = std::env::var_os("GATEPOST_REGENERATE").is_some();
    let (made, mut size) = (seeds::all(), 0);
    assert_eq!(
        made.keys().copied().collect::<Vec<_>>(),
        {
            let mut names: Vec<_> = crate::oracles::TARGETS.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            names
        },
        "each target has seeds"
    );
    for (target, made) in made {
        let folder = folder("seeds", target);
        if regenerate {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            made.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
        }
        let committed = files(&folder);
        assert_eq!(
            committed.keys().collect::<Vec<_>>(),
            made.keys().collect::<Vec<_>>(),
            "fuzz/seeds/{target}: GATEPOST_REGENERATE=1 cargo test --test documents fuzz_corpus"
        );
        for (name, bytes) in &made {
            assert!(
                committed[name] == *bytes,
                "fuzz/seeds/{target}/{name} is old; GATEPOST_REGENERATE=1 writes it anew"
            );
        }
        size += made.values().map(Vec::len).sum::<usize>();
    }
    assert!(size <= MOST, "the seeds have {size} bytes; take smaller ones");
}

#[test]
fn seeds_and_finds_hold() {
    for (target, _) in crate::oracles::TARGETS {
        let seeds = files(&folder("seeds", target));
        assert!(seeds.len() >= 10, "{target} has {} seeds", seeds.len());
        for (name, bytes) in seeds.into_iter().chain(files(&folder("found", target))) {
            // Shown where the oracle panics.
            println!("{target}: {name}");
            crate::oracles::check(target, &bytes);
        }
    }
}

/// An oracle that takes everything would prove nothing.
#[test]
fn many_seeds_are_taken() {
    use bytes::Bytes;
    use gatepost_api::{HookType, HttpForm, ReviewVersion, Rope};

    let taken = |target: &str, takes: &dyn Fn(Bytes) -> bool| {
        let seeds = files(&folder("seeds", target));
        let taken = seeds.into_values().filter(|bytes| takes(Bytes::from(bytes.clone()))).count();
        assert!(taken >= 10, "{target}: only {taken} are taken");
    };
    taken("json_view", &|bytes| gatepost_wire::json_view::view(bytes).is_ok());
    taken("protobuf_view", &|bytes| gatepost_wire::inbound::view(Rope::new([bytes])).is_ok());
    taken("envelope", &|bytes| gatepost_wire::envelope::view(Rope::new([bytes])).is_ok());
    taken("configuration", &|bytes| {
        let file = gatepost_config::SourceFile { name: "a.yaml".into(), bytes };
        gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).is_ok()
    });
    taken("json_patch", &|bytes| {
        let (object, patch) = (bytes.slice(..), bytes.clone());
        let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
        let end = patch[at + 1..].iter().position(|byte| *byte == b'\n').map_or(patch.len(), |end| at + 1 + end);
        let document = gatepost_json_patch::Document::new(Rope::new([object.slice(..at)]));
        let patch = gatepost_json_patch::Patch::parse(patch.slice(at + 1..end));
        document.and_then(|document| document.patched(&patch?, gatepost_json_patch::PatchLimits::default())).is_ok()
    });
    taken("match_condition", &|bytes| {
        crate::oracles::match_condition::value(&bytes).is_some_and(|value| value.is_ok())
    });
    taken("http1_reader", &|bytes| {
        let memory = gatepost_base::memory::MemoryBudget::unlimited();
        crate::oracles::http1::read(bytes[0], &bytes[1..], &memory).is_ok()
    });
    taken("hook_answer", &|bytes| {
        let form = HttpForm::Json(ReviewVersion::V1beta1);
        gatepost_wire::http_answer::decode(HookType::Validating, form, "123", 200, bytes).is_ok()
    });
}
