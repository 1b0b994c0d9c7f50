//! `drain`: waits until no replica calls a hook or an initializer that was removed.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use gatepost_operator::command::{CommandExit, duration, misused};

use super::replicas::{self, ReplicaArgs};
use crate::replicas::wait;

const EXAMPLES: &str = "\
Examples:
  gatepost drain images.example.com
      Is that hook gone from the sidecar on this machine, at 127.0.0.1:9441?
  gatepost drain images.example.com --admin 10.0.0.1:9441 --admin 10.0.0.2:9441 --timeout 2m
  gatepost drain images.example.com --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --expect 3
  gatepost drain images.example.com --source kubernetes --kubeconfig kubeconfig --expect 3
  gatepost drain grpcs://10.1.0.7:9001
      After a hook has moved: does any replica still call the old endpoint?

To remove a hook, or an initializer that a process acts for:
  1. Take its entry out of the configuration.
  2. gatepost drain NAME
  3. When that has ended with 0, switch the endpoint off, or stop the processes.

Exit codes:
  0  no replica calls it, nor will one: its endpoint may be switched off, or its processes be stopped
  1  it is still configured or draining when time is up, no replica knows it, or another hook is called there; see stderr";

/// Wait until no replica calls a hook or an initializer that was removed
///
/// A hook or initializer that was removed from the configuration gets no new reviews, but reviews that began before may
/// still call it. This command waits until every live replica has a fresh configuration without it, and no such review.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Drain {
    /// Name or id of the hook or initializer, or an endpoint as /configz shows it
    #[arg(value_name = "HOOK", value_parser = NonEmptyStringValueParser::new())]
    hook: String,

    #[command(flatten)]
    replicas: ReplicaArgs,

    /// Time to wait
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    timeout: Duration,
}

impl Drain {
    /// Reads the replicas' reports until no replica calls it, and prints the result.
    pub fn run(self) -> CommandExit {
        if let Some(why) = self.replicas.misuse() {
            return misused("drain", &why);
        }
        let expect = self.replicas.expect;
        replicas::wait(self.replicas, self.timeout, |seen| wait::drained(seen, &self.hook, expect))
    }
}
