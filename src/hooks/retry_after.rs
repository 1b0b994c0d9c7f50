//! `Retry-After` as client-go reads it: a whole number of seconds. A date is none.

use std::time::Duration;

/// Pause to keep; `None` where the value is no number. One below zero is no pause. Source: `retryAfterSeconds` in
/// client-go's `rest/request.go`, by Go's `strconv.Atoi`.
pub(super) fn read(value: &[u8]) -> Option<Duration> {
    let seconds: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_read_and_nothing_else() {
        let read = |text: &str| read(text.as_bytes()).map(|wait| wait.as_secs());
        for (text, seconds) in
            [("7", 7), ("0", 0), ("+7", 7), ("007", 7), ("-1", 0), ("9223372036854775807", 9_223_372_036_854_775_807)]
        {
            assert_eq!(read(text), Some(seconds), "{text}");
        }
        for unreadable in [
            "",
            " 7",
            "1.5",
            "1_0",
            "0x1",
            "soon",
            "-",
            "7,8",
            "9223372036854775808",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Fri, 06 Nov 2076 08:49:37 GMT",
        ] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }
}
