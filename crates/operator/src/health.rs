//! `health`: checks if the local sidecar is ready, for probes of containers without a shell.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use gatepost_api::{Transport, hook::EndpointTls};
use gatepost_tls::{SystemRoots, TlsError, client_config};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::command::{CommandExit, block_on, complain, duration};

/// Maximum size of the response of `/readyz`, in bytes. A sidecar's response has a few lines.
const MAX_ANSWER_BYTES: u64 = 16 << 10;

const EXAMPLES: &str = "\
Examples:
  gatepost health
  gatepost health --admin 127.0.0.1:9441 --timeout 500ms
  gatepost health --admin 10.0.0.1:9441 --ca tls.crt     # an admin address elsewhere than on loopback serves TLS

In a Dockerfile:
  HEALTHCHECK CMD [\"/gatepost\", \"health\"]

Exit codes:
  0  ready
  1  not ready, or no answer; stderr says why";

/// Ask a running sidecar whether it is ready
///
/// Sends one GET of /readyz to the admin address, so that a container needs neither a shell nor curl for its probe.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Health {
    /// The sidecar's admin address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9441")]
    admin: SocketAddr,

    /// Ask over TLS: the authorities (PEM) of the sidecar's certificate, which may be the certificate itself
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// The name that the certificate must have [default: the admin address]
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,

    /// Timeout for connecting and answering together
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    timeout: Duration,
}

impl Health {
    /// Sends the request and prints the response.
    pub fn run(&self) -> CommandExit {
        let tls = match self.ca.as_ref().map(|ca| self.tls(ca)).transpose() {
            Ok(tls) => tls,
            Err(error) => return complain(&error),
        };
        match get_readyz(self.admin, tls, self.timeout) {
            Ok(answer) if answer.ready => CommandExit::Good,
            Ok(answer) => complain(&format_args!("{} says: {}", self.admin, answer.text)),
            Err(error) => complain(&format_args!("no answer from {}: {error}", self.admin)),
        }
    }

    fn tls(&self, ca: &PathBuf) -> Result<EndpointTls, String> {
        let name = self.server_name.clone().unwrap_or_else(|| self.admin.ip().to_string());
        let pem = std::fs::read(ca).map_err(|error| format!("{}: {error}; --ca must name a file", ca.display()))?;
        Ok(EndpointTls { server_name: name.into(), ca_pem: Some(pem.into()), client_pem: None })
    }
}

/// Response of `/readyz`.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    ready: bool,
    text: String,
}

fn get_readyz(admin: SocketAddr, tls: Option<EndpointTls>, within: Duration) -> io::Result<Answer> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long");
    block_on(async { timeout(within, ask(admin, tls)).await.map_err(late)? }).map_err(io::Error::other)?
}

async fn ask(admin: SocketAddr, tls: Option<EndpointTls>) -> io::Result<Answer> {
    let stream = TcpStream::connect(admin).await?;
    let Some(tls) = tls else { return exchange(stream, admin).await };
    let unusable = |error: TlsError| io::Error::other(format!("{error}; {}", error.fix()));
    let config = client_config(&tls, Transport::Http, &SystemRoots::default()).map_err(unusable)?;
    let name = ServerName::try_from(tls.server_name.to_string()).map_err(io::Error::other)?;
    exchange(TlsConnector::from(config).connect(name, stream).await?, admin).await
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, admin: SocketAddr) -> io::Result<Answer> {
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut received = Vec::new();
    match stream.take(MAX_ANSWER_BYTES + 1).read_to_end(&mut received).await {
        // At UnexpectedEof, TLS ended without a close alert. The status line that was read is sufficient.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ if received.len() as u64 > MAX_ANSWER_BYTES => Err(invalid_response()),
        _ => parse_answer(&received),
    }
}

fn invalid_response() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "whatever listens there is not gatepost's admin address")
}

/// Parses an HTTP/1.1 response. Its code decides; the body is for messages.
fn parse_answer(received: &[u8]) -> io::Result<Answer> {
    /// First bytes of an alert, the same from TLS 1.0 to 1.3.
    const ALERT: [u8; 2] = [21, 3];
    if received.starts_with(&ALERT) {
        let what = "it speaks TLS: name the authority of its certificate by --ca FILE";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let text = String::from_utf8_lossy(received);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(invalid_response)?;
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).ok_or_else(invalid_response)?;
    Ok(Answer { ready: code == "200", text: body.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Asks a server that answers with these bytes.
    fn answered(with: &'static [u8], timeout: Duration) -> io::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            stream.write_all(with).unwrap();
            if with.is_empty() {
                // Says nothing until the asker hangs up.
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            }
            String::from_utf8(asked).unwrap()
        });
        let answer = get_readyz(address, None, timeout);
        assert!(peer.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
        answer
    }

    #[test]
    fn health_is_ready_by_status_200() {
        let answer = answered(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n", TIMEOUT).unwrap();
        assert_eq!(answer, Answer { ready: true, text: "ok".into() });
    }

    #[test]
    fn health_prints_why_it_is_not_ready() {
        let answer = answered(b"HTTP/1.1 503 Service Unavailable\r\n\r\nnot ready: shutting down", TIMEOUT).unwrap();
        assert_eq!(answer, Answer { ready: false, text: "not ready: shutting down".into() });
    }

    #[test]
    fn health_recognises_another_server() {
        let error = answered(b"220 mail.example.com ESMTP\r\n\r\n", TIMEOUT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn health_times_out_without_an_answer() {
        let error = answered(b"", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn health_fails_where_nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(get_readyz(address, None, TIMEOUT).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
