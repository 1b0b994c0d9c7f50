//! Sizes as people write them: `8MiB`.

/// Units and what they multiply by.
const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// Bytes from a number with a unit (`B`, `KiB`, `MiB`, `GiB`), or without one.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse(text: &str) -> Result<usize, String> {
    let unit = UNITS.iter().find_map(|(unit, times)| Some((text.strip_suffix(unit)?, *times)));
    let (number, times) = unit.unwrap_or((text, 1));
    let bytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(times));
    match bytes {
        Some(0) | None => Err("a size is a positive number of bytes, like 512KiB, 8MiB or 1048576".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// The largest unit that divides the size.
pub fn show(bytes: usize) -> String {
    let whole = |(_, times): &&(&str, usize)| bytes >= *times && bytes.is_multiple_of(*times);
    let largest = UNITS.iter().filter(whole).max_by_key(|(_, times)| *times);
    largest.map_or_else(|| bytes.to_string(), |(unit, times)| format!("{}{unit}", bytes / times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [("1", 1), ("512KiB", 512 << 10), ("8MiB", 8 << 20), ("2 GiB", 2 << 30), ("7B", 7)] {
            assert_eq!(parse(text), Ok(bytes));
        }
        for text in ["", "0", "-1", "8MB", "MiB", "99999999999GiB", "1.5MiB"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(["8MiB", "1025B"].map(|text| parse(text).map(show)), [Ok("8MiB".into()), Ok("1025B".into())]);
    }
}
