//! Size: size of an object, written as people write it.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

/// Bytes of one object; written `2K`, `1M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) usize);

impl Size {
    /// The sizes of the table.
    pub(crate) const TABLE: [Size; 4] = [Size(2 << 10), Size(32 << 10), Size(256 << 10), Size(1 << 20)];
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes % (1 << 20) == 0 => write!(f, "{}M", bytes >> 20),
            bytes if bytes > 0 && bytes % (1 << 10) == 0 => write!(f, "{}K", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, shift) = match text.strip_suffix(['K', 'k']) {
            Some(digits) => (digits, 10),
            None => text.strip_suffix(['M', 'm']).map_or((text, 0), |digits| (digits, 20)),
        };
        let number: usize = digits.parse().map_err(|_| format!("{text:?} is no size; write 2048, 2K or 1M"))?;
        Ok(Self(number << shift))
    }
}
