//! Decodes a peer's header block field by field. RFC 7541.
//!
//! Our dynamic table has size 0, so a block refers only to the static table, and decoding needs no state between
//! blocks. Strings are decoded only when they are read, because most fields of a response are never read.

use super::coding::{DecoderError, STATIC_LEN, decode, read_integer, static_entry};

/// Iterator over the fields of one whole header block. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    block: &'a [u8],
    /// True once a field was read. A table size update is allowed only before the first field.
    begun: bool,
}

/// One field. Its strings are not decoded.
#[derive(Clone, Copy, Debug)]
pub struct HeaderField<'a> {
    /// Name of the field.
    pub name: HeaderName<'a>,
    /// Value of the field.
    pub value: HeaderText<'a>,
}

/// Name of a field.
#[derive(Clone, Copy, Debug)]
pub enum HeaderName<'a> {
    /// Index of an entry of the static table, 1 to 61.
    Static(usize),
    /// Literal name.
    Text(HeaderText<'a>),
}

/// A string, not decoded.
#[derive(Clone, Copy, Debug)]
pub struct HeaderText<'a> {
    huffman: bool,
    bytes: &'a [u8],
}

/// A string that can be compared without decoding, because it has only one Huffman coding.
#[derive(Clone, Copy, Debug)]
pub struct KnownText {
    /// The string.
    pub plain: &'static [u8],
    /// Its Huffman coding.
    pub coded: &'static [u8],
}

/// Computes a [`KnownText`] at compile time: `known!(b"grpc-status")`.
#[macro_export]
macro_rules! known {
    ($text:expr) => {{
        const CODED: [u8; $crate::hpack::coded_len($text)] = $crate::hpack::encode($text);
        $crate::hpack::KnownText { plain: $text, coded: &CODED }
    }};
}
pub use known;

impl<'a> Decoder<'a> {
    /// Creates a decoder at the beginning of a block.
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, begun: false }
    }

    fn field(&mut self) -> Result<Option<HeaderField<'a>>, DecoderError> {
        while let Some(&first) = self.block.first() {
            if first & 0xe0 == 0x20 {
                if self.begun {
                    return Err(DecoderError("the dynamic table changes its size behind a field"));
                }
                if read_integer(&mut self.block, 5)? != 0 {
                    return Err(DecoderError("the dynamic table grows beyond what was allowed"));
                }
                continue;
            }
            self.begun = true;
            if first & 0x80 != 0 {
                let index = read_integer(&mut self.block, 7)?;
                let (_, value) = static_entry(index).ok_or(NO_ENTRY)?;
                return Ok(Some(HeaderField {
                    name: HeaderName::Static(index),
                    value: HeaderText::plain(value.as_bytes()),
                }));
            }
            // With indexing (which adds nothing to a table of size 0), without indexing, or never indexed.
            let bits = if first & 0x40 != 0 { 6 } else { 4 };
            let name = match read_integer(&mut self.block, bits)? {
                0 => HeaderName::Text(self.text()?),
                index if index <= STATIC_LEN => HeaderName::Static(index),
                _ => return Err(NO_ENTRY),
            };
            return Ok(Some(HeaderField { name, value: self.text()? }));
        }
        Ok(None)
    }

    /// Reads a string, plain or Huffman-coded. RFC 7541 §5.2.
    fn text(&mut self) -> Result<HeaderText<'a>, DecoderError> {
        let huffman = self.block.first().is_some_and(|first| first & 0x80 != 0);
        let len = read_integer(&mut self.block, 7)?;
        let cut = DecoderError("a header block ends inside a string");
        let (bytes, rest) = self.block.split_at_checked(len).ok_or(cut)?;
        self.block = rest;
        Ok(HeaderText { huffman, bytes })
    }
}

const NO_ENTRY: DecoderError = DecoderError("a header refers to an entry that is not in the table");

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<HeaderField<'a>, DecoderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.field().inspect_err(|_| self.block = &[]).transpose()
    }
}

impl HeaderName<'_> {
    /// Decodes the name into `out`, which is cleared first.
    ///
    /// # Errors
    /// The Huffman coding is invalid.
    pub fn read(self, out: &mut Vec<u8>) -> Result<(), DecoderError> {
        match self {
            Self::Static(index) => {
                let (name, _) = static_entry(index).ok_or(NO_ENTRY)?;
                HeaderText::plain(name.as_bytes()).read(out)
            }
            Self::Text(text) => text.read(out),
        }
    }
}

impl<'a> HeaderText<'a> {
    /// Creates a string without Huffman coding.
    pub fn plain(bytes: &'a [u8]) -> Self {
        Self { huffman: false, bytes }
    }

    /// Returns true if this is the string `known`. A string has only one Huffman coding.
    pub fn is(self, known: KnownText) -> bool {
        self.bytes == if self.huffman { known.coded } else { known.plain }
    }

    /// Decodes the string into `out`, which is cleared first.
    ///
    /// # Errors
    /// The Huffman coding is invalid.
    pub fn read(self, out: &mut Vec<u8>) -> Result<(), DecoderError> {
        out.clear();
        if self.huffman {
            decode(self.bytes, out).ok_or(DecoderError("a header string is not validly coded"))
        } else {
            out.extend_from_slice(self.bytes);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of a block, or what is wrong with it.
    fn read(block: &[u8]) -> Result<Vec<(String, String)>, DecoderError> {
        let (mut name, mut value) = (Vec::new(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Decoder::new(block)
            .map(|field| {
                let field = field?;
                field.name.read(&mut name)?;
                field.value.read(&mut value)?;
                Ok((text(&name), text(&value)))
            })
            .collect()
    }

    fn fields(of: &[(&str, &str)]) -> Result<Vec<(String, String)>, DecoderError> {
        Ok(of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// RFC 7541 Appendix C.2 and C.6.1 (there with a table; what is read is the same).
    #[test]
    fn the_rfc_s_examples() {
        assert_eq!(read(b"\x40\x0acustom-key\x0dcustom-header"), fields(&[("custom-key", "custom-header")]));
        assert_eq!(read(b"\x04\x0c/sample/path"), fields(&[(":path", "/sample/path")]));
        assert_eq!(read(b"\x10\x08password\x06secret"), fields(&[("password", "secret")]));
        assert_eq!(read(b"\x82"), fields(&[(":method", "GET")]));
        let coded = [&[0x48, 0x82, 0x64, 0x02, 0x58, 0x85][..], &[0xae, 0xc3, 0x77, 0x1a, 0x4b]].concat();
        assert_eq!(read(&coded), fields(&[(":status", "302"), ("cache-control", "private")]));
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for (block, why) in [
            (&[0xff][..], "ends inside a field"),
            (&[0xbe], "not in the table"),
            (&[0x80], "not in the table"),
            (&[0x7f, 0x00, 0x00], "not in the table"),
            (&[0x3f, 0x01], "grows beyond"),
            (&[0x88, 0x20], "behind a field"),
            (&[0x00, 0x05, b'a'], "ends inside a string"),
            (&[0x00, 0x01, b'a'], "ends inside a field"),
            (&[0x00, 0x81, 0xf0, 0x00], "not validly coded"),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "too large"),
        ] {
            let refused = read(block).expect_err("refused").0;
            assert!(refused.contains(why), "{block:x?}: {refused}");
        }
        assert_eq!(read(&[0x20, 0x20, 0x88]), fields(&[(":status", "200")]), "a table of nothing, as agreed");
        assert_eq!(Decoder::new(&[0xbe, 0x88]).count(), 1, "nothing comes after an error");
    }

    #[test]
    fn a_known_text_is_recognised_in_both_codings() {
        const KNOWN: KnownText = known!(b"grpc-status");
        assert!(
            HeaderText { huffman: true, bytes: KNOWN.coded }.is(KNOWN) && HeaderText::plain(b"grpc-status").is(KNOWN)
        );
        assert!(!HeaderText::plain(KNOWN.coded).is(KNOWN) && !HeaderText::plain(b"grpc-statu").is(KNOWN));
    }
}
