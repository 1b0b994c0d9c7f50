//! Lines: the lines of one file, plain or gzip, in bounded memory.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// The longest line that is looked at: a review's names may be as long as its caller likes, and no longer than a
/// review.
const LONGEST: usize = 16 << 20;
/// Read at once.
const PART: usize = 256 << 10;
/// Compressions that others use, by their first bytes and the program that undoes them.
const FOREIGN: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xz -dc"), (b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"BZh", "bzip2 -dc")];

/// The lines of one file.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    /// The line that was read last, without its end.
    line: Vec<u8>,
}

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A line, and whether its end is there.
    Line(&'a [u8], bool),
    /// A line that is too long to be looked at.
    TooLong,
    /// Nothing more.
    End,
}

impl Lines {
    /// The lines of what is read there, unpacked where it is gzip, whatever its name.
    ///
    /// # Errors
    /// It cannot be read, or is compressed in another way.
    pub(super) fn of(raw: impl Read + 'static) -> io::Result<Self> {
        let mut raw = BufReader::with_capacity(PART, raw);
        let begins = raw.fill_buf()?;
        if let Some((_, program)) = FOREIGN.iter().find(|(magic, _)| begins.starts_with(magic)) {
            let how = format!("it is compressed, and not by gzip: unpack it, `{program} FILE | gatepost audit -`");
            return Err(io::Error::new(io::ErrorKind::Unsupported, how));
        }
        let reader: Box<dyn BufRead> = match begins.starts_with(b"\x1f\x8b") {
            true => Box::new(BufReader::with_capacity(PART, MultiGzDecoder::new(raw))),
            false => Box::new(raw),
        };
        Ok(Self { reader, line: Vec::new() })
    }

    /// The next line.
    ///
    /// # Errors
    /// The file cannot be read on, or its gzip breaks off.
    pub(super) fn next(&mut self) -> io::Result<Found<'_>> {
        self.line.clear();
        let most = LONGEST as u64 + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(Found::End);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            return Ok(Found::Line(&self.line, true));
        }
        if read as u64 == most {
            self.line = Vec::new();
            self.reader.skip_until(b'\n')?;
            return Ok(Found::TooLong);
        }
        Ok(Found::Line(&self.line, false))
    }

    /// The line that was read last.
    pub(super) fn last(&self) -> &[u8] {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).expect("room");
        encoder.finish().expect("room")
    }

    fn read(bytes: Vec<u8>) -> (Vec<String>, Option<io::ErrorKind>) {
        let mut lines = match Lines::of(io::Cursor::new(bytes)) {
            Ok(lines) => lines,
            Err(error) => return (Vec::new(), Some(error.kind())),
        };
        let mut all = Vec::new();
        loop {
            match lines.next() {
                Ok(Found::Line(line, whole)) => {
                    all.push(String::from_utf8_lossy(line).into_owned() + if whole { "" } else { "|" });
                }
                Ok(Found::TooLong) => all.push("long".to_owned()),
                Ok(Found::End) => return (all, None),
                Err(error) => return (all, Some(error.kind())),
            }
        }
    }

    #[test]
    fn plain_and_gzip_are_read_alike_to_the_last_byte_there_is() {
        assert_eq!(read(b"a\n\nb".to_vec()).0, ["a", "", "b|"]);
        assert_eq!(read(gzip(b"a\nb\n")).0, ["a", "b"]);
        assert_eq!(read([gzip(b"a\n"), gzip(b"b\n")].concat()).0, ["a", "b"], "as `cat` joins them");
        assert_eq!(read(Vec::new()), (vec![], None));
        let mut cut = gzip(&(0..9999).map(|n| format!("{n}\n")).collect::<String>().into_bytes());
        cut.truncate(cut.len() / 2);
        let (lines, error) = read(cut);
        assert!(lines.len() > 10 && error == Some(io::ErrorKind::UnexpectedEof), "{} {error:?}", lines.len());
        assert_eq!(read(b"\xfd7zXZ\0\0\0".to_vec()).1, Some(io::ErrorKind::Unsupported));
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_the_longest() {
        let rubbish = io::repeat(0).take(3 * LONGEST as u64).chain(io::Cursor::new(b"\na\n"));
        let mut lines = Lines::of(rubbish).expect("reads");
        assert_eq!(lines.next().expect("reads"), Found::TooLong);
        assert!(lines.line.capacity() <= 2 * (LONGEST + 1), "{}", lines.line.capacity());
        assert_eq!(lines.next().expect("reads"), Found::Line(b"a", true));
        assert_eq!(lines.next().expect("reads"), Found::End);
    }
}
