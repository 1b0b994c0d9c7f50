//! Oracles: the check of each fuzz target, a panic where the product disagrees with a plain decoder.
//!
//! The targets of `fuzz/` and the test `tests/documents/fuzz_corpus.rs` both use this module, so every input that
//! fuzzing found is a test on the stable toolchain as well.

mod configuration;
mod fields;
mod forms;
mod go;
mod hook_answer;
mod hpack;
pub(crate) mod http1;
mod http2;
mod json;
mod json_patch;
pub(crate) mod match_condition;
mod said;
mod unknown;
mod viewed;
mod views;

/// Check of one input.
pub(crate) type Oracle = fn(&[u8]);

/// Every target by its name, which is also that of its folders.
pub(crate) const TARGETS: [(&str, Oracle); 10] = [
    ("json_view", views::json),
    ("protobuf_view", views::protobuf),
    ("envelope", views::envelope),
    ("configuration", configuration::check),
    ("hook_answer", hook_answer::check),
    ("json_patch", json_patch::check),
    ("match_condition", match_condition::check),
    ("http1_reader", http1::check),
    ("http2_frames", http2::check),
    ("hpack", hpack::check),
];

/// Runs one target's oracle; a target of that name must exist.
pub(crate) fn check(target: &str, input: &[u8]) {
    let (_, oracle) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    oracle(input);
}
