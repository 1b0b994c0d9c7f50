#![no_main]

#[path = "../oracles/mod.rs"]
mod oracles;

libfuzzer_sys::fuzz_target!(|input: &[u8]| oracles::check("match_condition", input));
