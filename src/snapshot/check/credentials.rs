//! The certificates and keys that a `clientConfig` holds or names, read and checked.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::pem::{authority, belong_together, certificates, private_key};
use crate::{
    model::hook::Pem,
    snapshot::{
        ReadFile,
        document::{dialect::Dialect, node::Node, problem::quoted, value::Value},
    },
};

/// The authorities: `caBundle` in base64, or `caFile`, or the system's.
pub(crate) fn authorities(at: &Node<'_>, dialect: Dialect, read: ReadFile<'_>) -> Option<Pem> {
    let (bundle, file) = (at.key("caBundle"), at.key("caFile"));
    if dialect == Dialect::Kubernetes && matches!(bundle.value, Value::Text(text) if text.is_empty()) {
        return None;
    }
    if bundle.present() && file.present() {
        file.problem("stands beside caBundle", "and either could be the one that is meant", "keep one of the two");
        return None;
    }
    let (place, pem) = if bundle.present() {
        let encoded: Vec<u8> = bundle.text()?.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let Ok(pem) = STANDARD.decode(encoded) else {
            bundle.problem(
                "is not base64",
                "so no certificate of the hook could be verified",
                "write the PEM file in base64 on one line: base64 -w0 ca.pem",
            );
            return None;
        };
        (bundle, pem.into())
    } else if file.present() {
        let pem = content(&file, read)?;
        (file, pem)
    } else {
        return None;
    };
    if let Err(what) = authority(&pem) {
        place.problem(
            what,
            "so no certificate of the hook could be verified",
            "give at least one certificate (BEGIN CERTIFICATE) of the authority",
        );
    }
    Some(pem)
}

/// Our own certificate and key: both, or neither.
pub(crate) fn client_pair(at: &Node<'_>, read: ReadFile<'_>) -> Option<(Pem, Pem)> {
    let (certificate, key) = (at.key("clientCertificateFile"), at.key("clientKeyFile"));
    match (certificate.present(), key.present()) {
        (true, false) => {
            key.problem("is missing", "so the hook would see no certificate", "a client certificate needs its key")
        }
        (false, true) => certificate.problem(
            "is missing",
            "so the hook would see no certificate",
            "a client key needs its certificate",
        ),
        _ => {}
    }
    let chain_pem = if certificate.present() { content(&certificate, read) } else { None };
    let chain = chain_pem.as_deref().and_then(|pem| {
        let wrong = |what: String| {
            certificate.problem(
                what,
                "so the hook would see no certificate",
                "give the certificate chain (BEGIN CERTIFICATE)",
            )
        };
        certificates(pem).map_err(wrong).ok()
    });
    let key_pem = if key.present() { content(&key, read) } else { None };
    let private = key_pem.as_deref().and_then(|pem| {
        let wrong = |what: String| {
            key.problem(
                what,
                "so the hook would see no certificate",
                "give an unencrypted RSA, ECDSA or Ed25519 key (BEGIN PRIVATE KEY)",
            )
        };
        private_key(pem).map_err(wrong).ok()
    });
    if !belong_together(chain?, private?) {
        key.problem(
            "is not the key of the first certificate",
            "so every handshake would fail",
            "give the key that belongs to clientCertificateFile",
        );
    }
    chain_pem.zip(key_pem)
}

/// The content of the file that is named here.
fn content(place: &Node<'_>, read: ReadFile<'_>) -> Option<Pem> {
    let path = place.text()?;
    match read(path) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            place.problem(
                format!("{} cannot be read: {error}", quoted(path)),
                "so the hook could not be called",
                "correct the path, or let the user that Gatepost runs as read the file",
            );
            None
        }
    }
}
