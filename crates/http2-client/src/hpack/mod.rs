//! HPACK: header compression for HTTP/2 (RFC 7541).
//!
//! | file | owns |
//! | --- | --- |
//! | `decoder` | a peer's header block, field by field |
//! | `encoder` | our header blocks, and what of the peer's dynamic table we use |
//! | `huffman` | the one Huffman coding of a string |
//! | `integer` | numbers with a prefix |
//! | `static_table` | the 61 entries that both sides know |
//!
//! A decoder has no dynamic table: its user announces that by SETTINGS_HEADER_TABLE_SIZE 0. An encoder puts a few
//! fields of its user's choice into the peer's.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;

pub use decoder::{Coded, DecodedName, DecodedText, Decoder, DecoderError, Field, known};
pub use encoder::{Encoder, FieldName, entry, literal, short_literal};

pub use huffman::{coded_len, decode, encode};
