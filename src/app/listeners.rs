//! Listeners: sockets bound before anything runs.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Owner and group may connect; a pod's other containers share the group by `fsGroup`.
const UDS_MODE: u32 = 0o660;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The operating system refuses.
    #[error("cannot listen on {address}: {cause}")]
    Refused {
        /// The address.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// Others could read and forge reviews.
    #[error(
        "will not listen on {0} in plaintext: it is open to other machines, and reviews carry whole objects. Listen on \
         a loopback address or a unix socket, or give --tls-cert FILE and --tls-key FILE"
    )]
    Insecure(SocketAddr),
    /// The path is taken by something that is not a socket.
    #[error("{} exists and is not a socket; remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Another process serves there.
    #[error("another process listens on {}; stop it, or choose another path", .0.display())]
    InUse(PathBuf),
}

/// A TCP listener, not blocking.
///
/// # Errors
/// `Refused`; `Insecure` for an address that other machines can reach, unless TLS is spoken there.
pub fn tcp(address: SocketAddr, tls: bool) -> Result<TcpListener, BindError> {
    if !is_local(address) && !tls {
        return Err(BindError::Insecure(address));
    }
    let refused = |cause| BindError::Refused { address: address.to_string(), cause };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

/// Can only this machine reach it?
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A listener on a unix socket, not blocking, for owner and group. A socket nobody listens on any more is replaced.
///
/// # Errors
/// `Refused`, `NotASocket`, `InUse`.
pub fn unix(path: &Path) -> Result<UnixListener, BindError> {
    let refused = |cause| BindError::Refused { address: path.display().to_string(), cause };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(BindError::InUse(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(refused)?,
            Err(error) => return Err(refused(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(refused(error)),
    }
    let listener = UnixListener::bind(path).map_err(refused)?;
    fs::set_permissions(path, fs::Permissions::from_mode(UDS_MODE)).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_machine() {
        assert!(tcp("127.0.0.1:0".parse().unwrap(), false).is_ok());
        let error = tcp("0.0.0.0:0".parse().unwrap(), false).unwrap_err().to_string();
        assert!(error.contains("0.0.0.0:0") && error.contains("--tls-cert"), "{error}");
        assert!(tcp("0.0.0.0:0".parse().unwrap(), true).is_ok());
    }

    #[test]
    fn a_deserted_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.sock");
        let first = unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UDS_MODE);
        assert!(matches!(unix(&path), Err(BindError::InUse(_))));
        drop(first);
        assert!(unix(&path).is_ok(), "nobody listens there any more");

        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(matches!(unix(&file), Err(BindError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }
}
