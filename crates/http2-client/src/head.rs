//! Validates a response's header block, independent of what its fields mean. RFC 9113 §8.2 and §8.3.

use super::{
    exchange::{FieldError, HeaderFields},
    frame::{FrameHead, ProtocolFault, code},
};
use crate::hpack::{Decoder, HeaderName, HeaderText, KnownText, known};

/// Maximum length of a header block in bytes, CONTINUATIONs included.
const MAX_BLOCK: usize = 64 << 10;
/// Maximum number of CONTINUATIONs of a header block, because they may be empty.
const MAX_CONTINUATIONS: usize = 32;
/// Fault of a response with a pseudo-header other than `:status`.
const REQUEST_PSEUDO_HEADER: &str = "it has a pseudo-header that belongs to requests";
const STATUS: KnownText = known!(b":status");

/// Header block whose last frame has not arrived.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    /// Header of its first frame.
    pub(super) first: FrameHead,
    pub(super) bytes: Vec<u8>,
    continuations: usize,
}

impl HeaderBlock {
    pub(super) fn new(first: FrameHead, fragment: &[u8]) -> Self {
        Self { first, bytes: fragment.to_vec(), continuations: 0 }
    }

    /// Adds the payload of a CONTINUATION.
    pub(super) fn extend(&mut self, head: FrameHead, fragment: &[u8]) -> Result<(), ProtocolFault> {
        if self.first.stream != head.stream {
            return Err(ProtocolFault::protocol("broke off a header block"));
        }
        self.bytes.extend_from_slice(fragment);
        if self.bytes.len() > MAX_BLOCK {
            return Err(ProtocolFault::flood("sent a header block larger than 64 KiB"));
        }
        if self.continuations == MAX_CONTINUATIONS {
            return Err(ProtocolFault::flood("sent a header block in too many frames"));
        }
        self.continuations += 1;
        Ok(())
    }
}

/// A response's header block.
#[derive(Debug, Default)]
pub(super) struct ResponseHead<F> {
    /// `:status`; 0 if absent, as in trailers.
    pub(super) status: u16,
    /// First violation of the rules for responses, if any.
    pub(super) malformed: Option<&'static str>,
    pub(super) fields: F,
    /// True once a field that is not a pseudo-header was read. Pseudo-headers must come first.
    regular: bool,
}

impl<F: HeaderFields> ResponseHead<F> {
    /// Reads one whole block. `scratch` is a buffer for decoding.
    ///
    /// # Errors
    /// The block cannot be decoded.
    pub(super) fn read(block: &[u8], scratch: &mut Vec<u8>) -> Result<Self, ProtocolFault> {
        let mut head = Self::default();
        for field in Decoder::new(block) {
            let read = field.map_err(FieldError::from);
            match read.and_then(|field| head.field(field.name, field.value, scratch)) {
                Ok(()) => {}
                Err(FieldError::Undecodable(error)) => {
                    return Err(ProtocolFault { what: error.0, code: code::COMPRESSION_ERROR });
                }
                Err(FieldError::Malformed(what)) => _ = head.malformed.get_or_insert(what),
            }
        }
        Ok(head)
    }

    /// Returns true if the head is that of an interim response, which another head follows.
    pub(super) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    fn field(&mut self, name: HeaderName<'_>, value: HeaderText<'_>, scratch: &mut Vec<u8>) -> Result<(), FieldError> {
        match name {
            HeaderName::Static(8..=14) => self.status(value, scratch),
            HeaderName::Text(text) if text.is(STATUS) => self.status(value, scratch),
            HeaderName::Static(1..=7) => Err(FieldError::Malformed(REQUEST_PSEUDO_HEADER)),
            HeaderName::Static(_) => {
                self.regular = true;
                self.fields.field(name, value, scratch).map(drop)
            }
            HeaderName::Text(text) => {
                if self.fields.field(name, value, scratch)? {
                    self.regular = true;
                    return Ok(());
                }
                self.name(text, scratch)
            }
        }
    }

    /// Checks a field name that the exchange does not know.
    fn name(&mut self, text: HeaderText<'_>, scratch: &mut Vec<u8>) -> Result<(), FieldError> {
        text.read(scratch)?;
        let rest = scratch.strip_prefix(b":").unwrap_or(scratch);
        let sound = |byte: &u8| (0x21..0x7f).contains(byte) && *byte != b':' && !byte.is_ascii_uppercase();
        if rest.is_empty() || !rest.iter().all(sound) {
            return Err(FieldError::Malformed("a header's name holds what no name may (they are written small)"));
        }
        if rest.len() < scratch.len() {
            return Err(FieldError::Malformed(REQUEST_PSEUDO_HEADER));
        }
        self.regular = true;
        Ok(())
    }

    fn status(&mut self, value: HeaderText<'_>, scratch: &mut Vec<u8>) -> Result<(), FieldError> {
        if self.regular {
            return Err(FieldError::Malformed("its status stands behind other headers"));
        }
        if self.status != 0 {
            return Err(FieldError::Malformed("it has two statuses"));
        }
        value.read(scratch)?;
        let digits = std::str::from_utf8(scratch).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let status = digits.filter(|text| text.len() == 3).and_then(|text| text.parse().ok());
        self.status = status.filter(|status| *status >= 100).ok_or(FieldError::Malformed("its status is no number"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it is handed, and knows one name.
    #[derive(Debug, Default)]
    struct Counted {
        known: usize,
        others: usize,
    }

    impl HeaderFields for Counted {
        fn field(
            &mut self,
            name: HeaderName<'_>,
            _: HeaderText<'_>,
            scratch: &mut Vec<u8>,
        ) -> Result<bool, FieldError> {
            name.read(scratch)?;
            let known = scratch == b"known";
            if known {
                self.known += 1
            } else {
                self.others += 1
            }
            Ok(known)
        }
    }

    fn read(block: &[u8]) -> ResponseHead<Counted> {
        ResponseHead::read(block, &mut Vec::new()).expect("read")
    }

    fn of(fields: &[(&str, &str)]) -> ResponseHead<Counted> {
        let field = |(name, value): &(&str, &str)| {
            [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
        };
        read(&fields.iter().flat_map(field).collect::<Vec<u8>>())
    }

    #[test]
    fn a_sound_head_is_handed_on() {
        let head = of(&[(":status", "204"), ("known", "x"), ("x-y_z", "A b"), ("known", "")]);
        assert_eq!((head.status, head.malformed, head.fields.known, head.fields.others), (204, None, 2, 1));
        assert_eq!(read(&[0x88]).status, 200, "of the table");
        assert_eq!((read(b"\x08\x03103").status, read(b"\x08\x03103").is_interim()), (103, true));
        assert_eq!(of(&[("known", "x")]).status, 0, "trailers");
    }

    #[test]
    fn contradictory_or_forbidden_fields_make_a_response_malformed() {
        for fields in [
            &[(":status", "200"), (":status", "200")][..],
            &[(":status", "+200")],
            &[(":status", "20")],
            &[(":status", "099")],
            &[(":status", "2000")],
            &[(":status", "")],
            &[("date", "x"), (":status", "200")],
            &[("known", "x"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), (":made-up", "x")],
            &[(":status", "200"), (":", "x")],
            &[(":status", "200"), ("Known", "0")],
            &[(":status", "200"), ("", "x")],
            &[(":status", "200"), ("a b", "x")],
            &[(":status", "200"), ("a:b", "x")],
            &[(":status", "200"), ("a\x7f", "x")],
        ] {
            assert!(of(fields).malformed.is_some(), "{fields:?}");
        }
        assert!(read(&[0x88, 0x88]).malformed.is_some(), "two statuses of the table");
        assert!(read(&[0x88, 0x84]).malformed.is_some(), "a path of the table");
        // "X-Y", coded.
        const LARGE: KnownText = known!(b"X-Y");
        let coded = [&[0x00, 0x80 | LARGE.coded.len() as u8][..], LARGE.coded, b"\x01z"].concat();
        assert!(read(&coded).malformed.is_some(), "a large letter that is coded");
    }

    #[test]
    fn undecodable_fields_end_the_connection() {
        for block in [&b"\x00\x81\xf0\x00"[..], b"\x08\x81\xf0", b"\xbe", b"\x88\x00"] {
            assert!(ResponseHead::<Counted>::read(block, &mut Vec::new()).is_err(), "{block:x?}");
        }
    }
}
