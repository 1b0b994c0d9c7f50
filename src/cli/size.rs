//! Sizes as people write them: `8MiB`.

use std::{fmt, str::FromStr};

/// Units and what they multiply by.
const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// A number of bytes, at least one, written with a unit (`B`, `KiB`, `MiB`, `GiB`) or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    /// A sentence that says what is expected.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unit = UNITS.iter().find_map(|(unit, times)| Some((text.strip_suffix(unit)?, *times)));
        let (number, times) = unit.unwrap_or((text, 1));
        let bytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(times));
        match bytes {
            Some(0) | None => Err("a size is a positive number of bytes, like 512KiB, 8MiB or 1048576"),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for Size {
    /// In the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, times): &&(&str, usize)| self.0.is_multiple_of(*times);
        match UNITS.iter().filter(whole).max_by_key(|(_, times)| *times) {
            Some((unit, times)) => write!(f, "{}{unit}", self.0 / times),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [("1", 1), ("512KiB", 512 << 10), ("8MiB", 8 << 20), ("2 GiB", 2 << 30), ("7B", 7)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "0", "-1", "8MB", "MiB", "99999999999GiB", "1.5MiB"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
        assert_eq!([8 << 20, 1025].map(|bytes| Size(bytes).to_string()), ["8MiB", "1025B"]);
    }
}
