//! A small apiserver that stores objects before they are initialized: an example of what such an apiserver asks Gatepost, and
//! a fixture of its end-to-end test. Not for use: it believes every client, and keeps quota in memory.
//!
//! ```text
//! etcd & gatepost serve --config FOLDER --plaintext &
//! cargo run --example apiserver -- --etcd 127.0.0.1:2379 --gatepost http://127.0.0.1:9440
//! kubectl --server http://127.0.0.1:8080 create --validate=false -f configmap.json
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "what a program says of itself")]

mod apiserver;
mod etcd;
mod follower;
mod http;
mod kind;
mod object;
mod query;
mod quota;
mod refusal;
mod sidecar;
mod steps;
mod watch;
mod write;

use apiserver::Apiserver;
use clap::Parser;
use etcd::{Etcd, Failure};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use quota::Quota;
use sidecar::Sidecars;
use tokio::net::TcpListener;

/// Serve a few kinds over etcd, with Gatepost's initializers.
#[derive(Parser)]
struct Flags {
    /// Address for clients
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// etcd
    #[arg(long, default_value = "127.0.0.1:2379")]
    etcd: String,
    /// Gatepost: one URL each replica
    #[arg(long, default_value = "http://127.0.0.1:9440")]
    gatepost: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let sidecars = Sidecars::new(&flags.gatepost)?;
    // For as long as the process lives.
    let apiserver: &'static Apiserver =
        Box::leak(Box::new(Apiserver { etcd: Etcd::new(&flags.etcd), quota: Quota::default(), sidecars }));
    apiserver.count().await?;
    for channel in apiserver.sidecars.followed() {
        tokio::spawn(follower::follow(apiserver, channel));
    }
    let listener = TcpListener::bind(&flags.listen).await?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let service = service_fn(|request| http::answer(apiserver, request));
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}
