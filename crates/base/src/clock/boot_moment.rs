//! BootMoment: a point in time whose age another process of this machine can compute.

use std::{fs, time::Duration};

use super::Moment;

/// A point in time on the clock that goes on while the machine sleeps, and which start of the machine that counts from.
/// Setting the wall clock does not move it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootMoment {
    /// Identity of this start of the machine.
    pub boot: String,
    /// Nanoseconds since that start, or since that of the time namespace.
    pub nanos: u64,
}

impl BootMoment {
    /// Boot moment of `moment`; `None` where the machine does not distinguish its starts.
    pub fn of(moment: Moment) -> Option<Self> {
        let age = Moment::now(super::slept).since(moment).as_nanos();
        let nanos = now()?.saturating_sub(u64::try_from(age).ok()?);
        Some(Self { boot: boot()?, nanos })
    }

    /// A moment whose age is never known.
    pub fn unknown() -> Self {
        Self { boot: String::new(), nanos: 0 }
    }

    /// Age of the moment; `None` where it was before this start of the machine, or has not come yet.
    pub fn age(self) -> Option<Duration> {
        (boot()? == self.boot).then_some(())?;
        now()?.checked_sub(self.nanos).map(Duration::from_nanos)
    }
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn now() -> Option<u64> {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(now.tv_nsec).ok()?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn now() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::slept;

    #[test]
    fn an_age_is_known_within_this_start_of_the_machine_only() {
        let Some(now) = BootMoment::of(Moment::now(slept)) else { return };
        let age = now.clone().age().unwrap();
        assert!(age < Duration::from_secs(60), "{age:?}");
        assert_eq!(BootMoment { boot: "another".into(), ..now.clone() }.age(), None);
        assert_eq!(BootMoment { nanos: u64::MAX, ..now }.age(), None, "it has not come yet");
    }
}
