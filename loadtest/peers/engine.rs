//! Engine: what evaluates the policies, set up and started by `loadtest/peers/engine`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::ValueEnum;
use serde::Serialize;

use crate::Fallible;

/// An engine of policies, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Engine {
    /// No policies
    None,
    /// Gatepost, ValidatingAdmissionPolicies
    Gatepost,
    /// Kyverno, ValidatingPolicies
    Kyverno,
    /// Gatekeeper, templates in CEL
    GatekeeperCel,
    /// Gatekeeper, templates in Rego
    GatekeeperRego,
}

impl Engine {
    /// All of them, in the order of the tables.
    pub(super) const ALL: [Self; 5] =
        [Self::None, Self::Gatepost, Self::Kyverno, Self::GatekeeperCel, Self::GatekeeperRego];

    /// As it is written in files, and as the script takes it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gatepost => "gatepost",
            Self::Kyverno => "kyverno",
            Self::GatekeeperCel => "gatekeeper-cel",
            Self::GatekeeperRego => "gatekeeper-rego",
        }
    }

    /// As it is written for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::None => "no policies",
            Self::Gatepost => "Gatepost",
            Self::Kyverno => "Kyverno, CEL",
            Self::GatekeeperCel => "Gatekeeper, CEL",
            Self::GatekeeperRego => "Gatekeeper, Rego",
        }
    }
}

/// An engine that runs; stopped, and taken out of the apiserver, when it is dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    script: &'a Path,
    engine: Engine,
    /// None without policies.
    pub(super) pid: Option<u32>,
}

impl<'a> Running<'a> {
    /// Has the script start it; ready when this returns, but the apiserver may not call it yet.
    pub(super) fn start(script: &'a PathBuf, engine: Engine) -> Fallible<Self> {
        let mut running = Self { script, engine, pid: None };
        if engine == Engine::None {
            return Ok(running);
        }
        let output = Command::new(script).args(["start", engine.as_str()]).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("{} does not start: see above", engine.label()).into());
        }
        running.pid = Some(String::from_utf8_lossy(&output.stdout).trim().parse()?);
        Ok(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.engine != Engine::None {
            let _ = Command::new(self.script).args(["stop", self.engine.as_str()]).status();
        }
    }
}
