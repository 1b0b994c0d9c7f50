//! HPACK: header compression for HTTP/2 (RFC 7541).
//!
//! | file | owns |
//! | --- | --- |
//! | `decoder` | reading a peer's header block field by field |
//! | `encoder` | writing our header blocks, with the peer's dynamic table |
//! | `coding` | integers, the Huffman code and the static table, for both |
//!
//! A decoder has no dynamic table, which its user announces with SETTINGS_HEADER_TABLE_SIZE 0. An encoder inserts a few
//! fields, which its user chooses, into the peer's dynamic table.

mod coding;
mod decoder;
mod encoder;

pub use coding::{DecoderError, coded_len, decode, encode};
pub use decoder::{Decoder, HeaderField, HeaderName, HeaderText, KnownText, known};
pub use encoder::{Encoder, FieldName, entry, literal, secret, short_literal};
