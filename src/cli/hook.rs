//! `hook`: a ready gRPC hook, for trials.

mod deny_if;
mod service;

use std::{io::Write, net::SocketAddr, path::PathBuf, time::Duration};

use http::Request;
use hyper::body::Incoming;
use tokio::runtime::Builder;
use tower_service::Service as _;

use self::{
    deny_if::DenyIf,
    service::{Behaviour, Service},
};
use super::{CommandExit, complain, duration, hook_listener::HookListener};
use crate::{tls::server_config, wire::pb::gatepost::v1::admission_server::AdmissionServer};

const EXAMPLES: &str = "\
Conditions of --deny-if are PLACE=VALUE; a * at either end of VALUE stands for anything:
  always                              every review
  operation=DELETE                    also: kind, group, resource, subresource, namespace, name, user
  /metadata/labels/team=              a JSON pointer into the object: no such label, or an empty one
  /spec/containers/0/image=*:latest   the first container's image ends in :latest

Examples:
  gatepost hook --deny-if '/spec/containers/0/image=*:latest'
  gatepost hook --listen 127.0.0.1:9002 --delay 200ms
  gatepost hook --uds /run/hook.sock --fail-rate 0.1";

/// Run a gRPC hook for trials: it allows everything by default
///
/// Serves gatepost.v1.Admission and the standard health service. Prints its address on stdout, and one line for each
/// review on stderr; never an object's content. Ends on Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct HookArgs {
    /// Address to serve on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9001", conflicts_with = "uds")]
    listen: SocketAddr,
    /// Unix socket to serve on instead
    #[arg(long, value_name = "PATH")]
    uds: Option<PathBuf>,
    /// Certificate chain (PEM): serve TLS
    #[arg(long, value_name = "PATH", requires = "tls_key", conflicts_with = "uds")]
    tls_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Certificate authorities (PEM) that must have signed the caller's certificate
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    client_ca: Option<PathBuf>,
    /// Deny reviews that meet this condition; repeat for more, any suffices
    #[arg(long, value_name = "CONDITION")]
    deny_if: Vec<DenyIf>,
    /// Delay each answer by this time
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration)]
    delay: Duration,
    /// Fail this share of the calls with status UNAVAILABLE, evenly spread
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = share)]
    fail_rate: f64,
    /// Warn with this text in every answer; repeat for more
    #[arg(long, value_name = "TEXT")]
    warn: Vec<String>,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "must be a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be a number from 0 to 1".to_owned()) }
}

impl HookArgs {
    /// Serves until Ctrl-C.
    pub fn run(self) -> CommandExit {
        match self.serve() {
            Ok(()) => CommandExit::Good,
            Err(error) => complain(&error),
        }
    }

    fn serve(self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(chain), Some(key)) => {
                let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
                let client_ca = self.client_ca.as_ref().map(read).transpose()?;
                Some(server_config(&read(chain)?, &read(key)?, client_ca.as_deref())?)
            }
            _ => None,
        };
        let behaviour =
            Behaviour { deny_if: self.deny_if, delay: self.delay, fail_rate: self.fail_rate, warnings: self.warn };
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let listener = match self.uds {
                Some(path) => HookListener::unix(&path)?,
                None => HookListener::tcp(self.listen, tls)?,
            };
            // Where stdout is closed nobody wants to know.
            let _ = writeln!(std::io::stdout(), "listening {}", listener.url());
            let stop = async {
                // Without a signal handler the hook runs until it is killed.
                let _ = tokio::signal::ctrl_c().await;
            };
            let service = AdmissionServer::new(Service::new(behaviour)).max_decoding_message_size(16 << 20);
            let (health, health_service) = tonic_health::server::health_reporter();
            health.set_serving::<AdmissionServer<Service>>().await;
            let answer = move |request: Request<Incoming>| {
                let (mut service, mut health_service) = (service.clone(), health_service.clone());
                async move {
                    if request.uri().path().starts_with("/grpc.health.v1.Health/") {
                        health_service.call(request).await
                    } else {
                        service.call(request).await
                    }
                }
            };
            listener.serve(answer, stop).await;
            Ok(())
        })
    }
}
