//! Rig: for one number of hooks, the hooks of every variant and the sidecars before them.
//!
//! Every variant has hook processes of its own, so that their counts show which way a write took, and how often.

use std::{net::SocketAddr, thread, time::Duration};

use tempfile::TempDir;

use super::{
    hooks::Hooks,
    programs::Programs,
    registration,
    repetition::Cpu,
    sidecar::Sidecar,
    task::{Kind, Task},
    variant::Variant,
};
use crate::{Fallible, certificates, process::cpu_time};

/// Time for which everything is watched without writes.
const IDLE: Duration = Duration::from_secs(3);

/// Hooks and sidecars, running. Everything but the apiserver ends when it is dropped.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) count: usize,
    pub(super) task: Task,
    stands: Vec<Stand>,
    apiservers: (u32, Option<u32>),
    _folder: TempDir,
}

/// Processes of one variant.
#[derive(Debug)]
struct Stand {
    variant: Variant,
    hooks: Hooks,
    sidecar: Option<Sidecar>,
    /// Registration for the apiserver; for the one with the plugin, which asks at one socket, the configuration of the
    /// sidecar at it.
    registered: Option<String>,
}

impl Rig {
    /// Starts `count` hooks for each of `variants` that has any, and the sidecars.
    pub(super) fn start(
        programs: &Programs,
        variants: &[Variant],
        (task, count): (Task, usize),
        apiservers: (u32, Option<u32>),
    ) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        certificates::write(folder.path())?;
        let mut stands = Vec::new();
        for variant in variants.iter().copied().filter(|variant| *variant != Variant::None) {
            let count = if variant.is_none() { 0 } else { count };
            let hooks = Hooks::start(&programs.hook, variant, &task, count, folder.path())?;
            let at_socket = stands.iter().any(|stand: &Stand| stand.variant.has_plugin());
            let sidecar = match variant.has_sidecar() && !(variant.has_plugin() && at_socket) {
                true => Some(Sidecar::start(programs, (variant, task.kind), &hooks, folder.path())?),
                false => None,
            };
            let registered = match &sidecar {
                _ if variant.has_plugin() => {
                    Some(registration::for_gatepost((variant, task.kind), &hooks.addresses, folder.path())?)
                }
                // Everything that is asked in one way is registered by hand; mutating hooks as an operator would.
                Some(sidecar) if task.kind == Kind::Mutating => {
                    Some(sidecar.registration(programs, (variant, task.kind), folder.path())?)
                }
                Some(_) if variant.has_service() => {
                    Some(registration::behind_service(task.kind, variant, folder.path())?)
                }
                Some(sidecar) => Some(registration::stock(task.kind, &[sidecar.address], folder.path())?),
                None => Some(registration::stock(task.kind, &hooks.addresses, folder.path())?),
            };
            stands.push(Stand { variant, hooks, sidecar, registered });
        }
        Ok(Self { count, task, stands, apiservers, _folder: folder })
    }

    /// Registration for `variant`: each hook, the one sidecar, or nothing.
    pub(super) fn registered(&self, variant: Variant) -> Option<String> {
        self.stand(variant)?.registered.clone().filter(|_| !variant.has_plugin())
    }

    /// Has the sidecar at the socket of the plugin call the hooks of `variant`, if that is a way of the plugin.
    pub(super) fn configure(&self, variant: Variant) -> Fallible<()> {
        let stand = self.stand(variant).filter(|_| variant.has_plugin());
        match (stand.and_then(|stand| stand.registered.as_ref()), self.sidecar(variant)) {
            (Some(document), Some(sidecar)) => sidecar.configure(document),
            _ => Ok(()),
        }
    }

    /// The sidecar of `variant`.
    fn sidecar(&self, variant: Variant) -> Option<&Sidecar> {
        let mut stands = self.stands.iter();
        match variant.has_plugin() {
            true => stands.find(|stand| stand.variant.has_plugin())?.sidecar.as_ref(),
            false => self.stand(variant)?.sidecar.as_ref(),
        }
    }

    /// Address of the sidecar of `variant`.
    pub(super) fn address(&self, variant: Variant) -> Option<SocketAddr> {
        self.sidecar(variant).map(|sidecar| sidecar.address)
    }

    /// Calls of each hook of each variant so far.
    pub(super) fn asked(&self) -> Fallible<Vec<Vec<u64>>> {
        self.stands.iter().map(|stand| stand.hooks.counts()).collect()
    }

    /// Calls of all hooks since `before`. An error unless each hook of `variant` was asked as often as it should be in
    /// `writes` writes, and no other hook at all.
    pub(super) fn check(&self, variant: Variant, before: &[Vec<u64>], writes: u64) -> Fallible<u64> {
        let mut calls = 0;
        for ((stand, before), after) in self.stands.iter().zip(before).zip(self.asked()?) {
            let writes_of_it = if stand.variant == variant { writes } else { 0 };
            let asked: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            let as_it_should =
                |(number, asked): (usize, &u64)| self.task.calls(stand.variant, number, writes_of_it).contains(asked);
            if !(1..).zip(&asked).all(as_it_should) {
                let name = stand.variant.label();
                return Err(format!("VOID: after {writes} writes, hooks of {name} were asked {asked:?} times").into());
            }
            calls += asked.iter().sum::<u64>();
        }
        Ok(calls)
    }

    /// CPU so far of those that have a part in `variant`.
    pub(super) fn cpu(&self, variant: Variant) -> Fallible<Cpu> {
        let stand = self.stand(variant);
        let sidecar = self.sidecar(variant).map(Sidecar::pid);
        let seconds = |pid: Option<u32>| -> Fallible<f64> {
            Ok(pid.map(cpu_time).transpose()?.unwrap_or_default().as_secs_f64())
        };
        let (stock, plugged) = self.apiservers;
        Ok(Cpu {
            apiserver: seconds(if variant.has_plugin() { plugged } else { Some(stock) })?,
            sidecar: seconds(sidecar)?,
            hooks: seconds(stand.map(|stand| stand.hooks.pid()))?,
        })
    }

    /// CPU seconds a second while nobody writes: the apiserver, all sidecars, all hooks.
    pub(super) fn idle(&self) -> Fallible<Cpu> {
        let before = self.all()?;
        thread::sleep(IDLE);
        Ok(self.all()?.since(&before).per(IDLE.as_secs_f64()))
    }

    fn all(&self) -> Fallible<Cpu> {
        let mut all = self.cpu(Variant::None)?;
        for stand in &self.stands {
            let mut cpu = self.cpu(stand.variant)?;
            if stand.sidecar.is_none() {
                cpu.sidecar = 0.0;
            }
            all = Cpu { sidecar: all.sidecar + cpu.sidecar, hooks: all.hooks + cpu.hooks, ..all };
        }
        Ok(all)
    }

    fn stand(&self, variant: Variant) -> Option<&Stand> {
        self.stands.iter().find(|stand| stand.variant == variant)
    }
}
