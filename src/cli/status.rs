//! `status`: the configuration that each replica has in force.

use std::{io::Write as _, time::Duration};

use super::{
    CommandExit,
    adopt::{self, ADOPT_NAMESPACE},
    complain, duration, misused,
    plural::counted,
    replicas::{self, ReplicaArgs},
};
use crate::{
    model::Revision,
    replicas::{ReplicasSeen, wait},
};

mod table;
mod urgent;

const EXAMPLES: &str = "\
Examples:
  gatepost status
      The sidecar on this machine, at 127.0.0.1:9441.
  gatepost status --admin https://10.0.0.1:9441 --admin https://10.0.0.2:9441 --ca ca.crt --json
  gatepost status --wait 4711 --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --expect 3
      Ends when all live replicas, three at least, have the revision at which something was put.
  gatepost status --source kubernetes --kubeconfig kubeconfig --expect 3
      Replicas that publish their status in the cluster's configuration objects.
  gatepost status --wait sha256:0f3a --admin 10.0.0.1:9441 --admin 10.0.0.2:9441
      Ends when both have it in force. A digest may be cut short.

Revisions:
  A number is the store's: etcd's revision, an apiserver's resourceVersion. A replica has it when it has that revision or
  a later one in force, or has read the store at it and rejected nothing. Digests are the same over every source.

Exit codes:
  0  shown; with --wait: every live replica has the revision
  1  with --wait: a replica has rejected it, or time is up; who and why is on stderr
     without: a replica did not answer, or none is live
  6  shown, and above the table stands CERTIFICATE, REGISTRATION or INITIALIZER";

/// Show what each replica has in force, or wait until all have a revision
///
/// The facts that matter in an incident come above the table, the worst first: a serving certificate that is not valid
/// now, a registration that does not send everything (--registration), initializers that nobody attends or that do not
/// act, open break-glass and its end, reads that fail, hooks that fail now, hooks that pass no probe, bypass rules. A replica without a fresh configuration refuses
/// every review. One that rejects the newest configuration keeps the last good one; its problems are shown below the
/// table.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Status {
    #[command(flatten)]
    replicas: ReplicaArgs,

    /// With --source kubernetes: the namespace of the leases of --adopt; how webhooks of others stand is shown below
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE)]
    adopt_namespace: String,

    /// Print the reports as JSON, one array
    #[arg(long, conflicts_with = "wait")]
    json: bool,

    /// End when every live replica has this revision: a number, or sha256: and the beginning of a digest
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    wait: Option<Revision>,

    /// Time to wait for that
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

fn revision(text: &str) -> Result<Revision, &'static str> {
    Revision::parse(text).ok_or("write a number, or sha256: and at least four hex digits of a digest")
}

impl Status {
    /// Asks and prints the table.
    pub fn run(self) -> CommandExit {
        if let Some(why) = self.replicas.misuse() {
            return misused("status", &why);
        }
        let expect = self.replicas.expect.max(1);
        if let Some(wanted) = &self.wait {
            return replicas::wait(self.replicas, self.timeout, |seen| wait::adopted(seen, wanted, expect));
        }
        let cluster = self.replicas.cluster();
        let seen = match replicas::look(self.replicas) {
            Ok(seen) => seen,
            Err(why) => {
                let webhooks = cluster.and_then(|access| adopt::standing(&access, self.adopt_namespace));
                drop(write!(std::io::stdout(), "{}", webhooks.unwrap_or_default().trim_start()));
                return complain(&why);
            }
        };
        let text = if self.json { json(&seen) } else { Ok(table::table(&seen)) };
        match text {
            // A closed stdout is no reason to complain.
            Ok(text) => {
                let webhooks = cluster.filter(|_| !self.json);
                let webhooks = webhooks.and_then(|access| adopt::standing(&access, self.adopt_namespace));
                drop(write!(std::io::stdout(), "{text}{}", webhooks.unwrap_or_default()));
            }
            Err(error) => return complain(&error),
        }
        let is_faulty = seen.reports.iter().any(|report| !report.faults.is_empty());
        let mut ending = if is_faulty { CommandExit::Faulty } else { CommandExit::Good };
        for silent in &seen.silent {
            ending = complain(&format_args!("no answer from {}: {}", silent.place, silent.why));
        }
        if seen.reports.len() < expect && seen.silent.is_empty() {
            let alive = counted(seen.reports.len(), "replica");
            ending = complain(&format_args!("{alive} alive; expected: {expect}"));
        }
        ending
    }
}

fn json(seen: &ReplicasSeen) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&seen.reports)? + "\n")
}
