//! A caller whose TLS handshake fails is logged, with the side at fault and advice.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

#[path = "support/front.rs"]
mod front;
#[path = "support/tls.rs"]
mod tls;

use std::{
    io,
    sync::{Arc, Mutex},
};

use front::until;
use gatepost::front::{FrontLimits, Listener};
use gatepost_tls::{ServerFiles, ServerTls};
use tls::{Authority, BOTH, Pair, client, connect, files, put, put_pair};
use tokio::{io::AsyncReadExt, net::TcpListener};

/// Lines of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn has(&self, words: &[&str]) -> bool {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().any(|line| line.contains("WARN") && words.iter().all(|word| line.contains(word)))
    }
}

// One runtime on this thread serves, too; each fault is logged at most once a second, and is tried once.
#[tokio::test]
async fn handshake_faults_are_logged_with_reason_and_fix() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _logging = tracing::subscriber::set_default(lines.finish());

    let (authority, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let client_ca = Some(put(folder.path(), "ca.crt", &clients.pem()));
    let serving = Arc::new(ServerTls::load(ServerFiles { client_ca, ..files(folder.path()) }).expect("sound files"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let _sidecar = front::serving(FrontLimits::default(), address, Listener::Tls(listener, serving));
    let call = async |trusted: &Authority, pair: Option<&Pair>| {
        // In TLS 1.3 a client hears with its first read that it was not let in.
        if let Ok(mut stream) = connect(address, &client(trusted, pair, &["http/1.1"], BOTH)).await {
            let _ = stream.read_u8().await;
        }
    };

    call(&authority, None).await;
    until("logged", || log.has(&["peer sent no certificates", "127.0.0.1:9440", "caller=\"127.0.0.1\""])).await;
    call(&authority, Some(&Authority::new("strangers").pair("kube-apiserver", &[]))).await;
    until("logged", || log.has(&["UnknownIssuer", "--client-ca hold the authority", "suppressed=0"])).await;
    call(&Authority::new("another"), Some(&clients.pair("kube-apiserver", &[]))).await;
    until("logged", || log.has(&["does not accept our certificate", "--ca-file"])).await;
}
