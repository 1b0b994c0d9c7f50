//! `Retry-After`: seconds, or the date of RFC 9110 §5.6.7.

use std::time::{Duration, SystemTime};

/// How long to wait from `now`; `None` where the value is neither.
pub(super) fn read(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(date(text)?))?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// Seconds from 1970 to a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. The two older spellings are not read, as
/// nobody has to write them any more.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_weekday, rest) = text.strip_suffix(" GMT")?.split_once(", ")?;
    let mut words = rest.split(' ');
    let (day, month, year, clock) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let number = |text: &str| text.parse::<u64>().ok();
    let (day, year) = (number(day)?, number(year)?);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let mut clock = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // 719,468 days lie between March of the year 0 and 1970.
    Some((days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |text: &str| read(text.as_bytes(), now).map(|wait| wait.as_secs());
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(read("Sat, 05 Nov 1994 08:49:37 GMT"), Some(0), "long ago is now");
        assert_eq!(read("Fri, 06 Nov 2076 08:49:37 GMT"), Some(82 * 365 * 86_400 + 21 * 86_400));
        for unreadable in ["", "-1", "+1", "1.5", "soon", "99999999999999999999", "Sun, 06 Foo 1994 08:49:37 GMT"] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }

    #[test]
    fn leap_days_count() {
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(date("Wed, 01 Mar 2000 00:00:00 GMT"), Some(951_868_800));
    }
}
