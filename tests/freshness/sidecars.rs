//! Sidecars: the processes whose verdicts are judged, and the hook they ask.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{Fallible, Plan, process::Process, records};

/// Prefix of the configuration in etcd.
pub(crate) const PREFIX: &str = "/gatepost/config/";

/// The hook that every change names anew; it says yes.
pub(crate) struct Hook {
    _process: Process,
    url: String,
}

impl Hook {
    pub(crate) fn start(plan: &Plan, folder: &Path) -> Fallible<Self> {
        let mut command = Command::new(&plan.gatepost);
        command.args(["hook", "--listen", "127.0.0.1:0"]);
        let process = Process::start("hook", command, folder)?;
        let url = process.line("listening ")?;
        Ok(Self { _process: process, url })
    }

    /// The configuration after a change: one hook, named for it. Its endpoint is proven, so that it is asked at once.
    pub(crate) fn document(&self, change: usize) -> String {
        document("default", &self.entry(&records::hook(change), "*/*"))
    }

    /// A document of so many hooks about a resource that no review is about.
    pub(crate) fn others(&self, number: usize) -> String {
        let entry = |number| self.entry(&format!("other-{number}.example.com"), &format!("others{number}"));
        document("others", &(0..number).map(entry).collect::<String>())
    }

    fn entry(&self, name: &str, resources: &str) -> String {
        format!(
            "- name: {name}\n  clientConfig: {{url: '{}'}}\n  \
             rules: [{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['{resources}']}}]\n  \
             failurePolicy: Fail\n  timeout: 5s\n  sideEffects: None\n",
            self.url
        )
    }
}

fn document(name: &str, hooks: &str) -> String {
    format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
         externalAdmissionHooks:\n{hooks}"
    )
}

/// A running sidecar.
pub(crate) struct Sidecar {
    process: Process,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl Sidecar {
    pub(crate) fn start(plan: &Plan, number: usize, endpoints: &[String], folder: &Path) -> Fallible<Self> {
        let log = folder.join(format!("sidecar{number}.audit.jsonl"));
        let mut command = Command::new(&plan.gatepost);
        command.args(["serve", "--source", "etcd", "--etcd-prefix", PREFIX, "--plaintext", "--workers", "1"]);
        for endpoint in endpoints {
            command.args(["--etcd-endpoint", endpoint]);
        }
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--audit-log"]).arg(&log);
        let process = Process::start(&format!("sidecar{number}"), command, folder)?;
        let address = process.address("tcp")?;
        Ok(Self { process, address, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it in an orderly way, which writes out its audit log; what stands there then.
    pub(crate) fn stop(self) -> Fallible<String> {
        signal("TERM", self.process.pid())?;
        let until = Instant::now() + Duration::from_secs(60);
        // It is ours, so it stays in the table of processes until it is dropped; a zombie has no command line.
        let runs = || fs::read(format!("/proc/{}/cmdline", self.process.pid())).is_ok_and(|line| !line.is_empty());
        while runs() {
            if Instant::now() > until {
                return Err("a sidecar does not stop".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(fs::read_to_string(&self.log)?)
    }
}

/// Sends a signal to a process that we have started.
pub(crate) fn signal(name: &str, pid: u32) -> Fallible<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status()?;
    if sent.success() { Ok(()) } else { Err(format!("SIG{name} cannot be sent to {pid}").into()) }
}
