//! HPACK beside the crate `loona-hpack`, which has a dynamic table and decodes every string.
//!
//! (h2's decoder, the best known, cannot be called from outside. This one descends from the crate `hpack`, is kept by
//! an HTTP implementation of its own, and passes the interop cases of http2jp.)

use gatepost_http2_client::hpack::{Decoder, DecoderError, Encoder, FieldName, literal};
use loona_hpack::decoder::DecoderError as Theirs;

/// The first byte chooses: a block to be read, or what is to be written.
pub(crate) fn check(input: &[u8]) {
    match input.split_first() {
        Some((0, block)) => read(block),
        Some((_, script)) => write(script),
        None => {}
    }
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn read(block: &[u8]) {
    let mut decoder = loona_hpack::Decoder::new();
    decoder.set_max_table_size(0);
    decoder.set_max_allowed_table_size(0);
    match (ours(block), decoder.decode(block)) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "other fields"),
        // Stricter than they: RFC 7541 §4.2.
        (Err(error), Ok(_)) => assert!(error.0.contains("changes its size behind a field"), "{error:?}"),
        // They want a field behind it, which need not be.
        (Ok(_), Err(Theirs::SizeUpdateAtEnd)) | (Err(_), Err(_)) => {}
        (Ok(ours), Err(error)) => panic!("{ours:?}, though: {error}"),
    }
}

fn ours(block: &[u8]) -> Result<Fields, DecoderError> {
    let read = |field: Result<gatepost_http2_client::hpack::HeaderField<'_>, DecoderError>| {
        let (field, mut name, mut value) = (field?, Vec::new(), Vec::new());
        field.name.read(&mut name)?;
        field.value.read(&mut value)?;
        Ok((name, value))
    };
    Decoder::new(block).map(read).collect()
}

/// Names and values of the fields that may be put into the table.
const KNOWN: [(FieldName, &[u8], &[u8]); 6] = [
    (FieldName::Static(1), b":authority", b"hook.example.com:443"),
    (FieldName::Static(4), b":path", b"/validate?timeout=10s"),
    (FieldName::Static(31), b"content-type", b"application/grpc"),
    (FieldName::Static(58), b"user-agent", b""),
    (FieldName::Text(b"te"), b"te", b"trailers"),
    (FieldName::Text(b"grpc-timeout"), b"grpc-timeout", b"(varies)"),
];
/// An entry is its text and 32 bytes; the value of the last is as long as it can be.
const NEEDED: u32 = 1000;

/// Blocks of one connection, which has a dynamic table: they say what was to be said.
fn write(mut script: &[u8]) {
    let (mut encoder, mut decoder) = (Encoder::new(NEEDED), loona_hpack::Decoder::new());
    let mut next = || {
        let (&byte, rest) = script.split_first()?;
        script = rest;
        Some(byte)
    };
    let (mut out, mut message, mut before) = (Vec::new(), Fields::new(), 0);
    while let Some(byte) = next() {
        // A block begins with its first field: one without fields is never sent, and a new size of the table with it.
        if byte <= 6 && message.is_empty() {
            encoder.begin(&mut out);
        }
        match byte {
            0..=4 => {
                let (name, spelled, value) = KNOWN[usize::from(byte)];
                encoder.field(byte, || (name, value), &mut out);
                message.push((spelled.to_vec(), value.to_vec()));
            }
            5 => {
                let (name, spelled, _) = KNOWN[5];
                let value = format!("{}u", u32::from(next().unwrap_or_default()) * 390_000);
                encoder.varying(5, name, format_args!("{value}"), &mut out);
                message.push((spelled.to_vec(), value.into_bytes()));
            }
            6 => {
                let value = vec![b'v'; 3 * usize::from(next().unwrap_or_default())];
                literal(FieldName::Text(b"x-foreign-bin"), &value, &mut out);
                message.push((b"x-foreign-bin".to_vec(), value));
            }
            7 | 8 => {
                // Settings are between blocks; those that come together are one change.
                if !message.is_empty() {
                    decode(&mut decoder, &out, &message);
                    before += usize::from(encoder.is_relied_on());
                    (out, message) = (Vec::new(), Fields::new());
                }
                if byte == 7 {
                    let size = u32::from(next().unwrap_or_default()) * 64;
                    encoder.table_size(size);
                    decoder.set_max_allowed_table_size(size.max(4096) as usize);
                }
            }
            _ => return,
        }
    }
    if !message.is_empty() {
        decode(&mut decoder, &out, &message);
    }
    assert!(before <= 1 + 4096, "{before}");
}

fn decode(decoder: &mut loona_hpack::Decoder<'_>, block: &[u8], message: &Fields) {
    match decoder.decode(block) {
        Ok(read) => assert_eq!(read, *message),
        Err(error) => panic!("they cannot read it: {error}: {block:x?}"),
    }
}
