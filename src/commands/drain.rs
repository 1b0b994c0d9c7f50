//! `drain`: may a hook's endpoint, or an initializer's processes, be switched off?

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
/// still call it. This waits until every live replica, with a fresh configuration, has neither it nor such a review.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Drain {
    /// Its name, its id, or an endpoint as /configz writes it
    #[arg(value_name = "HOOK", value_parser = NonEmptyStringValueParser::new())]
    hook: String,

    #[command(flatten)]
    replicas: ReplicaArgs,

    /// Time to wait
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    timeout: Duration,
}

impl Drain {
    /// Asks until it is gone, and prints the result.
    pub fn run(self) -> CommandExit {
        if let Some(why) = self.replicas.misuse() {
            return misused("drain", &why);
        }
        let expect = self.replicas.expect;
        replicas::wait(self.replicas, self.timeout, |seen| wait::drained(seen, &self.hook, expect))
    }
}
