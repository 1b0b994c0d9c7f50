//! Hops: number of Gateposts that a review has passed through.
//!
//! A hook that is a Gatepost is sent this number, and refuses a review that has come too far: a configuration that
//! points back at itself would otherwise ask itself, and every hook beside, again and again until time is up.

/// Number of Gateposts that a review has passed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hops(u8);

impl Hops {
    /// Header, or gRPC metadata, that carries the number to hooks.
    pub const HEADER: &'static str = "gatepost-hops";
    /// Hops of a review that no Gatepost has passed on yet.
    pub const FIRST: Self = Self(1);
    /// A review that has passed through so many is refused. Chains of two or three are in use; more is a circle.
    pub const LIMIT: Self = Self(4);

    /// The number in a header's value: one to three digits, no more than 255.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let digits = (1..=3).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let number = value.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0')));
        if digits { number.try_into().ok().map(Self) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number once this Gatepost has passed the review on.
    #[must_use]
    pub const fn passed_on(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Has the review come too far to be asked about?
    pub fn is_too_many(self) -> bool {
        self >= Self::LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        for (value, hops) in [("0", Some(0)), ("1", Some(1)), ("007", Some(7)), ("255", Some(255))] {
            assert_eq!(Hops::parse(value.as_bytes()).map(Hops::get), hops, "{value}");
        }
        for value in ["", "256", "0001", "-1", "+1", "1 ", "1,2", "x"] {
            assert_eq!(Hops::parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn the_limit_is_reached_by_passing_on_and_never_wraps() {
        let mut hops = Hops::default();
        for passed in 0..Hops::LIMIT.get() {
            assert!(!hops.is_too_many(), "{passed}");
            hops = hops.passed_on();
        }
        assert!(hops.is_too_many());
        assert_eq!(Hops(255).passed_on(), Hops(255));
        assert_eq!(Hops::default().passed_on(), Hops::FIRST);
    }
}
