#[path = "../../../../benches/common/cpu.rs"]
mod cpu;

use super::*;
use gatepost_http2_client::hpack::{Decoder, DecoderError};

/// Fields of a block, and the first of them that must not be there. Pseudo-headers are somebody else's.
fn read(block: &[u8]) -> Result<(ResponseFields, Option<&'static str>), DecoderError> {
    let (mut fields, mut broken) = (ResponseFields::default(), None);
    for field in Decoder::new(block) {
        let field = field?;
        match fields.field(field.name, field.value, &mut Vec::new()) {
            Ok(_) => {}
            Err(FieldError::Undecodable(error)) => return Err(error),
            Err(FieldError::Malformed(what)) => drop(broken.get_or_insert(what)),
        }
    }
    Ok((fields, broken))
}

/// A literal without indexing, spelled out.
fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

fn of(fields: &[(&str, &str)]) -> ResponseFields {
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    read(&block).expect("read").0
}

#[test]
fn a_grpc_answer() {
    // Size update to 0, content-type: application/grpc (Huffman), date: x (with indexing).
    let mut block = vec![0x20, 0x0f, 0x10, 0x8b];
    block.extend([0x1d, 0x75, 0xd0, 0x62, 0x0d, 0x26, 0x3d, 0x4c, 0x4d, 0x65, 0x64]);
    block.extend([0x61, 0x01, b'x']);
    let expected = ResponseFields { grpc: Some(true), readable_type: Some(true), ..Default::default() };
    assert_eq!(read(&block), Ok((expected, None)));
}

#[test]
fn trailers_plain_and_never_indexed() {
    let mut block = vec![0x00, 11];
    block.extend(b"grpc-status\x015");
    block.extend([0x10, 12]);
    block.extend(b"grpc-message\x03no!");
    let (fields, _) = read(&block).expect("read");
    assert_eq!(fields.grpc_status, Some(5));
    assert_eq!(fields.grpc_message.as_deref(), Some(&b"no!"[..]));
}

#[test]
fn an_http_answer() {
    // content-length by its static name, retry-after spelled out.
    let mut block = b"\x0f\x0d\x0212\x00\x0bretry-after\x017".to_vec();
    let (fields, _) = read(&block).expect("read");
    assert_eq!((fields.content_length, fields.retry_after), (Some(12), Some(Duration::from_secs(7))));
    block.extend(b"\x0f\x0d\x0213");
    assert_eq!(read(&block).expect("read").0.content_length, Some(INVALID_LENGTH), "two lengths are none");
}

#[test]
fn contradictory_response_fields_are_malformed() {
    for fields in [
        &[("grpc-status", "0"), ("grpc-status", "0")][..],
        &[("grpc-status", "0"), ("grpc-status", "7")],
        &[("grpc-message", "a\nb")],
        &[("content-length", "1\r")],
        &[("retry-after", "\0")],
    ] {
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        assert!(read(&block).expect("read").1.is_some(), "{fields:?}");
    }
    assert_eq!(of(&[("x-y_z", "A b"), ("content-type", "application/grpc+proto")]).grpc, Some(true));
}

#[test]
fn numbers_are_digits() {
    let status = |text| of(&[("grpc-status", text)]).grpc_status;
    assert_eq!(["0", "7", "+0", "00", "", "x"].map(status), [0, 7, 2, 2, 2, 2].map(Some));
    assert_eq!(of(&[("content-length", "+5")]).content_length, Some(INVALID_LENGTH));
}

#[test]
fn a_content_type_is_grpc_or_not() {
    let grpc = |types: &[&str]| {
        let fields: Vec<_> = types.iter().map(|value| ("content-type", *value)).collect();
        of(&fields).grpc
    };
    assert_eq!(grpc(&["application/grpc"]), Some(true));
    assert_eq!(grpc(&["application/grpc;x=y"]), Some(true));
    assert_eq!(grpc(&["application/grpc-web"]), Some(false));
    assert_eq!(grpc(&["text/html", "application/grpc"]), Some(false));
    assert_eq!(grpc(&["application/grpc", "text/html"]), Some(false));
    assert_eq!(grpc(&[]), None);
}

#[test]
fn the_first_of_repeated_response_fields_counts() {
    let expected = of(&[
        ("content-type", "no type,"),
        ("content-type", "application/json"),
        ("content-encoding", "GZIP"),
        ("content-encoding", "br"),
        ("retry-after", "soon"),
        ("retry-after", "7"),
    ]);
    assert_eq!((expected.readable_type, expected.gzip, expected.retry_after), (Some(false), Some(true), None));
    assert_eq!(of(&[("x", "y")]).gzip, None);
    // content-encoding by its static name.
    assert_eq!(read(b"\x0f\x0b\x04gzip").expect("read").0.gzip, Some(true));
    assert_eq!(read(b"\x0f\x0b\x07deflate").expect("read").0.gzip, Some(false));
}

/// Linear time, as in `tests/linear_time/parsers_take_linear_time.rs`, of parsers that only this folder can call.
mod linear_time {
    use std::time::Duration;

    use super::*;
    use crate::hooks::protocol::percent_decoded;
    use gatepost_http2_client::hpack;

    const SMALL_BODY_BYTES: usize = 16 << 10;
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
            let small = quickest(SMALL_BODY_BYTES, 5).max(LEAST);
            assert!((0..3).any(|_| quickest(SMALL_BODY_BYTES * TIMES, 1) <= small * BOUND), "{name}");
        }
    }
}
