//! Limits of the operating system on this process: open files, which are divided between callers, hooks and Gatepost
//! itself, and memory, into which the budget of reviews must fit.
//!
//! A process that exceeds its cgroup's memory limit is killed, and one that exceeds RLIMIT_AS aborts at an allocation;
//! both lose every review in flight. So the budget is reduced before the first review. The start does not fail, because
//! a sidecar that does not start blocks every write.

use std::{
    fmt, fs,
    path::{Component, Path, PathBuf},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::hooks::MAX_FURTHER_ATTEMPTS;

/// Files for the configuration, its source, the admin pages, logs, name servers and listeners.
const RESERVED_FILES: usize = 192;
/// Files of each runtime.
const FILES_PER_WORKER: usize = 4;
/// Maximum number of files that are divided; more would be of no use.
const MAX_FILES: usize = 1 << 20;
/// File limit of programs that we start: some of them visit every descriptor that they may have.
const CHILD_FILE_LIMIT: u64 = 1024;

/// Division of the files that this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// All files.
    pub(super) limit: usize,
    /// Files of Gatepost itself.
    pub(super) reserved: usize,
    /// Connections of callers.
    pub(super) callers: usize,
    /// Connections to hooks.
    pub(super) hooks: usize,
}

impl Descriptors {
    /// Divides `limit`. Callers get `callers` connections, at most half of the unreserved files; hooks get the rest.
    fn divide(limit: usize, callers: usize, workers: usize) -> Self {
        let limit = limit.min(MAX_FILES);
        let reserved = own_files(workers).min(limit / 2);
        let left = limit - reserved;
        let callers = callers.min(left / 2).max(1);
        Self { limit, reserved, callers, hooks: left.saturating_sub(callers).max(1) }
    }

    /// Raises the limit as far as possible, divides it, and logs the result.
    pub(super) fn of_this_process(callers: usize, workers: usize) -> Self {
        let descriptors = Self::divide(raise_file_limit(), callers, workers);
        let Self { limit, reserved, hooks, .. } = descriptors;
        if descriptors.callers < callers {
            let needed = own_files(workers) + 2 * callers;
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

/// Returns the number of files that Gatepost itself needs.
fn own_files(workers: usize) -> usize {
    RESERVED_FILES + MAX_FURTHER_ATTEMPTS + FILES_PER_WORKER.saturating_mul(workers)
}

/// Raises the limit of open files as far as possible, and returns the limit then in force.
pub fn raise_file_limit() -> usize {
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

/// Lowers the limit of open files to the usual one, for programs that we start and that inherit it.
pub fn lower_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current > CHILD_FILE_LIMIT) {
        // A program with a higher limit is slower, no more.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(CHILD_FILE_LIMIT), maximum });
    }
}

/// Maximum memory of the process, as a multiple of its budget.
const BUDGET_FACTOR: usize = 2;
/// Memory besides that multiple: code, threads, the configuration, connections.
const FIXED_MEMORY: usize = 64 << 20;
/// Address space besides memory: arenas of the allocator, stacks of threads.
const EXTRA_ADDRESS_SPACE: usize = 1 << 30;

/// Memory limit of this process and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryLimit {
    /// Limit of the process's cgroup, or of one of its ancestors.
    Cgroup(usize),
    /// Limit set by `ulimit -v`.
    AddressSpace(usize),
}

impl MemoryLimit {
    /// Returns the largest budget that fits.
    fn budget(self) -> usize {
        match self {
            Self::Cgroup(limit) => limit.saturating_sub(FIXED_MEMORY) / BUDGET_FACTOR,
            Self::AddressSpace(limit) => limit.saturating_sub(FIXED_MEMORY + EXTRA_ADDRESS_SPACE) / BUDGET_FACTOR,
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(limit) => write!(f, "the memory limit of the cgroup, {} MiB", limit >> 20),
            Self::AddressSpace(limit) => write!(
                f,
                "RLIMIT_AS (ulimit -v), {} MiB, which ends the process at an allocation; set a cgroup's memory limit",
                limit >> 20
            ),
        }
    }
}

/// Returns `wanted`, or the largest budget that fits; never less than one of the largest reviews needs.
pub(super) fn fitting_budget(wanted: usize, largest: usize) -> usize {
    let found = bounds(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    let tightest = found.into_iter().chain(address_space()).min_by_key(|bound| bound.budget());
    let (budget, too_little) = fit(wanted, largest, tightest);
    if let (Some(bound), true) = (tightest, budget != wanted || too_little) {
        tracing::warn!(
            "--max-inflight-bytes is {} MiB and not {}: {BUDGET_FACTOR} times that and {} MiB have to fit into {bound}{}",
            budget >> 20,
            wanted >> 20,
            FIXED_MEMORY >> 20,
            if too_little { "; even that is too much, and the process may be killed" } else { "" },
        );
    }
    let needed = needed(largest);
    if budget < needed {
        tracing::warn!(
            "a review of --max-message-bytes, {largest} bytes, does not fit into the {budget} bytes of \
             --max-inflight-bytes and is refused each time: raise that to {needed} or more, or lower --max-message-bytes"
        );
    }
    budget
}

/// Returns the budget into which one review of `largest` bytes fits: reviews may use three quarters of it.
fn needed(largest: usize) -> usize {
    largest.saturating_add(largest / 3).saturating_add(64 << 10)
}

/// Returns the budget, and true if even this budget is too large.
fn fit(wanted: usize, largest: usize, bound: Option<MemoryLimit>) -> (usize, bool) {
    let fits = bound.map_or(usize::MAX, MemoryLimit::budget);
    let least = needed(largest).min(wanted);
    (wanted.min(fits).max(least), fits < least)
}

fn address_space() -> Option<MemoryLimit> {
    getrlimit(Resource::As).current.map(|limit| MemoryLimit::AddressSpace(usize::try_from(limit).unwrap_or(usize::MAX)))
}

/// Returns the memory limit of the process's cgroups. `listed` names them (cgroups(7)): `0::/path` for version 2,
/// `5:memory:/path` for version 1. A limit that cannot be read is ignored.
fn bounds(listed: &Path, mounted: &Path) -> Option<MemoryLimit> {
    let listed = fs::read_to_string(listed).ok()?;
    let limits = listed.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next().unwrap_or_default(), fields.next().unwrap_or("/"));
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => (mounted.join("memory"), "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        ancestors(&root, Path::new(path)).filter_map(|folder| limit(&folder.join(file))).collect()
    });
    limits.min().map(MemoryLimit::Cgroup)
}

/// Returns the folder of a cgroup and its ancestors up to the root. Only the root has limits if the path is not visible
/// to us.
fn ancestors(root: &Path, path: &Path) -> impl Iterator<Item = PathBuf> {
    let inside: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let root = root.to_owned();
    let folders: Vec<_> = inside.ancestors().map(|folder| root.join(folder)).collect();
    folders.into_iter()
}

/// Reads a limit. `None` for `max`, and for version 1's number near 2^63.
fn limit(file: &Path) -> Option<usize> {
    let limit: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < 1 << 60).then(|| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_budget_fits_into_the_memory_there_is() {
        let largest = 16 * MIB;
        assert_eq!(fit(512 * MIB, largest, None), (512 * MIB, false));
        assert_eq!(fit(512 * MIB, largest, Some(MemoryLimit::Cgroup(2048 * MIB))), (512 * MIB, false));
        assert_eq!(fit(512 * MIB, largest, Some(MemoryLimit::Cgroup(1088 * MIB))), (512 * MIB, false), "just so");
        assert_eq!(fit(512 * MIB, largest, Some(MemoryLimit::Cgroup(512 * MIB))), (224 * MIB, false));
        let (least, too_little) = fit(512 * MIB, largest, Some(MemoryLimit::Cgroup(64 * MIB)));
        assert!(too_little && least - least / 4 >= largest, "{least}");
        assert_eq!(
            fit(10 * MIB, largest, Some(MemoryLimit::Cgroup(64 * MIB))),
            (10 * MIB, true),
            "never more than wanted"
        );
        assert_eq!(fit(512 * MIB, largest, Some(MemoryLimit::AddressSpace(2048 * MIB))), (480 * MIB, false));
    }

    #[test]
    fn the_tightest_cgroup_around_us_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let listed = root.join("listed");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || bounds(&listed, root);
        assert_eq!(found(), None, "no cgroups");
        write("listed", "0::/pods/a\n");
        write("pods/a/memory.max", "max\n");
        assert_eq!(found(), None);
        write("pods/memory.max", "1000000\n");
        assert_eq!(found(), Some(MemoryLimit::Cgroup(1_000_000)), "one around us");
        write("pods/a/memory.max", "500000\n");
        assert_eq!(found(), Some(MemoryLimit::Cgroup(500_000)));
        // In a container the path is often one of outside.
        write("listed", "0::/../../kubepods/b\n");
        write("memory.max", "700000\n");
        assert_eq!(found(), Some(MemoryLimit::Cgroup(700_000)));
        // Version 1.
        write("listed", "12:cpu,cpuacct:/x\n5:memory:/docker/c\n");
        write("memory/docker/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(), None);
        write("memory/memory.limit_in_bytes", "300000\n");
        assert_eq!(found(), Some(MemoryLimit::Cgroup(300_000)));
    }

    #[test]
    fn callers_hooks_and_ourselves_fit_into_every_limit() {
        for limit in [16, 100, 256, 1024, 4096, 65_536, 524_288, usize::MAX] {
            let Descriptors { limit, reserved, callers, hooks } = Descriptors::divide(limit, 1024, 2);
            assert_eq!(reserved + callers + hooks, limit, "{limit}");
        }
    }

    #[test]
    fn few_open_files_are_shared_by_callers_and_hooks() {
        let few = Descriptors::divide(1024, 1024, 2);
        assert_eq!(few, Descriptors { limit: 1024, reserved: 232, callers: 396, hooks: 396 });
        let many = Descriptors::divide(524_288, 1024, 2);
        assert_eq!((many.callers, many.hooks), (1024, 524_288 - 232 - 1024));
    }

    #[test]
    fn file_limit_advised_by_the_log_is_enough() {
        assert_eq!(Descriptors::divide(own_files(2) + 2 * 1024, 1024, 2).callers, 1024);
        assert!(Descriptors::divide(own_files(2) + 2 * 1024 - 2, 1024, 2).callers < 1024);
    }

    /// As logged where hooks have too few (`rotate::rotator`).
    #[test]
    fn hooks_get_one_of_four_more_open_files() {
        for (limit, more) in
            [16, 32, 33, 100, 300, 470, 1024, 4096].into_iter().zip([1, 7, 100, 1000].into_iter().cycle())
        {
            let [before, after] = [limit, limit + 4 * more].map(|limit| Descriptors::divide(limit, 1024, 2).hooks);
            assert!(after >= before + more, "{limit}: {before}, and {more} more: {after}");
        }
    }

    #[test]
    fn the_limit_is_raised_as_far_as_may_be() {
        let raised = raise_file_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(current.map_or(usize::MAX, |current| current as usize), raised);
    }
}
