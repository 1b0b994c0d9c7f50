//! Hooks for measuring: raw HTTP/2 servers, many in one process, that drain a review and allow it.
//!
//! They do as little as a hook can, so that the core they share with the generator is not what is measured. They
//! check the length of what arrived against the gRPC header and repeat the uid: a sidecar that loses or mixes up
//! bytes fails the run.

mod answer;
mod lean;
mod serve;
mod tls;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::net::TcpListener;

use crate::Fallible;

/// `hooks`: how many, and how they behave.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Number of listeners
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// Wait this long before reading a review's body
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0s")]
    delay: Duration,
    /// The first hook never answers
    #[arg(long)]
    hang_first: bool,
    /// Folder with ca.pem, server.pem and server.key: mutual TLS
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Flow-control window of a stream and of a connection, in bytes
    #[arg(long, default_value_t = 1 << 20)]
    window: u32,
}

/// Behaviour of one hook for a review.
#[derive(Clone, Copy, Debug)]
struct Behaviour {
    delay: Duration,
    hangs: bool,
    window: u32,
}

/// Serves until it is killed; prints one `listening hook ADDRESS` line each.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let tls = settings.tls.as_deref().map(tls::acceptor).transpose()?.map(Arc::new);
        for index in 0..settings.count {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("listening hook {}", listener.local_addr()?);
            let hangs = settings.hang_first && index == 0;
            let behaviour = Behaviour { delay: settings.delay, hangs, window: settings.window };
            tokio::spawn(serve::accept(listener, tls.clone(), behaviour));
        }
        std::future::pending().await
    })
}
