//! Descriptors: division of the files that this process may open between callers, hooks and itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::hooks::connection_budget::FURTHER_ATTEMPTS;

/// For the configuration, its source, the admin pages, logs, name servers and listeners.
const OURS: usize = 192;
/// A runtime's own.
const A_WORKER: usize = 4;
/// More is of no use.
const MOST: usize = 1 << 20;
/// Descriptor limit of the programs that we start: some walk through every descriptor that they might have.
const CHILDS: u64 = 1024;

/// Division of the files that this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// All of them.
    pub(super) limit: usize,
    /// Kept for ourselves.
    pub(super) reserved: usize,
    /// Connections of callers.
    pub(super) callers: usize,
    /// Connections to hooks.
    pub(super) hooks: usize,
}

impl Descriptors {
    /// Divides `limit`. Callers get as many as they are to have, or half of what is there, and hooks the others.
    fn divide(limit: usize, callers: usize, workers: usize) -> Self {
        let limit = limit.min(MOST);
        let reserved = ours(workers).min(limit / 2);
        let left = limit - reserved;
        let callers = callers.min(left / 2).max(1);
        Self { limit, reserved, callers, hooks: left.saturating_sub(callers).max(1) }
    }

    /// Raises the limit as far as may be, divides it, and logs the result.
    pub(super) fn of_this_process(callers: usize, workers: usize) -> Self {
        let descriptors = Self::divide(raise(), callers, workers);
        let Self { limit, reserved, hooks, .. } = descriptors;
        if descriptors.callers < callers {
            let needed = ours(workers) + 2 * callers;
            tracing::warn!(
                limit,
                reserved,
                callers = descriptors.callers,
                hooks,
                "too few open files for {callers} connections of callers; raise the hard limit of RLIMIT_NOFILE \
                 (LimitNOFILE=, ulimit -Hn) to {needed} or more"
            );
        } else {
            tracing::info!(
                limit,
                reserved,
                callers,
                hooks,
                "open files divided between callers, hooks and gatepost itself"
            );
        }
        descriptors
    }
}

/// Open files that we want for ourselves.
fn ours(workers: usize) -> usize {
    OURS + FURTHER_ATTEMPTS + A_WORKER.saturating_mul(workers)
}

/// Raises the limit of open files as far as may be, and says what it is then.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = match current == maximum {
        true => current,
        false => match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => maximum,
            Err(error) => {
                tracing::warn!(%error, "cannot raise the limit of open files");
                current
            }
        },
    };
    raised.map_or(usize::MAX, |raised| raised.try_into().unwrap_or(usize::MAX))
}

/// Lowers the limit of open files to the usual one for the programs that we start, which inherit ours.
pub fn lower() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current > CHILDS) {
        // Without it, they may be slow.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(CHILDS), maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_hooks_and_ourselves_fit_into_every_limit() {
        for limit in [16, 100, 256, 1024, 4096, 65_536, 524_288, usize::MAX] {
            let Descriptors { limit, reserved, callers, hooks } = Descriptors::divide(limit, 1024, 2);
            assert_eq!(reserved + callers + hooks, limit, "{limit}");
        }
    }

    #[test]
    fn where_there_are_few_callers_and_hooks_share_them() {
        let few = Descriptors::divide(1024, 1024, 2);
        assert_eq!(few, Descriptors { limit: 1024, reserved: 232, callers: 396, hooks: 396 });
        let many = Descriptors::divide(524_288, 1024, 2);
        assert_eq!((many.callers, many.hooks), (1024, 524_288 - 232 - 1024));
    }

    #[test]
    fn what_the_log_says_is_enough_is_enough() {
        assert_eq!(Descriptors::divide(ours(2) + 2 * 1024, 1024, 2).callers, 1024);
        assert!(Descriptors::divide(ours(2) + 2 * 1024 - 2, 1024, 2).callers < 1024);
    }

    /// As logged where hooks have too few (`rotate::rotator::reporting`).
    #[test]
    fn of_four_files_more_hooks_get_one_at_least() {
        for (limit, more) in
            [16, 32, 33, 100, 300, 470, 1024, 4096].into_iter().zip([1, 7, 100, 1000].into_iter().cycle())
        {
            let [before, after] = [limit, limit + 4 * more].map(|limit| Descriptors::divide(limit, 1024, 2).hooks);
            assert!(after >= before + more, "{limit}: {before}, and {more} more: {after}");
        }
    }

    #[test]
    fn the_limit_is_raised_as_far_as_may_be() {
        let raised = raise();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(current.map_or(usize::MAX, |current| current as usize), raised);
    }
}
