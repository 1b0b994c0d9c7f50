//! HPACK: header compression for HTTP/2 (RFC 7541).
//!
//! | file | owns |
//! | --- | --- |
//! | `decoder` | a peer's header block, field by field |
//! | `encoder` | our header blocks, and what of the peer's dynamic table we use |
//! | `coding` | what both share: integers, the Huffman code, the static table |
//!
//! A decoder has no dynamic table: its user announces that by SETTINGS_HEADER_TABLE_SIZE 0. An encoder puts a few
//! fields of its user's choice into the peer's.

mod coding;
mod decoder;
mod encoder;

pub use coding::{DecoderError, coded_len, decode, encode};
pub use decoder::{Decoder, HeaderField, HeaderName, HeaderText, KnownText, known};
pub use encoder::{Encoder, FieldName, entry, literal, short_literal};
