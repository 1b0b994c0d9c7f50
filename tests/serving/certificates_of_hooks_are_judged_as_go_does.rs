//! Certificates of hooks are believed as Go's client believes them, which is what an apiserver asks webhooks with:
//! every row of `tests/certificates/odd.json`, and every difference named in `tests/certificates/differences.tsv`.
#![allow(clippy::expect_used, reason = "test code")]

use std::{collections::BTreeMap, fs, sync::Arc};

use gatepost_api::{Transport, hook::EndpointTls};
use gatepost_tls::{SystemRoots, client_config, server_verifier};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    go: String,
    /// PEM, by name.
    keys: BTreeMap<String, String>,
    rows: Vec<Row>,
}

/// One webhook and one `caBundle`, and what Go's client made of them.
#[derive(Deserialize)]
struct Row {
    name: String,
    host: String,
    bundle: String,
    chain: String,
    key: String,
    #[serde(default)]
    suites: Vec<u16>,
    accepted: bool,
    #[serde(default)]
    says: String,
}

/// Shows what it is given, however odd.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn read<T>(name: &str, parse: impl Fn(&str) -> T) -> T {
    let path = format!("{}/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"));
    parse(&fs::read_to_string(path).expect("a table"))
}

fn table() -> Table {
    read("odd.json", |text| serde_json::from_str(text).expect("a table"))
}

impl Row {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(|one| one.expect("PEM")).collect()
    }

    /// Result of the verifier by itself.
    fn verified(&self) -> Result<(), String> {
        let verifier = server_verifier(self.bundle.as_bytes()).map_err(|error| error.to_string())?;
        let chain = self.chain();
        let name = ServerName::try_from(self.host.as_str()).map_err(|error| error.to_string())?;
        let verified = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }

    fn client(&self) -> Arc<ClientConfig> {
        let endpoint = EndpointTls {
            server_name: self.host.as_str().into(),
            ca_pem: Some(self.bundle.as_bytes().into()),
            client_pem: None,
        };
        client_config(&endpoint, Transport::Http, &SystemRoots::default()).expect("a bundle that was verified with")
    }

    /// The webhook, where rustls has its key and its suites.
    fn server(&self, keys: &BTreeMap<String, String>) -> Result<Arc<ServerConfig>, String> {
        let mut provider = aws_lc_rs::default_provider();
        let key = PrivateKeyDer::from_pem_slice(keys[&self.key].as_bytes()).expect("a key");
        let key = provider.key_provider.load_private_key(key).map_err(|error| error.to_string())?;
        let mut versions = vec![&TLS13, &TLS12];
        if !self.suites.is_empty() {
            versions = vec![&TLS12];
            let wanted = |suite: CipherSuite| self.suites.contains(&u16::from(suite));
            provider.cipher_suites.retain(|suite| wanted(suite.suite()));
        }
        let shown = Arc::new(Shown(Arc::new(CertifiedKey::new(self.chain(), key))));
        let builder = ServerConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&versions);
        let builder = builder.map_err(|error| error.to_string())?.with_no_client_auth();
        Ok(Arc::new(builder.with_cert_resolver(shown)))
    }
}

/// Carries what one side has to say to the other.
fn carry(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("into memory");
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("from memory");
        to.process_new_packets()?;
    }
    Ok(())
}

/// A whole handshake, and what comes after it.
fn shake(client: Arc<ClientConfig>, server: Arc<ServerConfig>, host: &str) -> Result<HandshakeKind, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut client = Connection::from(ClientConnection::new(client, name).map_err(|error| error.to_string())?);
    let mut server = Connection::from(ServerConnection::new(server).map_err(|error| error.to_string())?);
    for _ in 0..4 {
        let to_server = carry(&mut client, &mut server);
        carry(&mut server, &mut client).map_err(|error| error.to_string())?;
        to_server.map_err(|error| error.to_string())?;
    }
    client.handshake_kind().ok_or_else(|| "no handshake".to_owned())
}

#[test]
fn certificate_verdicts_equal_go_s_except_named_differences() {
    let table = table();
    let mut differences: BTreeMap<String, String> = read("differences.tsv", |text| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.split_once('\t').expect("a row and a reason"))
            .map(|(a, b)| (a.into(), b.into()))
            .collect()
    });
    let mut failures = Vec::new();
    let mut shaken = 0;
    for row in &table.rows {
        let verified = row.verified();
        let mut ours = verified.clone();
        if verified.is_ok() {
            match row.server(&table.keys) {
                Ok(server) => {
                    shaken += 1;
                    ours = shake(row.client(), server, &row.host).map(drop);
                }
                // A key or suites that aws-lc-rs does not have for a server, it does not have for us either.
                Err(why) => ours = Err(why),
            }
        }
        let reason = differences.remove(&row.name);
        if (ours.is_ok() == row.accepted) == reason.is_some() {
            let go = if row.accepted { "accepts" } else { row.says.as_str() };
            failures.push(format!("{}: ours {ours:?}, {} {go}; named: {reason:?}", row.name, table.go));
        }
    }
    failures.extend(differences.into_keys().map(|name| format!("{name}: named as a difference, and no row")));
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), table.rows.len(), failures.join("\n"));
    assert!(table.rows.len() > 150 && shaken > 60, "{} rows, {shaken} handshakes", table.rows.len());
}

#[test]
fn faults_of_an_authority_are_reported() {
    let table = table();
    for (name, wanted) in [
        ("the authority: expired", "the certificate of its authority has expired: renew it"),
        ("the authority: CA:FALSE", "the certificate of its authority is not an authority"),
        ("the authority: keyUsage without keyCertSign", "has a keyUsage without keyCertSign"),
        ("CA:TRUE, its authority has expired", "the certificate of its authority has expired"),
        ("CA:TRUE, its authority permits such names", "has name constraints"),
        ("extendedKeyUsage: clients", "its certificate has an extendedKeyUsage that leaves this use out"),
        ("expired", "certificate expired"),
        ("name: another host", "not valid for name"),
    ] {
        let row = table.rows.iter().find(|row| row.name == name).expect("a row");
        let message = row.verified().expect_err("refused");
        assert!(message.contains(wanted), "{name}: {message}");
    }
}

#[test]
fn no_session_is_resumed_so_that_none_outlives_a_certificate() {
    let table = table();
    let row = &table.rows[0];
    let (client, server) = (row.client(), row.server(&table.keys).expect("a server"));
    for _ in 0..2 {
        let kind = shake(Arc::clone(&client), Arc::clone(&server), &row.host).expect("shakes hands");
        assert_eq!(kind, HandshakeKind::Full);
    }
}
