//! Durations, timestamps and time zones of the language.

use std::{fmt, sync::LazyLock};

use jiff::tz::{TimeZone, TimeZoneDatabase};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Duration(pub(super) i64);

/// A point in time, from year 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp {
    /// Seconds since the start of 1970 in UTC.
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// First and last second of a timestamp.
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

/// A date and time in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    /// January 1 is 0.
    pub(super) day_of_year: i64,
    /// Sunday is 0.
    pub(super) day_of_week: i64,
}

impl Duration {
    /// Parses a duration as Go's `time.ParseDuration` does.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        let mut nanos: u64 = 0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let whole = &rest[..digits];
            rest = &rest[digits..];
            let mut fraction = "";
            if let Some(behind) = rest.strip_prefix('.') {
                let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
                fraction = &behind[..digits];
                rest = &behind[digits..];
            }
            if whole.is_empty() && fraction.is_empty() {
                return None;
            }
            let unit_len = rest.bytes().take_while(|byte| *byte != b'.' && !byte.is_ascii_digit()).count();
            let unit: u64 = match &rest[..unit_len] {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return None,
            };
            rest = &rest[unit_len..];
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            // As in Go, to the last bit: a fraction is a double.
            let (mut part, mut scale) = (0_u64, 1.0);
            for digit in fraction.bytes() {
                let longer = part.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
                let Some(longer) = longer.filter(|longer| *longer <= 1 << 63) else { break };
                part = longer;
                scale *= 10.0;
            }
            let part = (part as f64 * (unit as f64 / scale)) as u64;
            nanos = nanos.checked_add(whole.checked_mul(unit)?.checked_add(part)?)?;
        }
        let nanos = i128::from(nanos);
        i64::try_from(if negative { -nanos } else { nanos }).ok().map(Self)
    }
}

/// Returns the nanoseconds of a duration such as `1m30s`, parsed as by Go's `time.ParseDuration`.
pub fn parse_go_duration(text: &str) -> Option<i64> {
    Duration::parse(text).map(|duration| duration.0)
}

impl fmt::Display for Duration {
    /// Formats the duration as cel-go does: in seconds, as a double.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", (self.0 / NANOS_PER_SECOND) as f64 + (self.0 % NANOS_PER_SECOND) as f64 / 1e9)
    }
}

impl Timestamp {
    /// The first of all, which is Go's zero.
    pub(super) const MIN: Self = Self { seconds: MIN_SECONDS, nanos: 0 };

    pub(super) fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// Parses RFC 3339 as Go does.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |at: usize, len: usize| -> Option<i64> {
            let part = bytes.get(at..at + len)?;
            part.iter()
                .all(u8::is_ascii_digit)
                .then(|| part.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0')))
        };
        let sign = |at: usize, sign: u8| (bytes.get(at) == Some(&sign)).then_some(());
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        // Go needs but one digit of the hour.
        let digits = if bytes.get(12) == Some(&b':') { 1 } else { 2 };
        let (hour, minutes) = (number(11, digits)?, 12 + digits);
        let (minute, second) = (number(minutes, 2)?, number(minutes + 3, 2)?);
        let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (minutes - 1, b':'), (minutes + 2, b':')];
        signs.into_iter().try_for_each(|(at, byte)| sign(at, byte))?;
        if !(1..=12).contains(&month)
            || day < 1
            || day > days_in(year, month)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        let (mut at, mut nanos) = (minutes + 5, 0_u32);
        if bytes.get(at) == Some(&b'.') || bytes.get(at) == Some(&b',') {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            for place in 0..9 {
                let digit = if place < digits { bytes[at + 1 + place] - b'0' } else { 0 };
                nanos = nanos * 10 + u32::from(digit);
            }
            at += 1 + digits;
        }
        let offset = match &bytes[at..] {
            [b'Z'] => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
                if hours > 24 || minutes > 60 {
                    return None;
                }
                (if *sign == b'-' { -1 } else { 1 }) * (hours * 3600 + minutes * 60)
            }
            _ => return None,
        };
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Self::new(seconds, nanos)
    }

    /// Returns the date and time at an offset, in seconds east of Greenwich.
    pub(super) fn civil(self, offset: i64) -> Civil {
        let seconds = self.seconds + offset;
        let days = seconds.div_euclid(86_400);
        let rest = seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            day_of_year: days - days_from_civil(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
        }
    }

    pub(super) fn plus(self, span: Duration) -> Option<Self> {
        let nanos = i64::from(self.nanos) + span.0 % NANOS_PER_SECOND;
        let seconds =
            self.seconds.checked_add(span.0 / NANOS_PER_SECOND)?.checked_add(nanos.div_euclid(NANOS_PER_SECOND))?;
        Self::new(seconds, u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).ok()?)
    }

    pub(super) fn since(self, other: Self) -> Option<Duration> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(NANOS_PER_SECOND)?;
        seconds.checked_add(i64::from(self.nanos) - i64::from(other.nanos)).map(Duration)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, .. } = self.civil(0);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A time zone: an offset in seconds east of Greenwich, or a name in the IANA database.
#[derive(Clone, Debug)]
pub(super) enum Zone {
    Fixed(i64),
    Named(TimeZone),
}

/// The bundled database, so that a condition has the same result on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Zone {
    /// Parses `UTC`, `+01:30` or `Europe/Berlin`. As in Go's `time.LoadLocation`, case matters; `Local` is rejected.
    pub(super) fn parse(zone: &str) -> Option<Self> {
        if zone.is_empty() || zone == "UTC" {
            return Some(Self::Fixed(0));
        }
        let Some((hours, minutes)) = zone.split_once(':') else {
            return ZONES.get(zone).ok().filter(|found| found.iana_name() == Some(zone)).map(Self::Named);
        };
        let negative = hours.starts_with('-');
        let hours: i64 = hours.strip_prefix(['-', '+']).unwrap_or(hours).parse().ok()?;
        let minutes: i64 = minutes.parse().ok().filter(|minutes| (0..1440).contains(minutes))?;
        let seconds = (0..24).contains(&hours).then_some(hours * 3600 + minutes * 60)?;
        Some(Self::Fixed(if negative { -seconds } else { seconds }))
    }

    /// Returns the seconds east of Greenwich at that time.
    pub(super) fn offset(&self, time: Timestamp) -> i64 {
        match self {
            Self::Fixed(offset) => *offset,
            // The library has all timestamps except those of the last hours.
            Self::Named(zone) => {
                jiff::Timestamp::from_second(time.seconds).map_or(0, |time| i64::from(zone.to_offset(time).seconds()))
            }
        }
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}
