//! Durations as Go writes them: `10s`, `1m30s`, `500ms`, `1.5h`.

use std::time::Duration;

/// Duration of a text that is not negative, as Go's `time.ParseDuration` reads it; `None` of any other.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut whole = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let number = leading(rest, |sign| sign.is_ascii_digit() || sign == '.')?;
        rest = &rest[number.len()..];
        let unit = leading(rest, |sign| !sign.is_ascii_digit() && sign != '.')?;
        rest = &rest[unit.len()..];
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (integer.is_empty() && fraction.is_empty()) {
            return None;
        }
        let unit = nanos(unit)?;
        let integer = if integer.is_empty() { 0 } else { integer.parse::<u64>().ok()? };
        whole = whole.checked_add(Duration::from_nanos(integer.checked_mul(unit)?))?;
        whole = whole.checked_add(Duration::from_nanos(part(fraction, unit)))?;
    }
    Some(whole)
}

/// The longest beginning of that sort; `None` when there is none.
fn leading(text: &str, sort: impl Fn(char) -> bool) -> Option<&str> {
    let end = text.find(|sign| !sort(sign)).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

fn nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The digits after the point, as nanoseconds.
fn part(digits: &str, unit: u64) -> u64 {
    let (mut nanos, mut scale) = (0, unit);
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        // No unit has so many nanoseconds that ten times of it would overflow.
        nanos += scale * u64::from(digit - b'0') / 10;
        scale /= 10;
    }
    nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_writes_is_read() {
        for (text, millis) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1000),
            ("0s", 0),
            ("0", 0),
            ("2000us", 2),
            ("3000000ns", 3),
            ("1h0m0.25s", 3_600_250),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "+1s",
            "1 s",
            "1S",
            "1d",
            ".s",
            "1..5s",
            "1.2.3s",
            "1s1",
            "99999999999999999999s",
            "9999999h99999999999h",
            "1e3s",
            "%31s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
