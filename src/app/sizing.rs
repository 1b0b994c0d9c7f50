//! Sizing: the memory budget beside what memory this process may have at all.
//!
//! A process that a cgroup allows too little is killed, one that RLIMIT_AS allows too little aborts at an allocation:
//! both with every review in flight. So the budget is made to fit before the first review. It is made smaller and not
//! refused: a sidecar that does not start lets no write pass.

use std::{
    fmt, fs,
    path::{Component, Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};

/// Most memory of the process, as a multiple of its budget.
pub(super) const FACTOR: usize = 2;
/// And beside it: code, threads, the configuration, connections.
pub(super) const BASE: usize = 64 << 20;
/// Address space that is taken beside memory: arenas of the allocator, stacks of threads.
const ADDRESSES: usize = 1 << 30;

/// Memory limit of this process and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Its cgroup or one around it.
    Cgroup(usize),
    /// `ulimit -v`.
    AddressSpace(usize),
}

impl Bound {
    /// The largest budget that fits.
    fn budget(self) -> usize {
        match self {
            Self::Cgroup(limit) => limit.saturating_sub(BASE) / FACTOR,
            Self::AddressSpace(limit) => limit.saturating_sub(BASE + ADDRESSES) / FACTOR,
        }
    }
}

impl fmt::Display for Bound {
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

/// The budget that is wanted, or what of it fits; never less than one of the largest reviews needs.
pub(super) fn fitting(wanted: usize, largest: usize) -> usize {
    let found = bounds(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    let tightest = found.into_iter().chain(address_space()).min_by_key(|bound| bound.budget());
    let (budget, too_little) = fit(wanted, largest, tightest);
    if let (Some(bound), true) = (tightest, budget != wanted || too_little) {
        tracing::warn!(
            "--max-inflight-bytes is {} MiB and not {}: {FACTOR} times that and {} MiB have to fit into {bound}{}",
            budget >> 20,
            wanted >> 20,
            BASE >> 20,
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

/// The budget into which one of the largest reviews fits: reviews have three quarters of it.
fn needed(largest: usize) -> usize {
    largest.saturating_add(largest / 3).saturating_add(64 << 10)
}

/// The budget, and whether it is too much all the same.
fn fit(wanted: usize, largest: usize, bound: Option<Bound>) -> (usize, bool) {
    let fits = bound.map_or(usize::MAX, Bound::budget);
    let least = needed(largest).min(wanted);
    (wanted.min(fits).max(least), fits < least)
}

fn address_space() -> Option<Bound> {
    getrlimit(Resource::As).current.map(|limit| Bound::AddressSpace(usize::try_from(limit).unwrap_or(usize::MAX)))
}

/// The limits of the cgroups that this process is in. `listed` says which (cgroups(7)): `0::/path` of version 2, and
/// `5:memory:/path` of version 1. A limit that cannot be read bounds nothing.
fn bounds(listed: &Path, mounted: &Path) -> Option<Bound> {
    let listed = fs::read_to_string(listed).ok()?;
    let limits = listed.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next().unwrap_or_default(), fields.next().unwrap_or("/"));
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => (mounted.join("memory"), "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        around(&root, Path::new(path)).filter_map(|folder| limit(&folder.join(file))).collect()
    });
    limits.min().map(Bound::Cgroup)
}

/// The folder of a cgroup and those around it, up to the root; where the path is not what we see, the root alone
/// counts.
fn around(root: &Path, path: &Path) -> impl Iterator<Item = PathBuf> {
    let inside: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let root = root.to_owned();
    let folders: Vec<_> = inside.ancestors().map(|folder| root.join(folder)).collect();
    folders.into_iter()
}

/// `max`, or version 1's number near 2^63, is no limit.
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
        assert_eq!(fit(512 * MIB, largest, Some(Bound::Cgroup(2048 * MIB))), (512 * MIB, false));
        assert_eq!(fit(512 * MIB, largest, Some(Bound::Cgroup(1088 * MIB))), (512 * MIB, false), "just so");
        assert_eq!(fit(512 * MIB, largest, Some(Bound::Cgroup(512 * MIB))), (224 * MIB, false));
        let (least, too_little) = fit(512 * MIB, largest, Some(Bound::Cgroup(64 * MIB)));
        assert!(too_little && least - least / 4 >= largest, "{least}");
        assert_eq!(fit(10 * MIB, largest, Some(Bound::Cgroup(64 * MIB))), (10 * MIB, true), "never more than wanted");
        assert_eq!(fit(512 * MIB, largest, Some(Bound::AddressSpace(2048 * MIB))), (480 * MIB, false));
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
        assert_eq!(found(), Some(Bound::Cgroup(1_000_000)), "one around us");
        write("pods/a/memory.max", "500000\n");
        assert_eq!(found(), Some(Bound::Cgroup(500_000)));
        // In a container the path is often one of outside.
        write("listed", "0::/../../kubepods/b\n");
        write("memory.max", "700000\n");
        assert_eq!(found(), Some(Bound::Cgroup(700_000)));
        // Version 1.
        write("listed", "12:cpu,cpuacct:/x\n5:memory:/docker/c\n");
        write("memory/docker/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(), None);
        write("memory/memory.limit_in_bytes", "300000\n");
        assert_eq!(found(), Some(Bound::Cgroup(300_000)));
    }
}
