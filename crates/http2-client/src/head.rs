//! Head: a response's header block, by the rules of HTTP/2, whatever its fields mean. RFC 9113 §8.2 and §8.3.

use super::exchange::{FieldError, HeaderFields};
use crate::hpack::{Coded, DecodedName, DecodedText, Decoder, DecoderError, known};

const STATUS: Coded = known!(b":status");

/// A response's header block.
#[derive(Debug, Default)]
pub(super) struct Head<F> {
    /// `:status`; 0 when absent, as in trailers.
    pub(super) status: u16,
    /// The first thing that must not be in a response, if there is any.
    pub(super) malformed: Option<&'static str>,
    pub(super) fields: F,
    /// Pseudo-headers come first.
    regular: bool,
}

impl<F: HeaderFields> Head<F> {
    /// Reads one whole block. `scratch` is for what has to be decoded.
    ///
    /// # Errors
    /// The connection is beyond use: what the block says cannot be known.
    pub(super) fn read(block: &[u8], scratch: &mut Vec<u8>) -> Result<Self, DecoderError> {
        let mut head = Self::default();
        for field in Decoder::new(block) {
            let field = field?;
            match head.field(field.name, field.value, scratch) {
                Ok(()) => {}
                Err(FieldError::Undecodable(error)) => return Err(error),
                Err(FieldError::Malformed(what)) => head.broken(what),
            }
        }
        Ok(head)
    }

    /// Is another one to follow?
    pub(super) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    fn field(
        &mut self,
        name: DecodedName<'_>,
        value: DecodedText<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), FieldError> {
        match name {
            DecodedName::Static(8..=14) => self.status(value, scratch),
            DecodedName::Text(text) if text.is(STATUS) => self.status(value, scratch),
            DecodedName::Static(1..=7) => Err(FieldError::Malformed(OF_REQUESTS)),
            DecodedName::Static(_) => {
                self.regular = true;
                self.fields.field(name, value, scratch).map(drop)
            }
            DecodedName::Text(text) => {
                if self.fields.field(name, value, scratch)? {
                    self.regular = true;
                    return Ok(());
                }
                self.name(text, scratch)
            }
        }
    }

    /// A name that nobody acts on has to be one all the same.
    fn name(&mut self, text: DecodedText<'_>, scratch: &mut Vec<u8>) -> Result<(), FieldError> {
        text.read(scratch)?;
        let (pseudo, rest) = match scratch.split_first() {
            Some((b':', rest)) => (true, rest),
            _ => (false, &scratch[..]),
        };
        let sound = |byte: &u8| (0x21..0x7f).contains(byte) && *byte != b':' && !byte.is_ascii_uppercase();
        if rest.is_empty() || !rest.iter().all(sound) {
            return Err(FieldError::Malformed("a header's name holds what no name may (they are written small)"));
        }
        if pseudo {
            return Err(FieldError::Malformed(OF_REQUESTS));
        }
        self.regular = true;
        Ok(())
    }

    fn status(&mut self, value: DecodedText<'_>, scratch: &mut Vec<u8>) -> Result<(), FieldError> {
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

    fn broken(&mut self, what: &'static str) {
        self.malformed.get_or_insert(what);
    }
}

const OF_REQUESTS: &str = "it has a pseudo-header that belongs to requests";

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
            name: DecodedName<'_>,
            _: DecodedText<'_>,
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

    fn read(block: &[u8]) -> Head<Counted> {
        Head::read(block, &mut Vec::new()).expect("read")
    }

    fn of(fields: &[(&str, &str)]) -> Head<Counted> {
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
    fn what_contradicts_itself_or_the_protocol_is_malformed() {
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
        const LARGE: Coded = known!(b"X-Y");
        let coded = [&[0x00, 0x80 | LARGE.coded.len() as u8][..], LARGE.coded, b"\x01z"].concat();
        assert!(read(&coded).malformed.is_some(), "a large letter that is coded");
    }

    #[test]
    fn what_cannot_be_decoded_costs_the_connection() {
        for block in [&b"\x00\x81\xf0\x00"[..], b"\x08\x81\xf0", b"\xbe", b"\x88\x00"] {
            assert!(Head::<Counted>::read(block, &mut Vec::new()).is_err(), "{block:x?}");
        }
    }
}
