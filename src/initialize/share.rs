//! Share: the part of a request's time that one initializer may use up.

use std::time::Duration;

/// The longest time that an initializer with this `timeout` may take of what is `left` of a request's time, where the
/// object goes on without it. Each of those `behind` keeps its own longest time, up to an equal share of what is left.
pub fn share(left: Duration, timeout: Duration, behind: &[Duration]) -> Duration {
    let parties = u32::try_from(behind.len()).unwrap_or(u32::MAX).saturating_add(1);
    let equal = left / parties;
    let kept: Duration = behind.iter().map(|longest| equal.min(*longest)).sum();
    timeout.min(left.saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_leaves_those_behind_it_an_equal_share_or_the_time_that_they_want() {
        let ms = Duration::from_millis;
        for (left, timeout, behind, expected) in [
            (9_000, 30_000, &[][..], 9_000),
            (9_000, 2_000, &[], 2_000),
            // All want more than there is.
            (9_000, 30_000, &[30_000], 4_500),
            (9_000, 30_000, &[30_000, 30_000], 3_000),
            // The time that those behind it do not want is its own.
            (9_000, 30_000, &[1_000], 8_000),
            (9_000, 30_000, &[1_000, 30_000], 5_000),
            (9_000, 2_000, &[1_000, 1_000], 2_000),
            (29_000, 10_000, &[10_000, 5_000], 10_000),
            (0, 30_000, &[30_000], 0),
        ] {
            let behind: Vec<_> = behind.iter().copied().map(ms).collect();
            assert_eq!(share(ms(left), ms(timeout), &behind), ms(expected), "{left} {timeout} {behind:?}");
        }
    }

    #[test]
    fn a_row_of_them_that_hang_leaves_the_last_as_much_as_the_first() {
        let mut left = Duration::from_millis(9_900);
        for behind in (0..10).rev() {
            let taken = share(left, Duration::from_secs(30), &vec![Duration::from_secs(30); behind]);
            assert_eq!(taken, Duration::from_millis(990), "{behind} behind it");
            left -= taken;
        }
    }
}
