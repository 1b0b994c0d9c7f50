//! Reading what a hook sends in headers takes time that grows with its bytes and not with their square. As
//! `tests/linear_time/parsers_take_linear_time.rs`, for parsers that only this folder can call.

#[path = "../../../benches/common/cpu.rs"]
mod cpu;

use std::time::Duration;

use super::super::protocol::{fields::ResponseFields, grpc::percent_decoded};
use crate::{
    hpack::{self, Decoder},
    http2::HeaderFields,
};

const SMALL: usize = 16 << 10;
const TIMES: usize = 16;
/// Linear is 16, quadratic is 256.
const BOUND: u32 = 48;
const LEAST: Duration = Duration::from_micros(100);

/// A name, what is repeated, and what reads it.
type Case = (&'static str, &'static [u8], fn(&[u8]));

/// Reads all fields of a block.
fn read(block: &[u8]) {
    let (mut fields, mut scratch) = (ResponseFields::default(), Vec::new());
    for field in Decoder::new(block).flatten() {
        let _ = fields.field(field.name, field.value, &mut scratch);
    }
}

#[test]
fn sixteen_times_the_header_bytes_take_sixteen_times_as_long() {
    let cases: [Case; 5] = [
        ("fields of unknown names", b"\x00\x01a\x01b", read),
        ("fields of the table", b"\x88", read),
        ("texts coded shortest", b"\x00", |coded| _ = hpack::decode(coded, &mut Vec::new())),
        ("texts coded longest", b"\xff\xff\xff\xea", |coded| _ = hpack::decode(coded, &mut Vec::new())),
        ("percent signs", b"%41%", |text| drop(percent_decoded(text))),
    ];
    for (name, item, work) in cases {
        let quickest = |size: usize, runs: usize| {
            let bytes = item.repeat(size / item.len());
            (0..runs).map(|_| cpu::of(|| work(&bytes))).min().unwrap_or_default()
        };
        let small = quickest(SMALL, 5).max(LEAST);
        assert!((0..3).any(|_| quickest(SMALL * TIMES, 1) <= small * BOUND), "{name}");
    }
}
