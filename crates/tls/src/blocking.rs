//! TLS over a socket of the standard library, for commands that ask one thing and end.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use super::{SystemRoots, TlsError, client_config};
use gatepost_api::{Transport, hook::EndpointTls};

/// The client side of TLS over this socket, in which HTTP is spoken. The handshake comes with the first byte.
///
/// # Errors
/// As [`client_config`].
pub fn over(stream: TcpStream, tls: &EndpointTls) -> Result<impl Read + Write, TlsError> {
    let config = client_config(tls, Transport::Http, &SystemRoots::default())?;
    let name = ServerName::try_from(tls.server_name.to_string())
        .map_err(|_| TlsError::BadServerName(tls.server_name.to_string()))?;
    let connection = ClientConnection::new(config, name).map_err(|error| TlsError::Refused(error.to_string()))?;
    Ok(StreamOwned::new(connection, stream))
}
