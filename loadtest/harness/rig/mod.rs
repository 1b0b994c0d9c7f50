//! Rig: hooks and both sidecars, started and warm, ready for load.

mod config;
mod load;
mod sidecar;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

pub(crate) use load::{Load, Shape};
pub(crate) use sidecar::{Side, Sidecar, metric, wait_until_ready};
use tempfile::TempDir;

use crate::{
    Fallible, certificates,
    generate::Report,
    machine::Pinning,
    plan::{Ours, Plan},
    process::{Process, pinned},
};

/// The programs and where they run; made once per run of the orchestrator.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) compare: PathBuf,
    pub(crate) counted: PathBuf,
    pub(crate) gatepost: PathBuf,
    /// Build of the product that stands on naive's side
    pub(crate) against: Option<PathBuf>,
    pub(crate) pinning: Pinning,
    pub(crate) ours: Ours,
    pub(crate) ours_arguments: Vec<String>,
}

impl Workshop {
    /// The programs the plan means.
    pub(crate) fn new(plan: &Plan) -> Fallible<Self> {
        let mut workshop = Self::beside_this_program(plan.ours)?;
        workshop.ours_arguments.clone_from(&plan.ours_arguments);
        workshop.against.clone_from(&plan.against);
        if let Some(gatepost) = &plan.gatepost {
            workshop.gatepost.clone_from(gatepost);
        }
        Ok(workshop)
    }

    /// The release build this program is part of.
    pub(crate) fn beside_this_program(ours: Ours) -> Fallible<Self> {
        let compare = env::current_exe()?;
        let examples = compare.parent().ok_or("this program has no folder")?;
        let release = examples.parent().unwrap_or(examples);
        Ok(Self {
            counted: examples.join("counted"),
            gatepost: release.join("gatepost"),
            against: None,
            compare: compare.clone(),
            pinning: Pinning::detect(),
            ours,
            ours_arguments: Vec::new(),
        })
    }
}

/// Hooks of a rig, and the build of its sidecars.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting {
    pub(crate) hooks: usize,
    pub(crate) tls: bool,
    pub(crate) counted: bool,
    pub(crate) delay: Duration,
    pub(crate) first: Hooks,
}

/// Difference of the first hook from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// Not at all
    #[default]
    Alike,
    /// It sees config maps only, fails open and may take 100 ms
    Apart,
    /// The same, and it never answers
    Hangs,
}

/// Hooks, and a sidecar a side. Everything ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Rig<'a> {
    workshop: &'a Workshop,
    pub(crate) naive: Sidecar,
    pub(crate) ours: Sidecar,
    _hooks: Process,
    folder: TempDir,
}

impl<'a> Rig<'a> {
    /// Starts hooks and sidecars and waits until they are ready.
    pub(crate) fn start(workshop: &'a Workshop, setting: Setting) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        if setting.tls {
            certificates::write(folder.path())?;
        }
        let hooks = Process::start("hooks", hooks_command(workshop, setting, folder.path()), folder.path())?;
        let addresses = (0..setting.hooks).map(|_| hooks.address("hook")).collect::<Fallible<Vec<_>>>()?;
        let config = folder.path().join("config.yaml");
        let tls = setting.tls.then(|| folder.path());
        fs::write(&config, config::write(&addresses, tls, setting.first))?;
        let naive = Sidecar::start(workshop, Side::Naive, setting, &addresses, folder.path())?;
        let ours = Sidecar::start(workshop, Side::Ours, setting, &addresses, folder.path())?;
        Ok(Self { workshop, naive, ours, _hooks: hooks, folder })
    }

    /// A path in the rig's own folder, gone with it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The sidecar of a side.
    pub(crate) fn sidecar(&self, side: Side) -> &Sidecar {
        match side {
            Side::Naive => &self.naive,
            Side::Ours => &self.ours,
        }
    }

    /// Puts one load on one side.
    pub(crate) fn run(&self, side: Side, load: &Load) -> Fallible<Report> {
        load.start(self.workshop, self.sidecar(side))?.report().map_err(|error| {
            let stderr = format!("{}.stderr", side.as_str());
            let said = fs::read_to_string(self.folder.path().join(stderr)).unwrap_or_default();
            format!("{} sidecar: {error}; it said: {said}", side.as_str()).into()
        })
    }

    /// The same load on either side in turn, `reps` times; the order alternates.
    pub(crate) fn interleaved(&self, reps: usize, load: &Load) -> Fallible<Vec<Pair>> {
        let mut pairs = Vec::with_capacity(reps);
        for rep in 0..reps {
            let pair = if rep % 2 == 0 {
                let naive = self.run(Side::Naive, load)?;
                Pair { naive, ours: self.run(Side::Ours, load)? }
            } else {
                let ours = self.run(Side::Ours, load)?;
                Pair { naive: self.run(Side::Naive, load)?, ours }
            };
            pairs.push(pair);
            // Lets sockets and timers of the run before settle.
            thread::sleep(Duration::from_millis(50));
        }
        Ok(pairs)
    }
}

/// One repetition.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Pair {
    pub(crate) naive: Report,
    pub(crate) ours: Report,
}

impl Pair {
    /// Without the histograms: closed loops are not about latency, and the raw data is kept in the repository.
    pub(crate) fn slim(mut self) -> Self {
        self.naive.histogram = Vec::new();
        self.ours.histogram = Vec::new();
        self
    }
}

fn hooks_command(workshop: &Workshop, setting: Setting, folder: &Path) -> Command {
    let mut command = pinned(workshop.pinning.load, &workshop.compare);
    command.arg("hooks").arg("--count").arg(setting.hooks.to_string());
    command.arg("--delay").arg(humantime::format_duration(setting.delay).to_string());
    if setting.first == Hooks::Hangs {
        command.arg("--hang-first");
    }
    if setting.tls {
        command.arg("--tls").arg(folder);
    }
    command
}
